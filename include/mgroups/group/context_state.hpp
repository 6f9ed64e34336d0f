// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/group/group.hpp>
#include <mgroups/group/state.hpp>
#include <mgroups/topology/grid.hpp>
#include <mgroups/topology/tags.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

struct ContextMark {};

// Its address tells tags apart.
template <class Tag>
inline constexpr char tag_key = 0;

// What the copies of one context share, whatever the backend: the groups that were asked for so far.
class ContextState {
 public:
  ContextState(std::shared_ptr<const ProcessGrid> grid, int rank, int size)
      : grid_(std::move(grid)), world_rank_(rank), world_size_(size) {}
  ContextState(const ContextState&) = delete;
  ContextState& operator=(const ContextState&) = delete;
  virtual ~ContextState() = default;

  [[nodiscard]] const std::shared_ptr<const ProcessGrid>& grid() const noexcept { return grid_; }
  [[nodiscard]] int world_rank() const noexcept { return world_rank_; }
  [[nodiscard]] int world_size() const noexcept { return world_size_; }
  virtual any_communicator& erased_world() = 0;

  template <class MakePlace>
  const std::shared_ptr<GroupState>& find_or_make(const void* key, const MakePlace& make_place) {
    for (const Entry& entry : groups_) {
      if (entry.key == key) return entry.group;
    }
    groups_.push_back({key, make(make_place())});
    return groups_.back().group;
  }

 protected:
  virtual std::shared_ptr<GroupState> make(const GroupPlace& place) = 0;

 private:
  struct Entry {
    const void* key;
    std::shared_ptr<GroupState> group;
  };

  std::shared_ptr<const ProcessGrid> grid_;
  int world_rank_;
  int world_size_;
  std::vector<Entry> groups_;
};

template <class Comm>
class TypedContextState final : public ContextState {
 public:
  explicit TypedContextState(std::shared_ptr<WorldState<Comm>> world)
      : ContextState(world->grid, world->rank, world->size), world_(std::move(world)) {}

  [[nodiscard]] Comm& world() noexcept { return *world_->comm; }
  any_communicator& erased_world() override {
    if constexpr (std::same_as<Comm, any_communicator>) {
      return world();
    } else {
      if (!erased_) erased_ = any_communicator::borrow(world());
      return erased_;
    }
  }

 protected:
  std::shared_ptr<GroupState> make(const GroupPlace& place) override { return make_state(place, world_); }

 private:
  struct Nothing {};

  std::shared_ptr<WorldState<Comm>> world_;
  std::conditional_t<std::same_as<Comm, any_communicator>, Nothing, any_communicator> erased_;
};

template <class World>
[[nodiscard]] auto make_context_state(World&& world, std::shared_ptr<const ProcessGrid> grid) {
  using Comm = std::remove_cvref_t<World>;
  return std::make_shared<TypedContextState<Comm>>(make_world(std::forward<World>(world), std::move(grid)));
}

template <class Comm>
using ContextStateOf = std::conditional_t<std::same_as<Comm, any_communicator>, ContextState, TypedContextState<Comm>>;

// What every context has.
template <class Policy, class Comm>
class ContextBase : public ContextMark {
 public:
  using policy_type = Policy;
  using communicator_type = Comm;

  /// The communicator that the groups are made of.
  [[nodiscard]] Comm& world() const {
    if constexpr (std::same_as<Comm, any_communicator>) return state_->erased_world();
    else return state_->world();
  }
  [[nodiscard]] int world_size() const noexcept { return state_->world_size(); }
  [[nodiscard]] int world_rank() const noexcept { return state_->world_rank(); }
  /// Null for a context that was made of groups.
  [[nodiscard]] const ProcessGrid* grid() const noexcept { return state_->grid().get(); }

  // For the library.
  [[nodiscard]] const std::shared_ptr<ContextStateOf<Comm>>& state() const noexcept { return state_; }

 protected:
  explicit ContextBase(std::shared_ptr<ContextStateOf<Comm>> state) noexcept : state_(std::move(state)) {}

  template <class Tag, class MakePlace>
  [[nodiscard]] Group<Tag, Comm> cached(const MakePlace& make_place) const {
    return GroupAccess::make<Tag, Comm>(
        std::static_pointer_cast<GroupStateOf<Comm>>(state_->find_or_make(&tag_key<Tag>, make_place)));
  }

  [[nodiscard]] Group<WorldTag, Comm> world_group() const {
    return cached<WorldTag>([&] {
      return GroupPlace{tag_name<WorldTag>, Relation::member, Members(0, {{world_size(), 1}})};
    });
  }

 private:
  std::shared_ptr<ContextStateOf<Comm>> state_;
};

template <class Tag, class Comm>
void create_communicator(Group<Tag, Comm> group) {
  if (group.is_member()) (void)group.communicator();
}

template <class Tag, class... Tags>
inline constexpr std::size_t occurrences = (static_cast<std::size_t>(std::same_as<Tag, Tags>) + ... + 0);

template <class Tag, class... Tags>
inline constexpr std::size_t index_of_type = [] {
  std::size_t index = 0;
  (void)((std::same_as<Tag, Tags> || (++index, false)) || ...);
  return index;
}();

template <class Tag, class Predicate>
[[nodiscard]] constexpr bool any_axis_of(Predicate predicate) {
  if constexpr (has_axes<Tag>) {
    for (const std::string_view axis : group_traits<Tag>::axes) {
      if (predicate(axis)) return true;
    }
  }
  return false;
}

template <class A, class B>
[[nodiscard]] constexpr bool share_an_axis() {
  if constexpr (has_axes<A> && has_axes<B>) return any_axis_of<A>([](std::string_view axis) { return names_axis<B>(axis); });
  else return false;
}

}  // namespace detail

MGROUPS_END_NAMESPACE
