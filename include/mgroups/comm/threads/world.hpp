// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <mgroups/comm/threads/parking.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE
namespace detail {

// Why calls of others cannot complete: the world rank at fault and a phrase that begins with it.
struct Blame {
  Errc code = Errc::peer_failed;
  int rank = -1;
  std::string text;
};

[[nodiscard]] inline std::string exception_text(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

// Something with threads asleep in it.
class Wakeable {
 public:
  virtual void wake_all() = 0;

 protected:
  Wakeable() = default;
  ~Wakeable() = default;
};

// What the ranks of one `run_threads` share: who has left, who has thrown, and every communicator derived from it.
class ThreadWorld {
 public:
  explicit ThreadWorld(int size)
      : size_(size),
        spin_(SpinPolicy::for_ranks(size)),
        left_(std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(size))) {
    failures_.reserve(static_cast<std::size_t>(size));
  }
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;

  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] SpinPolicy spin() const noexcept { return spin_; }
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  [[nodiscard]] bool someone_left() const noexcept { return someone_left_; }
  [[nodiscard]] bool left(int rank) const noexcept { return left_[static_cast<std::size_t>(rank)]; }

  // The rank's function has returned.
  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    left_[static_cast<std::size_t>(rank)] = true;
    someone_left_ = true;
    wake_everyone();
  }

  // An exception has left the rank's function.
  void fail(int rank, std::exception_ptr error) noexcept {
    const std::lock_guard lock(mutex_);
    if (!blame_) {
      try {
        blame_ = blame_for(rank, error);
      } catch (...) {  // no memory for the text
        blame_ = Blame{Errc::peer_failed, rank, {}};
      }
    }
    failures_.push_back({std::move(error), blame_->rank != rank});
    failed_ = true;
    wake_everyone();
  }

  // A rank has given up waiting. Should others tell of it before it does itself, this is the cause.
  void suspect(const Blame& blame) {
    const std::lock_guard lock(mutex_);
    if (!suspect_) suspect_ = blame;
  }

  // Who failed first; only once `failed()`.
  [[nodiscard]] Blame blame() const {
    const std::lock_guard lock(mutex_);
    return *blame_;
  }

  // Throws again what ended the run: the first exception that is not an echo of another rank's. All ranks have ended.
  void rethrow() const {
    const std::lock_guard lock(mutex_);
    if (failures_.empty()) return;
    const auto cause = std::find_if(failures_.begin(), failures_.end(), [](const Failure& f) { return !f.echo; });
    std::rethrow_exception(cause != failures_.end() ? cause->error : failures_.front().error);
  }

  void add(Wakeable& group) {
    const std::lock_guard lock(mutex_);
    groups_.push_back(&group);
  }
  void remove(Wakeable& group) noexcept {
    const std::lock_guard lock(mutex_);
    groups_.erase(std::find(groups_.begin(), groups_.end(), &group));
  }

 private:
  struct Failure {
    std::exception_ptr error;
    bool echo;
  };

  [[nodiscard]] Blame blame_for(int rank, const std::exception_ptr& error) const {
    try {
      std::rethrow_exception(error);
    } catch (const PeerFailed& e) {
      if (suspect_) return *suspect_;
      return {Errc::peer_failed, rank, concat("rank ", rank, " threw: ", e.what())};
    } catch (...) {
      return {Errc::peer_failed, rank, concat("rank ", rank, " threw: ", exception_text(error))};
    }
  }

  void wake_everyone() {
    for (Wakeable* group : groups_) group->wake_all();
  }

  const int size_;
  const SpinPolicy spin_;
  std::unique_ptr<std::atomic<bool>[]> left_;
  std::atomic<bool> someone_left_{false};
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::optional<Blame> blame_;
  std::optional<Blame> suspect_;
  std::vector<Failure> failures_;
  std::vector<Wakeable*> groups_;
};

}  // namespace detail
MGROUPS_END_NAMESPACE
