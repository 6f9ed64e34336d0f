// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE
namespace detail {

// How long a wait looks before it sleeps. A peer that runs on another core answers within a microsecond; one that has no
// core yet needs ours, so that yielding is then the fastest way to let it answer.
struct SpinPolicy {
  int looks;
  int yields;

  [[nodiscard]] static SpinPolicy for_ranks(int ranks) {
    const bool crowded = static_cast<unsigned>(ranks) > std::max(1u, std::thread::hardware_concurrency());
    return crowded ? SpinPolicy{8, 32} : SpinPolicy{400, 16};
  }
};

inline void relax() {
#if defined(__x86_64__) || defined(_M_X64)
  _mm_pause();
#endif
}

// The place where one thread waits for others. `stop` reads atomics only, all of them sequentially consistent: whoever
// changes one of them calls `wake` afterwards, and either sees `parked_` or has its change seen by `stop`.
class Parking {
 public:
  // True as soon as `stop()` is; false once `deadline` has passed, with the time waited.
  template <class Stop>
  bool wait(Stop stop, std::chrono::nanoseconds deadline, SpinPolicy spin, std::chrono::nanoseconds& waited) {
    for (int i = 0; i < spin.looks; ++i) {
      if (stop()) return true;
      relax();
    }
    for (int i = 0; i < spin.yields; ++i) {
      if (stop()) return true;
      std::this_thread::yield();
    }
    using clock = std::chrono::steady_clock;
    const auto begin = clock::now();
    // Capped so that "for ever" does not overflow the clock.
    const auto limit = begin + std::min<std::chrono::nanoseconds>(deadline, std::chrono::hours(24 * 365));
    std::unique_lock lock(mutex_);
    parked_ = true;
    while (!stop()) {
      if (wakeup_.wait_until(lock, limit) == std::cv_status::timeout && !stop()) {
        parked_ = false;
        waited = clock::now() - begin;
        return false;
      }
    }
    parked_ = false;
    return true;
  }

  void wake() {
    if (!parked_) return;
    { const std::lock_guard lock(mutex_); }
    wakeup_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable wakeup_;
  std::atomic<bool> parked_{false};
};

}  // namespace detail
MGROUPS_END_NAMESPACE
