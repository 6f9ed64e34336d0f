// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/comm/any_stream.hpp>
#include <mgroups/comm/buffer.hpp>
#include <mgroups/comm/concepts.hpp>
#include <mgroups/comm/verbs.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/memory.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/group/state.hpp>
#include <mgroups/topology/members.hpp>
#include <mgroups/topology/tags.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// The argument that says that a group is not given.
struct no_group_t {
  explicit constexpr no_group_t() = default;
};
inline constexpr no_group_t no_group{};

// A Group<Tag> put behind an any_communicator hands its stream on as it is.
template <>
struct stream_cast<any_stream> {
  [[nodiscard]] static any_stream from(any_stream stream) noexcept { return stream; }
};

namespace detail {
struct GroupAccess;
}

/// A process group whose meaning is part of its type. `Group<TPTag>` works on any backend and is what ordinary functions
/// take; `Group<TPTag, Comm>` keeps the backend's type and converts to it. Nothing converts between tags; see `retag`.
///
/// A cheap handle: copies are the same group and share its communicator, which is made by the first verb, collective over
/// the members alone, in the order in which members use their groups. Size, rank and membership are local and never make
/// one. The rank is alone in a group whose axis is absent (size 1, rank 0, verbs are done at once); where it is not a
/// member, `rank` and verbs throw NotAMember. The verbs are those of `verbs`; their errors name the tag. A root or peer is a
/// rank within the group. A handle and its copies belong to one thread. The world that it was made from must outlive it,
/// unless that is a copyable handle such as any_communicator.
template <class Tag, class Comm = any_communicator>
class Group : public verbs<Group<Tag, Comm>> {
 public:
  using tag_type = Tag;
  using communicator_type = Comm;
  using stream_type = typename Comm::stream_type;
  static constexpr MemoryReach memory_reach = Comm::memory_reach;

  /// Not given, as `no_group`: every question but `given()` and `name()` throws InvalidArgument.
  Group() = default;
  Group(no_group_t) noexcept {}

  /// The same group, its backend's type forgotten. Local.
  template <class OtherComm>
    requires(std::same_as<Comm, any_communicator> && !std::same_as<OtherComm, any_communicator>)
  Group(const Group<Tag, OtherComm>& other) : state_(other.state_), stream_(to_stream(other)), ordered_(other.ordered_) {}

  template <class Other, class C> requires(!std::same_as<Other, Tag>)
  Group(const Group<Other, C>&) = delete;  // mgroups: another tag's group; pass the right one, or retag<Tag>(group)

  [[nodiscard]] bool given() const noexcept { return state_ != nullptr; }
  [[nodiscard]] explicit operator bool() const noexcept { return given(); }
  /// The tag's name.
  [[nodiscard]] static constexpr std::string_view name() noexcept { return tag_name<Tag>; }

  [[nodiscard]] Relation relation() const { return state().relation(); }
  /// True for a member, and where the axis is absent.
  [[nodiscard]] bool is_member() const { return relation() != Relation::not_member; }
  /// Number of members.
  [[nodiscard]] int size() const { return state().members().size(); }
  /// The caller's place among the members. Throws NotAMember.
  [[nodiscard]] int rank() const { return member_state().rank(); }
  /// World ranks in group order. Valid as long as a handle of the group exists.
  [[nodiscard]] const Members& members() const { return state().members(); }
  /// World rank of a rank of the group.
  [[nodiscard]] int world_rank(int rank) const { return state().members()[rank]; }

  /// The same group with its verbs ordered on `stream`. Local. On hosts nothing changes.
  [[nodiscard]] Group on(stream_type stream) const {
    Group out = *this;
    out.stream_ = stream;
    out.ordered_ = true;
    out.handle_ = {};
    return out;
  }
  /// Returns when the host may read what the verbs issued so far have written. Local, blocking.
  void synchronize() {
    if (member_state().communicator_made()) on_stream([](auto& comm) { comm.synchronize(); });
  }

  /// The communicator over the members, made if need be: then collective over them. Valid as long as a handle of the group
  /// exists. Throws NotAMember.
  [[nodiscard]] Comm& communicator() {
    auto& state = member_state();
    if constexpr (std::same_as<Comm, any_communicator>) return state.erased();
    else return state.communicator();
  }
  [[nodiscard]] bool communicator_made() const { return state().communicator_made(); }

  /// Whether verbs can be given memory of this space. Local.
  [[nodiscard]] bool reaches(MemorySpace space) const { return state().reaches(space); }

  // The backend interface of comm/concepts.hpp.
  void do_barrier()
    requires has_barrier<Comm>
  {
    on_stream([](auto& comm) { comm.do_barrier(); });
  }
  void do_broadcast(const buffer& data, int root)
    requires has_broadcast<Comm>
  {
    on_stream([&](auto& comm) { comm.do_broadcast(data, root); });
  }
  void do_all_reduce(const const_buffer& in, const buffer& out, ReduceOp op)
    requires has_all_reduce<Comm>
  {
    on_stream([&](auto& comm) { comm.do_all_reduce(in, out, op); });
  }
  void do_all_gather(const const_buffer& in, const buffer& out)
    requires has_all_gather<Comm>
  {
    on_stream([&](auto& comm) { comm.do_all_gather(in, out); });
  }
  void do_all_gather_v(const const_buffer& in, const buffer& out, std::span<const std::size_t> counts)
    requires has_all_gather_v<Comm>
  {
    on_stream([&](auto& comm) { comm.do_all_gather_v(in, out, counts); });
  }
  void do_all_to_all_v(const const_buffer& in, std::span<const std::size_t> send_counts, const buffer& out,
                       std::span<const std::size_t> recv_counts)
    requires has_all_to_all_v<Comm>
  {
    on_stream([&](auto& comm) { comm.do_all_to_all_v(in, send_counts, out, recv_counts); });
  }
  void do_send(const const_buffer& data, int destination)
    requires has_send_recv<Comm>
  {
    on_stream([&](auto& comm) { comm.do_send(data, destination); });
  }
  void do_recv(const buffer& data, int source)
    requires has_send_recv<Comm>
  {
    on_stream([&](auto& comm) { comm.do_recv(data, source); });
  }

 private:
  template <class, class>
  friend class Group;
  friend struct detail::GroupAccess;
  using State = detail::GroupStateOf<Comm>;
  struct Nothing {};

  explicit Group(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

  template <class OtherComm>
  static stream_type to_stream(const Group<Tag, OtherComm>& other) {
    if constexpr (has_streams<OtherComm>) return other.stream_;
    else return {};
  }

  [[nodiscard]] State& state() const {
    if (state_ == nullptr) {
      throw InvalidArgument(
          concat("no ", name(), " group was given; pass one, for instance mgroups::group<", name(), ">(context)"),
          {.group = std::string(name())});
    }
    return *state_;
  }
  [[nodiscard]] State& member_state() const {
    State& found = state();
    if (found.relation() == Relation::not_member) {
      throw NotAMember(concat("world rank ", found.world_rank(), " is not a member of its ", name(), " group, which is ",
                              list_text(found.members()), "; ask is_member() first"),
                       {.group = std::string(name()), .rank = found.world_rank()});
    }
    return found;
  }

  template <class Call>
  void on_stream(const Call& call) {
    Comm& comm = communicator();
    if constexpr (has_streams<Comm>) {
      if (ordered_) {
        if constexpr (std::same_as<Comm, any_communicator>) {
          if (!handle_) handle_ = comm.on(stream_);
          return call(handle_);
        } else {
          auto&& handle = comm.on(stream_);
          return call(handle);
        }
      }
    }
    call(comm);
  }

  std::shared_ptr<State> state_;
  stream_type stream_{};
  bool ordered_ = false;
  // The erased handle on `stream_`, which is not free to make.
  std::conditional_t<std::same_as<Comm, any_communicator>, any_communicator, Nothing> handle_{};
};

namespace detail {

struct GroupAccess {
  template <class Tag, class Comm>
  [[nodiscard]] static Group<Tag, Comm> make(std::shared_ptr<GroupStateOf<Comm>> state) {
    return Group<Tag, Comm>(std::move(state));
  }
  template <class Tag, class Comm>
  [[nodiscard]] static const std::shared_ptr<GroupStateOf<Comm>>& state(const Group<Tag, Comm>& group) {
    return group.state_;
  }
  template <class To, class From, class Comm>
  [[nodiscard]] static Group<To, Comm> retagged(const Group<From, Comm>& group) {
    Group<To, Comm> out(group.state_);
    out.stream_ = group.stream_;
    out.ordered_ = group.ordered_;
    return out;
  }
};

template <class To, class From>
[[nodiscard]] constexpr bool same_axes() {
  if constexpr (has_axes<To> && has_axes<From>) {
    const auto within = [](const auto& some, const auto& all) {
      for (const std::string_view axis : some) {
        bool found = false;
        for (const std::string_view other : all) found = found || axis == other;
        if (!found) return false;
      }
      return true;
    };
    return within(group_traits<To>::axes, group_traits<From>::axes) &&
           within(group_traits<From>::axes, group_traits<To>::axes);
  } else {
    return false;
  }
}

}  // namespace detail

/// The same group under another tag, its communicator shared: `retag<DPCPTag>(dp)` where there is no context parallelism.
/// Local. Throws TopologyError unless the grid that the group comes from gives the new tag the same members in the same
/// order; a group that comes from no grid can only take a tag of the same axes. `no_group` stays what it is.
template <class To, class From, class Comm>
[[nodiscard]] Group<To, Comm> retag(const Group<From, Comm>& group) {
  if (!group.given()) return no_group;
  const auto& state = detail::GroupAccess::state(group);
  if (state->grid() == nullptr) {
    if (!detail::same_axes<To, From>()) {
      throw TopologyError(
          concat("retag<", tag_name<To>, ">: the ", tag_name<From>, " group was not made from a ProcessGrid, so ",
                 "nothing says whether it is the ", tag_name<To>, " group too; make that with make_group<", tag_name<To>,
                 "> or adopt_group<", tag_name<To>, "> in the first place"),
          {.group = std::string(tag_name<To>), .rank = state->world_rank()});
    }
  } else {
    const Members wanted = state->grid()->template members<To>(state->world_rank());
    if (!(wanted == state->members())) {
      throw TopologyError(
          concat("retag<", tag_name<To>, ">: on world rank ", state->world_rank(), " the ", tag_name<From>, " group is ",
                 list_text(state->members()), ", but ", tag_name<To>, " means ", list_text(wanted), " in the grid ",
                 to_string(*state->grid()), "; take the group of ", tag_name<To>, " from the context"),
          {.group = std::string(tag_name<To>), .rank = state->world_rank()});
    }
  }
  return detail::GroupAccess::retagged<To>(group);
}

/// Number of members of a group. Local. The name is Megatron's.
template <class Tag, class Comm>
[[nodiscard]] int get_pg_size(const Group<Tag, Comm>& group) {
  return group.size();
}
/// The caller's rank in a group. Local. Throws NotAMember. The name is Megatron's.
template <class Tag, class Comm>
[[nodiscard]] int get_pg_rank(const Group<Tag, Comm>& group) {
  return group.rank();
}

MGROUPS_END_NAMESPACE
