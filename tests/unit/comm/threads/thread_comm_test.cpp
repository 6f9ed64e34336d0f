// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <mgroups/comm/threads.hpp>

namespace mg = mgroups;
using namespace std::chrono_literals;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// What each rank of `f` got: the error's text behind its type, or "ok".
std::vector<std::string> outcomes(int ranks, const std::function<void(mg::thread_comm&)>& f,
                                  std::chrono::nanoseconds deadline = 20s) {
  return mg::run_threads(ranks,
                         [&](mg::thread_comm& world) -> std::string {
                           try {
                             f(world);
                             return "ok";
                           } catch (const mg::MismatchedCall& e) {
                             return std::string("mismatch: ") + e.what();
                           } catch (const mg::PeerFailed& e) {
                             return std::string("peer: ") + e.what();
                           } catch (const mg::TimeoutError& e) {
                             return std::string("timeout: ") + e.what();
                           }
                         },
                         {.deadline = deadline});
}

// What each rank got when the exception of one rank, or its leaving, ended the run. Errors leave the ranks' functions.
std::vector<std::string> escapes(int ranks, const std::function<void(mg::thread_comm&)>& f) {
  std::vector<std::string> seen(static_cast<std::size_t>(ranks), "ok");
  try {
    mg::run_threads(ranks,
                    [&](mg::thread_comm& world) {
                      try {
                        f(world);
                      } catch (const mg::PeerFailed& e) {
                        CHECK(e.context().rank >= 0);
                        CHECK(!e.context().verb.empty());
                        CHECK(!e.context().group.empty());
                        seen[static_cast<std::size_t>(world.rank())] = e.what();
                        throw;
                      }
                    },
                    {.deadline = 20s});
  } catch (const std::exception&) {
  }
  return seen;
}

template <class T>
std::vector<T> filled(std::size_t n) {
  return std::vector<T>(n, T{1});
}

}  // namespace

TEST_CASE("mismatched calls are named by every rank, and the communicator can still be used") {
  struct Case {
    std::function<void(mg::thread_comm&)> most, odd;
    std::string odd_text, most_text;
  };
  static std::vector<std::size_t> ones{1, 1, 1};
  const std::vector<Case> cases = {
      {[](auto& w) {
         auto v = filled<float>(4);
         w.broadcast(v, 0);
       },
       [](auto& w) {
         auto v = filled<float>(4);
         w.all_reduce(v, mg::sum);
       },
       "all_reduce of 4 float32 (sum)", "broadcast of 4 float32 from root 0"},
      {[](auto& w) {
         auto v = filled<float>(4);
         w.all_reduce(v, mg::sum);
       },
       [](auto& w) {
         auto v = filled<float>(4);
         w.all_reduce(v, mg::max);
       },
       "all_reduce of 4 float32 (max)", "all_reduce of 4 float32 (sum)"},
      {[](auto& w) {
         auto v = filled<float>(4000);
         w.all_reduce(v, mg::sum);
       },
       [](auto& w) {
         auto v = filled<float>(5);
         w.all_reduce(v, mg::sum);
       },
       "all_reduce of 5 float32 (sum)", "all_reduce of 4000 float32 (sum)"},
      {[](auto& w) {
         auto v = filled<int>(4);
         w.all_reduce(v, mg::sum);
       },
       [](auto& w) {
         auto v = filled<float>(4);
         w.all_reduce(v, mg::sum);
       },
       "all_reduce of 4 float32 (sum)", "all_reduce of 4 int32 (sum)"},
      {[](auto& w) {
         auto v = filled<int>(4);
         w.broadcast(v, 0);
       },
       [](auto& w) {
         auto v = filled<int>(4);
         w.broadcast(v, 2);
       },
       "broadcast of 4 int32 from root 2", "broadcast of 4 int32 from root 0"},
      {[](auto& w) {
         auto v = filled<int>(2), out = filled<int>(6);
         w.all_gather(v, out);
       },
       [](auto& w) {
         auto v = filled<int>(2000), out = filled<int>(6000);
         w.all_gather(v, out);
       },
       "all_gather of 2000 int32", "all_gather of 2 int32"},
      {[](auto& w) { w.barrier(); }, [](auto& w) { (void)w.duplicate(); }, "duplicate", "barrier"},
      {[](auto& w) { (void)w.split(0, 0); },
       [](auto& w) {
         auto v = filled<int>(1), out = filled<int>(3);
         w.all_gather_v(v, out, ones);
       },
       "all_gather_v of 1 int32", "split"},
  };
  for (int odd_rank = 0; odd_rank < 3; ++odd_rank) {
    for (const Case& c : cases) {
      const auto got = outcomes(3, [&](mg::thread_comm& world) {
        std::string text;
        try {
          (world.rank() == odd_rank ? c.odd : c.most)(world);
        } catch (const mg::MismatchedCall& e) {
          text = e.what();
        }
        int x = world.rank();
        world.all_reduce(std::span(&x, 1), mg::sum);
        CHECK(x == 3);
        throw mg::MismatchedCall(text);
      });
      // Compared with rank 0, whose call is the odd one if it is rank 0's.
      const std::string want = odd_rank == 0
                                   ? "mismatch: rank 1 called " + c.most_text + " while rank 0 called " + c.odd_text
                                   : "mismatch: rank " + std::to_string(odd_rank) + " called " + c.odd_text +
                                         " while rank 0 called " + c.most_text;
      for (const auto& text : got) CHECK(text == want + " on group world");
    }
  }
}

TEST_CASE("counts of v-verbs that do not fit") {
  auto got = outcomes(3, [](mg::thread_comm& world) {
    // Rank 2 believes that rank 0 gives two.
    std::vector<std::size_t> counts{world.rank() == 2 ? 2u : 1u, 1, 1};
    auto in = filled<float>(1), out = filled<float>(world.rank() == 2 ? 4 : 3);
    world.all_gather_v(in, out, counts);
  });
  for (const auto& text : got) {
    CHECK(text == "mismatch: rank 2 called all_gather_v with counts [2, 1, 1] while rank 0 gave [1, 1, 1] on group world");
  }
  got = outcomes(3, [](mg::thread_comm& world) {
    std::vector<std::size_t> sends{1, 1, 1}, receives{1, world.rank() == 2 ? 3u : 1u, 1};
    auto in = filled<float>(3), out = filled<float>(world.rank() == 2 ? 5 : 3);
    world.all_to_all_v(in, sends, out, receives);
  });
  for (const auto& text : got) {
    CHECK(text == "mismatch: rank 1 called all_to_all_v with 1 float32 for rank 2 while rank 2 expects 3 on group world");
  }
}

TEST_CASE("messages that do not fit are told to both ends") {
  const auto got = outcomes(3, [](mg::thread_comm& world) {
    auto four = filled<float>(4);
    auto five = filled<float>(5);
    std::string text;
    try {
      if (world.rank() == 1) world.send(four, 2);
      if (world.rank() == 2) world.recv(five, 1);
    } catch (const mg::MismatchedCall& e) {
      text = e.what();
    }
    world.barrier();
    if (!text.empty()) throw mg::MismatchedCall(text);
  });
  CHECK(got[0] == "ok");
  CHECK(got[1] ==
        "mismatch: rank 2 called recv of 5 float32 from rank 1 while rank 1 called send of 4 float32 to rank 2 on "
        "group world");
  CHECK(got[2] == got[1]);
}

TEST_CASE("a rank that throws makes waiting peers fail in every communicator, with its text") {
  for (const int ranks : {2, 3, 4, 7}) {
    // Each waits somewhere else.
    const auto failed = escapes(ranks, [&](mg::thread_comm& world) {
      auto parity = world.split(world.rank() % 2, 0);
      auto copy = world.duplicate();
      if (world.rank() == ranks - 1) throw std::runtime_error("disk on fire");
      std::vector<float> data(5000);
      if (world.rank() % 4 == 0) copy.all_reduce(data, mg::sum);
      if (world.rank() % 4 == 1) world.recv(data, 0);
      if (world.rank() % 4 == 2) world.send(data, 0);
      if (world.rank() % 4 == 3) (void)copy.split(0, 0);
      world.barrier();
    });
    for (int r = 0; r + 1 < ranks; ++r) {
      const auto& text = failed[static_cast<std::size_t>(r)];
      CHECK_MESSAGE(contains(text, "rank " + std::to_string(ranks - 1) + " threw: disk on fire"), text);
      CHECK_MESSAGE(contains(text, "on group world failed on rank " + std::to_string(r)), text);
    }
  }
}

TEST_CASE("the rethrown cause is the user's exception, whatever the echoes") {
  for (int round = 0; round < 20; ++round) {
    CHECK_THROWS_WITH_AS(mg::run_threads(4,
                                         [](auto& world) {
                                           world.barrier();
                                           if (world.rank() == 2) throw std::out_of_range("mine");
                                           world.barrier();
                                         }),
                         "mine", std::out_of_range);
  }
}

TEST_CASE("leaving is an error for those who need the rank, and for nobody else") {
  const auto fine = outcomes(4, [](mg::thread_comm& world) {
    auto pair = world.split(world.rank() / 2, 0);
    pair.barrier();
    if (world.rank() < 2) {
      std::this_thread::sleep_for(5ms);
      pair.barrier();  // ranks 2 and 3 are gone by now
    }
  });
  CHECK(fine == std::vector<std::string>(4, "ok"));

  auto got = outcomes(3, [](mg::thread_comm& world) {
    if (world.rank() == 1) return;
    world.barrier();
  });
  CHECK(got[0] ==
        "peer: barrier on group world failed on rank 0: rank 1 has left: its function returned without joining in");
  CHECK(contains(got[2], "rank 1 has left"));

  got = outcomes(3, [](mg::thread_comm& world) {
    int x = 0;
    if (world.rank() == 0) world.recv(std::span(&x, 1), 1);
    if (world.rank() == 2) {
      const std::vector<int> members{1, 2};
      (void)world.create_group(members, "late");
    }
  });
  CHECK(got[0] ==
        "peer: recv of 1 int32 from rank 1 on group world failed on rank 0: rank 1 has left: its function returned "
        "without joining in");
  CHECK(contains(got[2], "failed on rank 2: rank 1 has left"));
}

TEST_CASE("a deadline names the missing ranks and the time, and ends the others' waits too") {
  std::atomic<int> failed{0};
  const auto begin = std::chrono::steady_clock::now();
  const auto texts = outcomes(
      4,
      [&](mg::thread_comm& world) {
        auto copy = world.duplicate();
        std::vector<double> data(300);
        if (world.rank() == 1 || world.rank() == 2) {
          while (failed < 2) std::this_thread::yield();
          return copy.barrier();
        }
        struct Count {
          std::atomic<int>& of;
          ~Count() { ++of; }
        } count{failed};
        copy.all_reduce(data, mg::sum);
      },
      100ms);
  CHECK(std::chrono::steady_clock::now() - begin < 60s);
  int expired = 0;
  for (const int r : {0, 3}) {
    const auto& text = texts[static_cast<std::size_t>(r)];
    if (contains(text, "timeout: all_reduce of 300 float64 (sum) on group world: rank ")) {
      ++expired;
      CHECK_MESSAGE(contains(text, " waited "), text);
      CHECK_MESSAGE(contains(text, " for ranks [1, 2"), text);
    } else {
      CHECK_MESSAGE(contains(text, "gave up: all_reduce"), text);
    }
  }
  CHECK(expired >= 1);
  CHECK(contains(texts[1], "gave up"));
  CHECK(contains(texts[2], "gave up"));
}

TEST_CASE("a deadline holds for both directions of a message, and the run rethrows it rather than an echo") {
  for (const bool sends : {true, false}) {
    try {
      mg::run_threads(2,
                      [&](auto& world) {
                        int x = 0;
                        if (world.rank() == 1) return world.barrier();
                        sends ? world.send(std::span(&x, 1), 1) : world.recv(std::span(&x, 1), 1);
                      },
                      {.deadline = 40ms});
      FAIL("nothing was thrown");
    } catch (const mg::TimeoutError& e) {
      CHECK(!e.context().verb.empty());
      CHECK(contains(e.what(), "raise the deadline"));
    }
  }
}

TEST_CASE("set_deadline is per communicator, from not waiting at all to for ever") {
  const auto got = outcomes(2, [](mg::thread_comm& world) {
    auto copy = world.duplicate();
    copy.set_deadline(0ns);
    if (world.rank() == 0) CHECK_THROWS_AS(copy.barrier(), mg::TimeoutError);
    world.barrier();
    CHECK_THROWS_AS(copy.barrier(), mg::PeerFailed);  // it stays broken
    world.barrier();
  });
  CHECK(got == std::vector<std::string>(2, "ok"));
  const auto forever = outcomes(2, [](mg::thread_comm& world) {
    world.set_deadline(std::chrono::nanoseconds::max());
    if (world.rank() == 0) std::this_thread::sleep_for(5ms);
    world.barrier();
  });
  CHECK(forever == std::vector<std::string>(2, "ok"));
}

TEST_CASE("abort breaks one communicator with a cause and leaves the others") {
  const auto got = outcomes(3, [](mg::thread_comm& world) {
    auto copy = world.duplicate();
    std::string text = "nothing";
    if (world.rank() == 1) copy.abort("cannot write: no space left");
    try {
      copy.barrier();
    } catch (const mg::PeerFailed& e) {
      text = e.what();
    }
    world.barrier();
    CHECK_MESSAGE(contains(text, "rank 1 aborted: cannot write: no space left"), text);
  });
  CHECK(got == std::vector<std::string>(3, "ok"));
}

TEST_CASE("members who disagree about their group are told") {
  for (const bool by_name : {true, false}) {
    const auto got = outcomes(2, [&](mg::thread_comm& world) {
      std::vector<int> members{0, 1};
      if (!by_name && world.rank() == 1) members = {1, 0};
      (void)world.create_group(members, by_name && world.rank() == 1 ? "cp" : "tp");
    });
    for (const auto& text : got) {
      CHECK_MESSAGE(contains(text, "mismatch: rank "), text);
      CHECK_MESSAGE(contains(text, by_name ? "[0, 1] as cp" : "[1, 0] as tp"), text);
      CHECK_MESSAGE(contains(text, "[0, 1] as tp"), text);
    }
  }
}

TEST_CASE("ranks in messages are world ranks") {
  const auto got = outcomes(4, [](mg::thread_comm& world) {
    if (world.rank() < 2) return;
    auto tp = world.create_group(std::vector<int>{3, 2}, "tp");
    CHECK(tp.world_rank(0) == 3);
    float x = 0;
    if (tp.rank() == 0)
      tp.broadcast(std::span(&x, 1), 0);
    else
      tp.broadcast(std::span(&x, 1), 1);
  });
  CHECK(got[2] ==
        "mismatch: rank 2 called broadcast of 1 float32 from root 1 while rank 3 called broadcast of 1 float32 from "
        "root 0 on group tp");
  CHECK(got[3] == got[2]);
}

TEST_CASE("two threads of a rank use two communicators") {
  mg::run_threads(3, [](auto& world) {
    auto background = world.duplicate();
    std::thread other([&] {
      for (int i = 0; i < 50; ++i) {
        std::vector<int> v(700, i);
        background.all_reduce(std::span{v}, mg::sum);
      }
    });
    for (int i = 0; i < 50; ++i) world.barrier();
    other.join();
  });
}
