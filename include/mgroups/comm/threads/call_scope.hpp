// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include <mgroups/comm/threads/call.hpp>
#include <mgroups/comm/threads/group_state.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE
namespace detail {

// What a rank knows of its own place in a communicator.
struct ThreadSeat {
  ThreadGroup& group;
  int rank;
  std::uint64_t& epoch;  // meetings that it has come to
  std::chrono::nanoseconds deadline;
};

[[nodiscard]] inline std::string seconds_text(std::chrono::nanoseconds time) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  if (milliseconds < 1000) return concat(milliseconds, " ms");
  return concat(milliseconds / 1000, '.', milliseconds / 100 % 10, " s");
}

inline void copy_bytes(void* to, const void* from, std::size_t n) {
  if (n > 0) std::memcpy(to, from, n);
}

// One call of one rank. However it ends, no peer reads the rank's buffers afterwards: either all have met at its end, or the
// communicator is broken and those who were reading have finished.
class CallScope {
 public:
  // Fails at once on a communicator on which a call has failed before.
  CallScope(const ThreadSeat& seat, const Call& call)
      : group_(seat.group),
        slot_(seat.group.slot(seat.rank)),
        rank_(seat.rank),
        epoch_(seat.epoch),
        deadline_(seat.deadline),
        call_(call) {
    if (group_.broken()) fail(group_.blame());
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
  ~CallScope() {
    if (settled_) return;
    // Something of ours threw in the middle of a verb; peers must not wait for the rest of it.
    try {
      group_.break_with(
          {Errc::peer_failed, world_rank(), concat("rank ", world_rank(), " failed inside ", name(call_.verb))});
    } catch (...) {
      group_.break_with({Errc::peer_failed, world_rank(), {}});
    }
    group_.wait_for_readers(rank_);
  }

  // Publishes the call, and `payload_bytes` of payload for verbs that need no second meeting; returns when every rank has
  // published its own and all agree. Throws MismatchedCall where they do not, on every rank alike.
  void enter(const void* payload = nullptr, std::size_t payload_bytes = 0) {
    const std::uint64_t epoch = epoch_ + 1;
    parity_ = epoch % 2;
    slot_.calls[parity_] = call_;
    copy_bytes(slot_.payload[parity_], payload, payload_bytes);
    meet();
    for (int r = 1; r < group_.size(); ++r) {
      if (!agree(call(0), call(r))) {
        throw_mismatch(concat("rank ", group_.world_rank(r), " called ", describe(call(r)), " while rank ",
                              group_.world_rank(0), " called ", describe(call(0)), " on group ", group_.name()));
      }
    }
  }

  // Every rank comes, or the call fails.
  void meet() {
    const std::uint64_t epoch = ++epoch_;
    group_.arrive(rank_, epoch);
    wait([&] { return group_.met(epoch); }, [&] { return group_.deserter(epoch); },
         [&] {
           const auto missing = group_.missing(epoch);
           return missing.size() == 1 ? concat("rank ", missing[0], ", which has")
                                      : concat("ranks ", list_text(missing), ", which have");
         });
  }

  // From here to `end_reading` the buffers of peers are there to be read.
  void begin_reading() {
    slot_.reading = true;
    if (group_.broken()) fail(group_.blame());
  }
  void end_reading() { slot_.reading = false; }

  // The rank is done with its peers' buffers; returns when they are done with its own.
  void leave() {
    end_reading();
    meet();
    settled_ = true;
  }
  // For calls whose buffers nobody reads.
  void finish() { settled_ = true; }

  [[nodiscard]] const Call& call(int rank) { return group_.slot(rank).calls[parity_]; }
  [[nodiscard]] const std::byte* payload(int rank) { return group_.slot(rank).payload[parity_]; }

  // For all ranks alike, when none is reading any more.
  [[noreturn]] void throw_mismatch(const std::string& sentence) {
    settled_ = true;
    throw MismatchedCall(sentence, context(world_rank()));
  }

  // Waits for `done`. `absentee` names a rank of the group that has left and cannot bring it about; `missing` is who is
  // waited for, should the deadline pass.
  template <class Done, class Absentee, class Missing>
  void wait(Done done, Absentee absentee, Missing missing) {
    const ThreadWorld& world = *group_.world();
    std::chrono::nanoseconds waited{};
    const auto stop = [&] { return done() || group_.broken() || world.failed() || absentee() >= 0; };
    slot_.parking.wait(stop, deadline_, world.spin(), waited);
    // Asked again in this order: what a rank did before it left or failed counts as done.
    if (done()) return;
    if (group_.broken()) fail(group_.blame());
    if (world.failed()) fail(world.blame());
    if (const int gone = absentee(); gone >= 0) {
      if (done()) return;
      const int at = group_.world_rank(gone);
      fail({Errc::peer_failed, at, concat("rank ", at, " has left: its function returned without joining in")});
    }
    expire(waited, missing());
  }

 private:
  [[nodiscard]] int world_rank() const { return group_.world_rank(rank_); }
  [[nodiscard]] ErrorContext context(int at) const { return {std::string(name(call_.verb)), group_.name(), at, {}, {}}; }

  void give_up(const Blame& blame) {
    group_.break_with(blame);
    group_.wait_for_readers(rank_);
    settled_ = true;
  }

  [[noreturn]] void fail(const Blame& blame) {
    give_up(blame);
    if (blame.code != Errc::peer_failed) throw_error(blame.code, blame.text, context(world_rank()));
    throw PeerFailed(
        concat(describe(call_), " on group ", group_.name(), " failed on rank ", world_rank(), ": ", blame.text),
        context(blame.rank));
  }

  [[noreturn]] void expire(std::chrono::nanoseconds waited, const std::string& missing) {
    const std::string sentence = concat(
        describe(call_), " on group ", group_.name(), ": rank ", world_rank(), " waited ", seconds_text(waited), " for ",
        missing, " not called it or not finished; raise the deadline with set_deadline if they are only slow");
    const Blame blame{Errc::peer_failed, world_rank(), concat("rank ", world_rank(), " gave up: ", sentence)};
    group_.world()->suspect(blame);
    give_up(blame);
    throw TimeoutError(sentence, context(world_rank()));
  }

  ThreadGroup& group_;
  Slot& slot_;
  const int rank_;
  std::uint64_t& epoch_;
  const std::chrono::nanoseconds deadline_;
  const Call call_;
  std::size_t parity_ = 0;
  bool settled_ = false;
};

}  // namespace detail
MGROUPS_END_NAMESPACE
