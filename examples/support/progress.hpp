// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

/// A line on a terminal that says how far a step has come, redrawn while the step runs and wiped at its end. Draws nothing
/// for steps under a second, and nothing at all where standard error is no terminal.
class Progress {
 public:
  Progress(std::string step, std::uint64_t total_bytes) : step_(std::move(step)), total_(total_bytes) {
    if (::isatty(STDERR_FILENO) == 1) painter_ = std::thread([this] { paint(); });
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    if (!painter_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_one();
    painter_.join();
  }

  /// Add to it what has been done.
  std::atomic<std::uint64_t>& bytes() { return bytes_; }

 private:
  void paint() {
    using namespace std::chrono_literals;
    const auto start = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    bool painted = false;
    while (!wake_.wait_for(lock, painted ? 200ms : 1000ms, [&] { return done_; })) {
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      const double done = static_cast<double>(bytes_.load());
      std::fprintf(stderr, "\r\033[K%s: %3.0f %%, %.2f GB/s", step_.c_str(),
                   total_ == 0 ? 0.0 : 100.0 * done / static_cast<double>(total_), done / seconds / 1e9);
      std::fflush(stderr);
      painted = true;
    }
    if (painted) std::fputs("\r\033[K", stderr);
  }

  std::string step_;
  std::uint64_t total_;
  std::atomic<std::uint64_t> bytes_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread painter_;
};
