// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/comm/buffer.hpp>
#include <mgroups/comm/checks.hpp>
#include <mgroups/comm/threads/call.hpp>
#include <mgroups/comm/threads/call_scope.hpp>
#include <mgroups/comm/threads/collectives.hpp>
#include <mgroups/comm/threads/group_state.hpp>
#include <mgroups/comm/verb.hpp>
#include <mgroups/comm/verbs.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {
struct ThreadAccess;
}  // namespace detail

/// How long a verb waits for other ranks unless told otherwise.
inline constexpr std::chrono::nanoseconds default_deadline = std::chrono::minutes(5);

/// A communicator whose ranks are threads of this process; `run_threads` makes the first one. Nothing but threads is needed.
///
/// Data are copied once, from the peer's buffer into the caller's. Verbs return when the caller's buffers are its own again.
/// Reductions combine in rank order and give the same bits on all ranks and in every run. send waits for its receiver.
///
/// When something goes wrong, no call hangs and no rank is left reading memory that is gone:
/// - ranks that call different verbs, types, counts, roots or operations all throw MismatchedCall, which names two of the
///   calls; the communicator can still be used;
/// - an exception that leaves a rank's function makes every wait in every communicator of that world throw PeerFailed with
///   its text; a rank whose function returned makes those fail that need it;
/// - a wait longer than the deadline throws TimeoutError, naming who was missing.
/// After a PeerFailed or TimeoutError this communicator stays broken: every rank's pending and later calls on it throw
/// PeerFailed. Ranks in messages and error contexts are world ranks; roots and peers are ranks of the group.
///
/// A move-only handle of one rank, for one thread at a time; another thread of the same rank takes a `duplicate()`, and ends
/// before the rank's function returns.
class thread_comm : public verbs<thread_comm>, public host_memory_only<thread_comm> {
 public:
  thread_comm(thread_comm&&) noexcept = default;
  thread_comm& operator=(thread_comm&&) noexcept = default;
  thread_comm(const thread_comm&) = delete;
  thread_comm& operator=(const thread_comm&) = delete;
  ~thread_comm() = default;

  /// False for the handle that `split` gives for a negative colour, and for one that was moved from.
  [[nodiscard]] bool is_member() const noexcept { return group_ != nullptr; }
  /// Throws NotAMember where `is_member()` is false, as `size`, `world_rank` and every verb do.
  [[nodiscard]] int rank() const {
    (void)group();
    return rank_;
  }
  [[nodiscard]] int size() const { return group().size(); }
  /// The name in error messages. "not a member" where `is_member()` is false.
  [[nodiscard]] std::string_view name() const noexcept {
    return group_ ? std::string_view(group_->name()) : std::string_view("not a member");
  }
  /// The number of this communicator's rank `rank` in the world of `run_threads`. Local.
  [[nodiscard]] int world_rank(int rank) const { return group().world_rank(rank); }

  /// How long a verb waits for others. Local; communicators made from this one begin with the same.
  [[nodiscard]] std::chrono::nanoseconds deadline() const noexcept { return deadline_; }
  void set_deadline(std::chrono::nanoseconds time) noexcept { deadline_ = time; }

  /// Makes every pending and later verb of every member throw PeerFailed with this cause. Local, does not wait.
  void abort(std::string_view cause) {
    const int at = world_rank(rank_);
    const detail::Blame blame{Errc::peer_failed, at, concat("rank ", at, " aborted: ", cause)};
    group().world()->suspect(blame);
    group().break_with(blame);
  }

  /// One communicator per colour, its ranks ordered by (key, rank here). A negative colour joins none and gets a handle with
  /// `is_member() == false`. Collective over this communicator, blocking.
  [[nodiscard]] thread_comm split(int color, int key) {
    detail::Call call{.verb = Verb::split};
    call.color = color;
    call.key = key;
    return regroup(call, concat(name(), ".split(", color, ")"));
  }

  /// The same ranks, apart from this communicator's traffic. Collective over this communicator, blocking.
  [[nodiscard]] thread_comm duplicate() {
    detail::Call call{.verb = Verb::duplicate};
    call.key = rank_;
    return regroup(call, std::string(name()));
  }

  /// A communicator of `members`, ranks of this one in the order of the new one, which error messages call `name`.
  /// Collective over the members alone, who give the same list and name; blocking. Several may be made at once, also of the
  /// same members: the n-th call of each is the n-th group. Throws InvalidArgument for a bad list and NotAMember when the
  /// caller is not in it.
  [[nodiscard]] thread_comm create_group(std::span<const int> members, std::string_view name) {
    const ErrorContext at{"create_group", std::string(this->name()), world_rank(rank_), {}, {}};
    if (const auto fault = detail::members_fault(members, size())) {
      throw InvalidArgument(concat("create_group of ", name, " on group ", this->name(), ": ", *fault), at);
    }
    const auto place = std::find(members.begin(), members.end(), rank_);
    if (place == members.end()) {
      throw NotAMember(concat("create_group of ", name, " on group ", this->name(), ": rank ", rank_,
                              " is not among the members ", list_text(members), "; only members call it"),
                       at);
    }
    { detail::CallScope(seat(), {.verb = Verb::create_group}).finish(); }
    std::string fault;
    auto made = group().join({members.begin(), members.end()},
                             name.empty() ? concat(this->name(), list_text(members)) : std::string(name), rank_, fault);
    if (!fault.empty()) {
      made->break_with({Errc::mismatch, world_rank(rank_), fault});
      throw MismatchedCall(fault, at);
    }
    thread_comm comm(std::move(made), static_cast<int>(place - members.begin()), deadline_);
    detail::CallScope scope(comm.seat(), {.verb = Verb::create_group});
    scope.meet();
    scope.finish();
    return comm;
  }

  // The backend interface of comm/concepts.hpp.
  void do_barrier() {
    detail::CallScope scope(seat(), {.verb = Verb::barrier});
    scope.enter();
    scope.finish();
  }
  void do_broadcast(const buffer& data, int root) { detail::thread_broadcast(seat(), data, root); }
  void do_all_reduce(const const_buffer& in, const buffer& out, ReduceOp op) {
    detail::thread_all_reduce(seat(), in, out, op, inputs_);
  }
  void do_all_gather(const const_buffer& in, const buffer& out) { detail::thread_all_gather(seat(), in, out); }
  void do_all_gather_v(const const_buffer& in, const buffer& out, std::span<const std::size_t> counts) {
    detail::thread_all_gather_v(seat(), in, out, counts);
  }
  void do_all_to_all_v(const const_buffer& in, std::span<const std::size_t> send_counts, const buffer& out,
                       std::span<const std::size_t> recv_counts) {
    detail::thread_all_to_all_v(seat(), in, send_counts, out, recv_counts);
  }
  void do_send(const const_buffer& data, int destination) { detail::thread_send(seat(), data, destination); }
  void do_recv(const buffer& data, int source) { detail::thread_recv(seat(), data, source); }

 private:
  friend struct detail::ThreadAccess;

  thread_comm() = default;
  thread_comm(std::shared_ptr<detail::ThreadGroup> group, int rank, std::chrono::nanoseconds deadline)
      : group_(std::move(group)), rank_(rank), deadline_(deadline), inputs_(static_cast<std::size_t>(group_->size())) {}

  [[nodiscard]] detail::ThreadGroup& group() const {
    if (!group_) {
      throw NotAMember(
          "this rank is not a member of that communicator: it was split off with a negative colour or moved from; ask "
          "is_member() first");
    }
    return *group_;
  }
  [[nodiscard]] detail::ThreadSeat seat() { return {group(), rank_, epoch_, deadline_}; }

  [[nodiscard]] thread_comm regroup(const detail::Call& call, std::string name) {
    detail::CallScope scope(seat(), call);
    scope.enter();
    std::vector<int> members;
    for (int r = 0; r < size(); ++r) {
      if (scope.call(r).color == call.color) members.push_back(r);
    }
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return scope.call(a).key < scope.call(b).key; });
    // The first member makes the new communicator and the others take it, between two meetings.
    const bool joins = call.color >= 0, leads = joins && members.front() == rank_;
    std::shared_ptr<detail::ThreadGroup>& offer = group().slot(members.front()).offer;
    if (leads) {
      std::vector<int> world_ranks;
      for (const int member : members) world_ranks.push_back(world_rank(member));
      offer = std::make_shared<detail::ThreadGroup>(group().world(), std::move(name), std::move(world_ranks));
    }
    scope.meet();
    thread_comm part;
    if (joins) {
      const auto place = std::find(members.begin(), members.end(), rank_) - members.begin();
      part = thread_comm(offer, static_cast<int>(place), deadline_);
    }
    scope.leave();
    if (leads) offer.reset();
    return part;
  }

  std::shared_ptr<detail::ThreadGroup> group_;
  int rank_ = -1;
  std::uint64_t epoch_ = 0;
  std::chrono::nanoseconds deadline_ = default_deadline;
  std::vector<const void*> inputs_;  // scratch of all_reduce
};

MGROUPS_END_NAMESPACE
