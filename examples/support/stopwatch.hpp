// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <chrono>
#include <ctime>

/// How long something took.
struct Seconds {
  double wall = 0;
  double cpu = 0;  ///< of all threads of this process, in user and system mode
};

/// Runs from its making on.
class Stopwatch {
 public:
  [[nodiscard]] Seconds read() const {
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start_;
    return {wall.count(), cpu_now() - cpu_start_};
  }

 private:
  static double cpu_now() {
    std::timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }

  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double cpu_start_ = cpu_now();
};
