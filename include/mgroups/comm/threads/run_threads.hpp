// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <mgroups/comm/threads/group_state.hpp>
#include <mgroups/comm/threads/thread_comm.hpp>
#include <mgroups/comm/threads/world.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Options of `run_threads`.
struct ThreadOptions {
  std::chrono::nanoseconds deadline = default_deadline;  ///< of the world's verbs; see `thread_comm::set_deadline`
  std::string name = "world";                            ///< what error messages call the world
};

namespace detail {

struct ThreadAccess {
  static thread_comm make(std::shared_ptr<ThreadGroup> group, int rank, std::chrono::nanoseconds deadline) {
    return thread_comm(std::move(group), rank, deadline);
  }
};

// `start(body)` gives the std::thread that runs `body`.
template <class Start, class RankMain>
void run_ranks(int ranks, const ThreadOptions& options, Start start, RankMain rank_main) {
  if (ranks < 1) throw InvalidArgument(concat("run_threads of ", ranks, " ranks: a world has at least one rank"));
  const auto world = std::make_shared<ThreadWorld>(ranks);
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto group = std::make_shared<ThreadGroup>(world, options.name, std::move(members));

  // Ranks begin when all threads exist: where one cannot be started, none has done anything.
  enum Signal : int { waiting, begin, cancel };
  std::atomic<int> signal{waiting};
  const auto give = [&](int value) {
    signal = value;
    signal.notify_all();
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  try {
    for (int rank = 0; rank < ranks; ++rank) {
      threads.push_back(start([&, rank] {
        signal.wait(waiting);
        if (signal == cancel) return;
        try {
          auto comm = ThreadAccess::make(group, rank, options.deadline);
          rank_main(rank, comm);
        } catch (...) {
          world->fail(rank, std::current_exception());
          return;
        }
        world->leave(rank);
      }));
    }
  } catch (const std::system_error& error) {
    give(cancel);
    const auto started = threads.size();
    for (auto& thread : threads) thread.join();
    throw std::system_error(error.code(), concat("run_threads: only ", started, " of ", ranks, " threads could be started"));
  }
  give(begin);
  for (auto& thread : threads) thread.join();
  world->rethrow();
}

template <class F>
auto run_threads_with(int ranks, F& f, const ThreadOptions& options, auto start) {
  using Result = std::remove_cvref_t<std::invoke_result_t<F&, thread_comm&>>;
  if constexpr (std::is_void_v<Result>) {
    run_ranks(ranks, options, start, [&](int, thread_comm& comm) { f(comm); });
  } else {
    std::vector<std::optional<Result>> results(static_cast<std::size_t>(ranks < 0 ? 0 : ranks));
    run_ranks(ranks, options, start,
              [&](int rank, thread_comm& comm) { results[static_cast<std::size_t>(rank)].emplace(f(comm)); });
    std::vector<Result> out;
    out.reserve(results.size());
    for (auto& result : results) out.push_back(std::move(*result));
    return out;
  }
}

}  // namespace detail

/// Runs `f(world)` on `ranks` threads, `world` being each one's `thread_comm&`, and waits for all of them. Returns what
/// they returned, in rank order, or nothing where `f` returns void. `f` is shared by the threads, not copied.
///
/// An exception that leaves `f` on one rank makes the others' pending and later verbs throw PeerFailed; when all ranks have
/// ended, the first cause is thrown again, the very exception object and not what it made others throw.
/// Throws InvalidArgument for fewer than one rank, and std::system_error, no rank having begun, where threads cannot be
/// started.
template <class F>
  requires std::invocable<F&, thread_comm&>
auto run_threads(int ranks, F&& f, const ThreadOptions& options = {}) {
  return detail::run_threads_with(ranks, f, options, [](auto body) { return std::thread(std::move(body)); });
}

MGROUPS_END_NAMESPACE
