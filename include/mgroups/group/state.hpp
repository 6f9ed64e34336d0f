// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/comm/concepts.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/memory.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/topology/grid.hpp>
#include <mgroups/topology/members.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// How a rank stands to a group.
enum class Relation : std::uint8_t {
  absent,      ///< its axis does not exist: the rank is alone, size 1, rank 0
  member,      ///< the rank is one of the members
  not_member,  ///< the group exists and the rank is outside: rank and verbs throw NotAMember
};

/// A communicator that groups can be made of: its own ranks make a communicator of the same type, without the others.
template <class C>
concept world_communicator = communicator<C> && requires(C& c, std::span<const int> members, std::string_view name) {
  { c.create_group(members, name) } -> std::same_as<C>;
};

namespace detail {

// What the groups of one rank share: the communicator they are made from, and the grid where one is known.
template <class Comm>
struct WorldState {
  std::shared_ptr<Comm> comm;
  std::shared_ptr<const ProcessGrid> grid;
  int rank = 0;
  int size = 1;
};

// Copies what is a handle and refers to what is an owner.
template <class World>
[[nodiscard]] auto hold_world(World&& world) {
  using Comm = std::remove_cvref_t<World>;
  if constexpr (std::is_lvalue_reference_v<World> && !std::copy_constructible<Comm>) {
    static_assert(!std::is_const_v<std::remove_reference_t<World>>, "the world communicator is const; pass it mutable");
    return std::shared_ptr<Comm>(std::shared_ptr<void>(), &world);
  } else {
    return std::make_shared<Comm>(std::forward<World>(world));
  }
}

template <class World>
[[nodiscard]] auto make_world(World&& world, std::shared_ptr<const ProcessGrid> grid) {
  using Comm = std::remove_cvref_t<World>;
  auto state = std::make_shared<WorldState<Comm>>();
  state->comm = hold_world(std::forward<World>(world));
  state->grid = std::move(grid);
  state->rank = state->comm->rank();
  state->size = state->comm->size();
  return state;
}

// One group of one rank, whatever its backend. The communicator is made when it is first asked for.
class GroupState {
 public:
  GroupState(std::string_view name, Relation relation, std::shared_ptr<const ProcessGrid> grid, int world_rank,
             int world_size)
      : name_(name), relation_(relation), grid_(std::move(grid)), world_rank_(world_rank), world_size_(world_size) {}
  GroupState(const GroupState&) = delete;
  GroupState& operator=(const GroupState&) = delete;
  virtual ~GroupState() = default;

  virtual any_communicator& erased() = 0;
  [[nodiscard]] virtual bool reaches(MemorySpace space) const = 0;
  [[nodiscard]] virtual bool communicator_made() const noexcept = 0;

  [[nodiscard]] std::string_view name() const noexcept { return name_; }
  [[nodiscard]] Relation relation() const noexcept { return relation_; }
  [[nodiscard]] const std::shared_ptr<const ProcessGrid>& grid() const noexcept { return grid_; }
  [[nodiscard]] int world_rank() const noexcept { return world_rank_; }
  [[nodiscard]] int world_size() const noexcept { return world_size_; }
  [[nodiscard]] const Members& members() const noexcept { return members_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }

  void set_members(const Members& members) {
    members_ = members;
    rank_ = members.index_of(world_rank_);
  }
  void set_members(std::vector<int> ranks) {
    list_ = std::move(ranks);
    set_members(Members::listed(list_));
  }

 private:
  std::string_view name_;
  Relation relation_;
  std::shared_ptr<const ProcessGrid> grid_;
  int world_rank_;
  int world_size_;
  std::vector<int> list_;
  Members members_;
  int rank_ = 0;
};

template <class Comm>
class TypedGroupState final : public GroupState {
 public:
  TypedGroupState(std::string_view name, Relation relation, std::shared_ptr<WorldState<Comm>> world)
      : GroupState(name, relation, world->grid, world->rank, world->size), world_(std::move(world)) {}

  Comm& communicator() {
    if (!comm_) {
      const std::vector<int> ranks(members().begin(), members().end());
      comm_.emplace(world_->comm->create_group(ranks, name()));
    }
    return *comm_;
  }
  void adopt(Comm comm) { comm_.emplace(std::move(comm)); }

  any_communicator& erased() override {
    if constexpr (std::same_as<Comm, any_communicator>) {
      return communicator();
    } else {
      if (!erased_) erased_ = any_communicator::borrow(communicator());
      return erased_;
    }
  }
  // A group reaches what the communicator does that it is made from, so that arguments are checked before it is made.
  [[nodiscard]] bool reaches(MemorySpace space) const override {
    return comm_ ? comm_->reaches(space) : world_->comm->reaches(space);
  }
  [[nodiscard]] bool communicator_made() const noexcept override { return comm_.has_value(); }

 private:
  struct Nothing {};

  std::shared_ptr<WorldState<Comm>> world_;
  std::optional<Comm> comm_;
  std::conditional_t<std::same_as<Comm, any_communicator>, Nothing, any_communicator> erased_;
};

template <class Comm>
using GroupStateOf = std::conditional_t<std::same_as<Comm, any_communicator>, GroupState, TypedGroupState<Comm>>;

// Where one rank stands in the group of one tag.
struct GroupPlace {
  std::string_view name;
  Relation relation = Relation::absent;
  Members members;
};

template <class Tag>
[[nodiscard]] GroupPlace absent_place(int world_rank) {
  return {tag_name<Tag>, Relation::absent, Members(world_rank, {{1, 1}})};
}

template <class Tag>
[[nodiscard]] GroupPlace grid_place(const ProcessGrid& grid, int world_rank) {
  const GridGroup group = grid.group_of<Tag>(world_rank);
  Relation relation = group.is_member() ? Relation::member : Relation::not_member;
  if constexpr (has_axes<Tag>) {
    bool known = false;
    for (const std::string_view axis : group_traits<Tag>::axes) known = known || grid.has_axis(axis);
    if (!known) relation = Relation::absent;
  }
  return {tag_name<Tag>, relation, group.members};
}

template <class Comm>
[[nodiscard]] std::shared_ptr<TypedGroupState<Comm>> make_state(const GroupPlace& place,
                                                                const std::shared_ptr<WorldState<Comm>>& world) {
  auto state = std::make_shared<TypedGroupState<Comm>>(place.name, place.relation, world);
  state->set_members(place.members);
  return state;
}

inline void check_grid_fits(const ProcessGrid& grid, int world_size) {
  if (grid.first_rank() == 0 && grid.world_size() == world_size) return;
  throw TopologyError(concat("the grid is of ", to_string(grid), " from rank ", grid.first_rank(), " on, but the world has ",
                             world_size,
                             " ranks; give the grid the world's size, or make a communicator of exactly its ranks ",
                             "with create_group and pass that as the world"));
}

}  // namespace detail

MGROUPS_END_NAMESPACE
