// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include <mgroups/comm/threads/call_scope.hpp>

namespace mg = mgroups;
using namespace std::chrono_literals;

namespace {

struct Pair {
  std::shared_ptr<mg::detail::ThreadWorld> world = std::make_shared<mg::detail::ThreadWorld>(2);
  mg::detail::ThreadGroup group{world, "pair", {0, 1}};
  std::uint64_t epochs[2] = {};

  mg::detail::ThreadSeat seat(int rank) { return {group, rank, epochs[rank], 20s}; }
};

}  // namespace

TEST_CASE("a failing rank unwinds only when nobody reads its buffers any more") {
  enum class End { broken, thrown, left };
  for (const End end : {End::broken, End::thrown, End::left}) {
    Pair pair;
    std::atomic<bool> unwound{false};
    std::thread giver([&] {
      try {
        mg::detail::CallScope scope(pair.seat(1), {.verb = mg::Verb::all_gather_v});
        scope.enter();
        scope.leave();  // waits for the reader, which never comes to this meeting
      } catch (const mg::PeerFailed&) {
        unwound = true;
      }
    });
    mg::detail::CallScope reader(pair.seat(0), {.verb = mg::Verb::all_gather_v});
    reader.enter();
    reader.begin_reading();
    if (end == End::broken) pair.group.break_with({mg::Errc::peer_failed, 0, "test"});
    if (end == End::thrown) pair.world->fail(0, std::make_exception_ptr(1));
    if (end == End::left) pair.world->leave(0);
    std::this_thread::sleep_for(20ms);
    CHECK_FALSE(unwound);
    reader.end_reading();
    giver.join();
    CHECK(unwound);
    // And who comes too late does not begin to read.
    CHECK_THROWS_AS(reader.begin_reading(), mg::PeerFailed);
  }
}

TEST_CASE("an exception of our own in the middle of a verb does not leave the peers waiting") {
  Pair pair;
  std::string text;
  std::thread peer([&] {
    try {
      mg::detail::CallScope scope(pair.seat(1), {.verb = mg::Verb::split});
      scope.enter();
      scope.leave();
    } catch (const mg::PeerFailed& e) {
      text = e.what();
    }
  });
  try {
    mg::detail::CallScope scope(pair.seat(0), {.verb = mg::Verb::split});
    scope.enter();
    throw std::bad_alloc();
  } catch (const std::bad_alloc&) {
  }
  peer.join();
  CHECK(text == "split on group pair failed on rank 1: rank 0 failed inside split");
}

TEST_CASE("times in words") {
  CHECK(mg::detail::seconds_text(1ms) == "1 ms");
  CHECK(mg::detail::seconds_text(999ms) == "999 ms");
  CHECK(mg::detail::seconds_text(1560ms) == "1.5 s");
  CHECK(mg::detail::seconds_text(5min) == "300.0 s");
}
