// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/group/accounting.hpp>
#include <mgroups/group/context_state.hpp>
#include <mgroups/group/fallback.hpp>
#include <mgroups/group/group.hpp>
#include <mgroups/group/state.hpp>
#include <mgroups/topology/grid.hpp>
#include <mgroups/topology/tags.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// As the groups of a context: whatever tag its grid can resolve, decided at run time.
struct every_tag {};
/// As the groups of a context: these, known at compile time.
template <class... Groups>
struct given {};

/// The process groups of one rank, by tag. Three ways to one:
/// - `make_context(world, grid)`: every tag on the grid's axes;
/// - `make_context<fallback::strict, TPTag, PPTag, DPCPTag>(world, grid)`: these tags, listed at compile time;
/// - `GroupContext ctx{fallback::strict{}, world, tp, pp, dp_cp}`: of groups that exist.
/// What stands for a tag that it does not have is its policy's business, tag by tag. Copies are cheap and share the groups
/// and their communicators. One context, with its copies, belongs to one rank and thread. The world must outlive it, unless
/// that is a copyable handle. Any grid context converts to `GroupContext<Policy>`, which ordinary functions can take.
template <class Policy = fallback::solo, class Comm = any_communicator, class Groups = every_tag>
class GroupContext;

/// The contexts of this library, and classes of your own that derive from one.
template <class C>
concept group_context = std::derived_from<std::remove_cvref_t<C>, detail::ContextMark>;

/// A context of every tag on a grid.
template <class Policy, class Comm>
class GroupContext<Policy, Comm, every_tag> : public detail::ContextBase<Policy, Comm> {
  using Base = detail::ContextBase<Policy, Comm>;

 public:
  template <class Tag>
  using group_type = Group<Tag, Comm>;

  /// Local. Throws TopologyError where the grid does not cover the world exactly.
  template <class World>
    requires std::same_as<std::remove_cvref_t<World>, Comm>
  GroupContext(Policy, World&& world, const ProcessGrid& grid)
      : Base(detail::make_context_state(std::forward<World>(world), std::make_shared<const ProcessGrid>(grid))) {
    detail::check_grid_fits(grid, this->world_size());
  }

  // For the library.
  explicit GroupContext(std::shared_ptr<detail::ContextStateOf<Comm>> state) noexcept : Base(std::move(state)) {}
  /// The same context, its backend's type forgotten. Local.
  template <class OtherComm>
    requires(std::same_as<Comm, any_communicator> && !std::same_as<OtherComm, any_communicator>)
  GroupContext(const GroupContext<Policy, OtherComm, every_tag>& other) : Base(other.state()) {}

  /// The group of the tag, absent under solo where the grid has none of its axes. Local. Throws TopologyError under strict
  /// where the grid lacks an axis of it.
  template <class Tag>
  [[nodiscard]] Group<Tag, Comm> group() const {
    const ProcessGrid& grid = *this->grid();
    if constexpr (!Policy::absent_is_one) {
      if (!grid.has<Tag>()) {
        throw TopologyError(
            concat("the grid ", to_string(grid), " lacks an axis of ", tag_name<Tag>, " (",
                   list_text(group_traits<Tag>::axes), "), and fallback::strict takes none to be absent; add it to ",
                   "the grid, or use fallback::solo"),
            {.group = std::string(tag_name<Tag>), .rank = this->world_rank()});
      }
    }
    return this->template cached<Tag>([&] { return detail::grid_place<Tag>(grid, this->world_rank()); });
  }

  /// Makes the communicators of these tags now. Collective over the world: every rank names the same tags in the same order.
  template <class... Tags>
  void create_all() const {
    (detail::create_communicator(group<Tags>()), ...);
  }

  template <class Tag>
  [[nodiscard]] static constexpr int static_size() {
    return dynamic_pg_size;
  }
};

/// A context of the groups that it was given.
template <class Policy, class Comm, class... Tags, class... Comms>
class GroupContext<Policy, Comm, given<Group<Tags, Comms>...>> : public detail::ContextBase<Policy, Comm> {
  using Base = detail::ContextBase<Policy, Comm>;
  static_assert((detail::occurrences<Tags, Tags...> + ... + 0) == sizeof...(Tags),
                "mgroups: the context is given two groups of one tag; give each tag once");

 public:
  template <class Tag>
  using group_type = Group<Tag, Comm>;

  /// Local. A group that is `no_group` is absent under solo and an InvalidArgument under strict. Throws TopologyError where
  /// the groups are of another world, or contradict its size.
  template <class World>
    requires std::same_as<std::remove_cvref_t<World>, Comm>
  GroupContext(Policy, World&& world, Group<Tags, Comms>... groups)
      : Base(detail::make_context_state(std::forward<World>(world), nullptr)), groups_(std::move(groups)...) {
    check();
  }
  /// The tags' groups in a grid.
  template <class World>
    requires std::same_as<std::remove_cvref_t<World>, Comm> && (std::same_as<Comm, Comms> && ...)
  GroupContext(Policy, World&& world, const ProcessGrid& grid)
      : Base(detail::make_context_state(std::forward<World>(world), std::make_shared<const ProcessGrid>(grid))) {
    detail::check_grid_fits(grid, this->world_size());
    const GroupContext<Policy, Comm, every_tag> all(this->state());
    groups_ = {all.template group<Tags>()...};
    check();
  }

  template <class Tag>
  [[nodiscard]] static constexpr bool lists() {
    return (std::same_as<Tag, Tags> || ...);
  }

  /// The group of the tag, or what the policy puts in its place. Local.
  template <class Tag>
  [[nodiscard]] auto group() const {
    if constexpr (lists<Tag>()) return std::get<detail::index_of_type<Tag, Tags...>>(groups_);
    else if constexpr (std::same_as<Tag, WorldTag>) return this->world_group();
    else return Policy::template missing<Tag>(*this);
  }

  /// Makes the communicators of these tags, or of all that the context has, now. Collective over the world: every rank names
  /// the same tags in the same order.
  template <class... Wanted>
  void create_all() const {
    if constexpr (sizeof...(Wanted) > 0) (detail::create_communicator(group<Wanted>()), ...);
    else (detail::create_communicator(group<Tags>()), ...);
  }

  template <class Tag>
  [[nodiscard]] static constexpr int static_size() {
    if constexpr (lists<Tag>() || std::same_as<Tag, WorldTag>) return dynamic_pg_size;
    else return Policy::template static_size<Tag, GroupContext>();
  }

  // For policies.
  template <class Tag>
  [[nodiscard]] Group<Tag, Comm> absent() const {
    return this->template cached<Tag>([&] { return detail::absent_place<Tag>(this->world_rank()); });
  }
  template <class Tag>
  [[nodiscard]] static constexpr bool covers() {
    return (detail::share_an_axis<Tag, Tags>() || ...);
  }
  [[nodiscard]] static constexpr bool has_expert_groups() {
    return (detail::any_axis_of<Tags>(detail::is_expert_only) || ...);
  }
  [[nodiscard]] static constexpr bool has_dense_groups() {
    return (detail::any_axis_of<Tags>([](auto axis) { return detail::is_dense_only(axis) || detail::is_own(axis); }) || ...);
  }
  [[nodiscard]] std::vector<detail::GivenGroup> given_groups() const {
    std::vector<detail::GivenGroup> out;
    std::apply([&](const auto&... groups) { (add_given(out, groups), ...); }, groups_);
    return out;
  }

 private:
  template <class Tag, class C>
  static void add_given(std::vector<detail::GivenGroup>& out, const Group<Tag, C>& group) {
    if constexpr (detail::has_axes<Tag>) out.push_back({tag_name<Tag>, group_traits<Tag>::axes, group.size()});
  }

  void check() {
    bool has_expert_view = true;
    std::apply([&](auto&... groups) { ((settle(groups), has_expert_view = has_expert_view && views_of(groups)), ...); },
               groups_);
    detail::check_accounts(given_groups(), this->world_size(), this->world_rank(), Policy::absent_is_one, has_expert_view);
  }

  template <class Tag, class C>
  static bool views_of(const Group<Tag, C>& group) {
    const auto& grid = detail::GroupAccess::state(group)->grid();
    return grid == nullptr || grid->has_expert_view();
  }

  // Puts the absent group in the place of one that is not given, and refuses one of another world.
  template <class Tag, class C>
  void settle(Group<Tag, C>& group) {
    if (!group.given()) {
      if constexpr (Policy::absent_is_one && std::convertible_to<Group<Tag, Comm>, Group<Tag, C>>) {
        group = absent<Tag>();
      } else {
        throw InvalidArgument(
            concat("the ", tag_name<Tag>, " group of this context is no_group; give it, or leave the tag out"),
            {.group = std::string(tag_name<Tag>), .rank = this->world_rank()});
      }
    }
    const auto& state = *detail::GroupAccess::state(group);
    if (state.world_size() != this->world_size() || state.world_rank() != this->world_rank()) {
      throw TopologyError(concat("the ", tag_name<Tag>, " group was made on rank ", state.world_rank(), " of ",
                                 state.world_size(), ", but the context's world is rank ", this->world_rank(), " of ",
                                 this->world_size(), "; make groups and context from one world"),
                          {.group = std::string(tag_name<Tag>), .rank = this->world_rank()});
    }
  }

  std::tuple<Group<Tags, Comms>...> groups_;
};

template <class Policy, class World>
GroupContext(Policy, World&&, const ProcessGrid&) -> GroupContext<Policy, std::remove_cvref_t<World>, every_tag>;
template <class Policy, class World, class... Tags, class... Comms>
GroupContext(Policy, World&&, Group<Tags, Comms>...)
    -> GroupContext<Policy, std::remove_cvref_t<World>, given<Group<Tags, Comms>...>>;

/// A context over a grid: of every tag, or of the tags listed. Local. Throws TopologyError where grid and world do not fit,
/// and under solo where listed tags do not account for the world.
template <class Policy = fallback::solo, class... Tags, class World>
  requires world_communicator<std::remove_cvref_t<World>>
[[nodiscard]] auto make_context(World&& world, const ProcessGrid& grid) {
  using Comm = std::remove_cvref_t<World>;
  using Groups = std::conditional_t<sizeof...(Tags) == 0, every_tag, given<Group<Tags, Comm>...>>;
  return GroupContext<Policy, Comm, Groups>(Policy{}, std::forward<World>(world), grid);
}

/// The group of a tag in a context. Local; the communicator is made by the first verb.
template <class Tag, group_context Context>
[[nodiscard]] auto group(const Context& context) {
  return context.template group<Tag>();
}

/// Number of members of a tag's group. Local. The name is Megatron's.
template <class Tag, group_context Context>
[[nodiscard]] int get_pg_size(const Context& context) {
  return context.template group<Tag>().size();
}
/// The caller's rank in a tag's group. Local. Throws NotAMember. The name is Megatron's.
template <class Tag, group_context Context>
[[nodiscard]] int get_pg_rank(const Context& context) {
  return context.template group<Tag>().rank();
}

/// The size of a tag's group as far as the type of the context says it, else `dynamic_pg_size`. Under solo a tag that was
/// not given, and no axis of which is in a group that was, is 1. Under strict a tag that was not given is a compile error.
template <class Tag, group_context Context>
inline constexpr int static_pg_size = std::remove_cvref_t<Context>::template static_size<Tag>();

MGROUPS_END_NAMESPACE
