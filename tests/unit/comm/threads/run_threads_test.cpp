// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <mgroups/comm/threads.hpp>

namespace mg = mgroups;

TEST_CASE("results come back in rank order") {
  CHECK(mg::run_threads(4, [](auto& world) { return world.rank() * 10; }) == std::vector<int>{0, 10, 20, 30});
  // vector<bool> packs its elements, which threads must not write at once.
  CHECK(mg::run_threads(3, [](auto& world) { return world.rank() == 1; }) == std::vector<bool>{false, true, false});
  // Neither copyable nor default-constructible.
  struct Owned {
    explicit Owned(int v) : value(std::make_unique<int>(v)) {}
    std::unique_ptr<int> value;
  };
  const auto owned = mg::run_threads(2, [](auto& world) { return Owned(world.size() + world.rank()); });
  CHECK(*owned[1].value == 3);
  std::atomic<int> calls{0};
  static_assert(std::is_void_v<decltype(mg::run_threads(1, [](mg::thread_comm&) {}))>);
  mg::run_threads(7, [&](mg::thread_comm& world) { calls += world.size(); });
  CHECK(calls == 49);
}

TEST_CASE("worlds nest and do not disturb each other") {
  const auto sums = mg::run_threads(2, [](auto& outer) {
    const auto inner = mg::run_threads(3, [](auto& world) {
      int x = world.rank();
      world.all_reduce(std::span(&x, 1), mg::sum);
      return x;
    });
    int x = inner[0];
    outer.all_reduce(std::span(&x, 1), mg::sum);
    return x;
  });
  CHECK(sums == std::vector<int>{6, 6});
}

TEST_CASE("fewer than one rank") {
  CHECK_THROWS_WITH_AS(mg::run_threads(0, [](auto&) {}), "run_threads of 0 ranks: a world has at least one rank",
                       mg::InvalidArgument);
  CHECK_THROWS_AS((void)mg::run_threads(-3, [](auto&) { return 1; }), mg::InvalidArgument);
}

TEST_CASE("the first cause is thrown again: the same object, and no echo of it") {
  using Cause = std::unique_ptr<std::string>;  // cannot be copied
  for (const int ranks : {1, 2, 3, 4, 7}) {
    const std::string* thrown = nullptr;
    try {
      mg::run_threads(ranks, [&](auto& world) {
        if (world.rank() == ranks - 1) {
          auto cause = std::make_unique<std::string>("boom");
          thrown = cause.get();
          throw std::move(cause);
        }
        world.barrier();
      });
      FAIL("nothing was thrown");
    } catch (const Cause& cause) {
      CHECK(cause.get() == thrown);
      CHECK(*cause == "boom");
    }
  }
}

TEST_CASE("options") {
  CHECK(mg::run_threads(1, [](auto& world) { return std::string(world.name()); })[0] == "world");
  const auto deadlines = mg::run_threads(2,
                                         [](auto& world) {
                                           CHECK(world.name() == "pool");
                                           return world.duplicate().deadline();
                                         },
                                         {.deadline = std::chrono::seconds(3), .name = "pool"});
  CHECK(deadlines[0] == std::chrono::seconds(3));
}

TEST_CASE("a thread that cannot be started: no rank begins") {
  for (const int limit : {0, 1, 3}) {
    std::atomic<int> begun{0};
    int started = 0;
    const auto start = [&](auto body) {
      if (started == limit) throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
      ++started;
      return std::thread(std::move(body));
    };
    try {
      mg::detail::run_ranks(4, {}, start, [&](int, mg::thread_comm&) { ++begun; });
      FAIL("nothing was thrown");
    } catch (const std::system_error& e) {
      CHECK(e.code() == std::errc::resource_unavailable_try_again);
      CHECK(std::string(e.what()).find("only " + std::to_string(limit) + " of 4 threads") != std::string::npos);
    }
    CHECK(begun == 0);
  }
}
