// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <mgroups/comm/concepts.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/group/group.hpp>
#include <mgroups/group/state.hpp>
#include <mgroups/topology/grid.hpp>
#include <mgroups/topology/tags.hpp>
#include <mgroups/version.hpp>

// Groups outside a context.

MGROUPS_BEGIN_NAMESPACE

namespace detail {

template <class Tag, class Comm>
[[nodiscard]] std::shared_ptr<TypedGroupState<Comm>> state_of_ranks(const std::shared_ptr<WorldState<Comm>>& world,
                                                                    std::vector<int> ranks) {
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  const bool repeated = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  if (ranks.empty() || repeated || sorted.front() < 0 || sorted.back() >= world->size) {
    throw InvalidArgument(
        concat("the ranks ", list_text(ranks), " cannot be a ", tag_name<Tag>,
               " group: it needs one member or more, each once, of the world's ranks 0 to ", world->size - 1),
        {.group = std::string(tag_name<Tag>), .rank = world->rank});
  }
  const bool member = std::binary_search(sorted.begin(), sorted.end(), world->rank);
  auto state =
      std::make_shared<TypedGroupState<Comm>>(tag_name<Tag>, member ? Relation::member : Relation::not_member, world);
  state->set_members(std::move(ranks));
  return state;
}

}  // namespace detail

/// The group that `grid` gives the tag, without a context. Local. Throws TopologyError where grid and world do not fit.
template <class Tag, class World>
  requires world_communicator<std::remove_cvref_t<World>>
[[nodiscard]] auto make_group(World&& world, const ProcessGrid& grid) {
  using Comm = std::remove_cvref_t<World>;
  const auto state = detail::make_world(std::forward<World>(world), std::make_shared<const ProcessGrid>(grid));
  detail::check_grid_fits(grid, state->size);
  const auto place = detail::grid_place<Tag>(grid, state->rank);
  return detail::GroupAccess::make<Tag, Comm>(detail::make_state(place, state));
}

/// A group of the world ranks listed, in group order; a rank outside the list is not a member. Local: every member must give
/// the same list. Throws InvalidArgument for ranks that do not exist or are listed twice.
template <class Tag, class World>
  requires world_communicator<std::remove_cvref_t<World>>
[[nodiscard]] auto make_group(World&& world, std::span<const int> ranks) {
  const auto state = detail::make_world(std::forward<World>(world), nullptr);
  return detail::GroupAccess::make<Tag, std::remove_cvref_t<World>>(
      detail::state_of_ranks<Tag>(state, std::vector<int>(ranks.begin(), ranks.end())));
}

/// A group over a communicator that exists already, which is moved in. Collective over it: one all_gather of an int, by
/// which the members' world ranks become known.
template <class Tag, class World>
  requires world_communicator<std::remove_cvref_t<World>> && has_all_gather<std::remove_cvref_t<World>>
[[nodiscard]] auto adopt_group(World&& world, std::remove_cvref_t<World> comm) {
  using Comm = std::remove_cvref_t<World>;
  const auto state = detail::make_world(std::forward<World>(world), nullptr);
  std::vector<int> ranks(static_cast<std::size_t>(comm.size()));
  const int own[] = {state->rank};
  comm.all_gather(std::span(own), std::span(ranks));
  auto group = detail::state_of_ranks<Tag>(state, std::move(ranks));
  group->adopt(std::move(comm));
  return detail::GroupAccess::make<Tag, Comm>(std::move(group));
}

/// The declaration that the tag's axis does not exist: the rank is alone. Local.
template <class Tag, class World>
  requires world_communicator<std::remove_cvref_t<World>>
[[nodiscard]] auto absent_group(World&& world) {
  using Comm = std::remove_cvref_t<World>;
  const auto state = detail::make_world(std::forward<World>(world), nullptr);
  return detail::GroupAccess::make<Tag, Comm>(detail::make_state(detail::absent_place<Tag>(state->rank), state));
}

MGROUPS_END_NAMESPACE
