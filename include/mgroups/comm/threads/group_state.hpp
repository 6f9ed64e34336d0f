// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <mgroups/comm/threads/call.hpp>
#include <mgroups/comm/threads/parking.hpp>
#include <mgroups/comm/threads/world.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE
namespace detail {

// Payloads up to this size travel inside the slot: one meeting of the ranks then suffices, since nobody's buffer is read.
inline constexpr std::size_t inline_bytes = 1024;

class ThreadGroup;

// What one rank of a communicator shows the others.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> epoch{0};  // the latest meeting that this rank has come to
  std::atomic<bool> reading{false};     // it may be reading a peer's buffer
  Parking parking;
  // Written before the rank comes to a meeting, read by all after it. Two, used in turn: a rank can only overwrite one after
  // the meeting that follows, to which every reader has come.
  Call calls[2];
  std::shared_ptr<ThreadGroup> offer;  // a communicator made by this rank for others to take

  // A message offered: `mail` is the destination, or what became of it.
  static constexpr int no_mail = -1, mail_taken = -2, mail_refused = -3;
  std::atomic<int> mail{no_mail};
  Call sent;
  Call refusal;  // the receiver's call that did not fit

  alignas(64) std::byte payload[2][inline_bytes];
};

// A communicator as its ranks share it.
class ThreadGroup final : public Wakeable {
 public:
  ThreadGroup(std::shared_ptr<ThreadWorld> world, std::string name, std::vector<int> members)
      : world_(std::move(world)),
        name_(std::move(name)),
        members_(std::move(members)),
        slots_(std::make_unique<Slot[]>(members_.size())) {
    world_->add(*this);
  }
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;
  ~ThreadGroup() { world_->remove(*this); }

  [[nodiscard]] const std::shared_ptr<ThreadWorld>& world() const noexcept { return world_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(members_.size()); }
  [[nodiscard]] int world_rank(int rank) const noexcept { return members_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] Slot& slot(int rank) noexcept { return slots_[static_cast<std::size_t>(rank)]; }

  // Comes to meeting `epoch` without waiting for the others; the last one opens it.
  void arrive(int rank, std::uint64_t epoch) {
    slot(rank).epoch = epoch;
    // Nobody comes to a meeting before all have come to the previous one, so the total tells who is last.
    if (arrived_.fetch_add(1) + 1 != epoch * static_cast<std::uint64_t>(size())) return;
    open_ = epoch;
    for (int r = 0; r < size(); ++r) {
      if (r != rank) slot(r).parking.wake();
    }
  }
  [[nodiscard]] bool met(std::uint64_t epoch) const noexcept { return open_ >= epoch; }

  // A member that has left the world and will not come to meeting `epoch`; -1 where there is none.
  [[nodiscard]] int deserter(std::uint64_t epoch) noexcept {
    if (!world_->someone_left()) return -1;
    for (int r = 0; r < size(); ++r) {
      // In this order: a rank that left after it came is none.
      if (world_->left(world_rank(r)) && slot(r).epoch < epoch) return r;
    }
    return -1;
  }

  // World ranks that have not come to meeting `epoch`.
  [[nodiscard]] std::vector<int> missing(std::uint64_t epoch) {
    std::vector<int> ranks;
    for (int r = 0; r < size(); ++r) {
      if (slot(r).epoch < epoch) ranks.push_back(world_rank(r));
    }
    return ranks;
  }

  // Makes every pending and later call fail. The first cause stays.
  void break_with(const Blame& blame) {
    {
      const std::lock_guard lock(mutex_);
      if (broken_) return;
      blame_ = blame;
      broken_ = true;
    }
    wake_all();
  }
  [[nodiscard]] bool broken() const noexcept { return broken_; }
  [[nodiscard]] Blame blame() const {
    const std::lock_guard lock(mutex_);
    return blame_;
  }

  // Until no peer can be reading this rank's buffers. Only once the group is broken: a peer that starts to read later says
  // so in `reading` first and then sees that it is broken.
  void wait_for_readers(int rank) {
    slot(rank).reading = false;
    for (int r = 0; r < size(); ++r) {
      while (slot(r).reading) std::this_thread::yield();
    }
  }

  void wake_all() override {
    for (int r = 0; r < size(); ++r) slot(r).parking.wake();
  }

  // A group that some of its members are making: those that have called create_group so far.
  struct Forming {
    std::vector<int> members;  // ranks of this communicator
    std::string name;
    std::shared_ptr<ThreadGroup> group;
    std::vector<int> joined;
  };

  // Joins the earliest group of the same members that `rank` has not joined yet, or begins one. `fault` says how the
  // call differs from that of whoever began it.
  [[nodiscard]] std::shared_ptr<ThreadGroup> join(std::vector<int> members, const std::string& name, int rank,
                                                  std::string& fault) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(forming_.begin(), forming_.end(), [&](const Forming& f) {
      return std::is_permutation(f.members.begin(), f.members.end(), members.begin(), members.end()) &&
             std::find(f.joined.begin(), f.joined.end(), rank) == f.joined.end();
    });
    if (found == forming_.end()) {
      std::vector<int> world_ranks;
      for (const int member : members) world_ranks.push_back(world_rank(member));
      auto group = std::make_shared<ThreadGroup>(world_, name, std::move(world_ranks));
      if (members.size() > 1) forming_.push_back({std::move(members), name, group, {rank}});
      return group;
    }
    if (found->members != members || found->name != name) {
      fault = concat("rank ", world_rank(rank), " called create_group of ", list_text(members), " as ", name, " while rank ",
                     world_rank(found->joined.front()), " called create_group of ", list_text(found->members), " as ",
                     found->name, " on group ", name_);
    }
    auto group = found->group;
    found->joined.push_back(rank);
    if (found->joined.size() == members.size()) forming_.erase(found);
    return group;
  }

 private:
  const std::shared_ptr<ThreadWorld> world_;
  const std::string name_;
  const std::vector<int> members_;
  const std::unique_ptr<Slot[]> slots_;
  alignas(64) std::atomic<std::uint64_t> arrived_{0};
  alignas(64) std::atomic<std::uint64_t> open_{0};
  alignas(64) std::atomic<bool> broken_{false};
  mutable std::mutex mutex_;
  Blame blame_;
  std::vector<Forming> forming_;
};

}  // namespace detail
MGROUPS_END_NAMESPACE
