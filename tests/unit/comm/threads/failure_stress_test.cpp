// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <mgroups/comm/threads.hpp>

// Random ranks fail at random points of random verbs, whose buffers are freed while the ranks unwind: a peer that still read
// one, or that waited for ever, shows under the sanitizers or as a test that does not end.

namespace mg = mgroups;
using namespace std::chrono_literals;

namespace {

enum class Fault { none, throws, mismatches, leaves, sleeps };

struct Plan {
  std::vector<Fault> faults;  // per rank
  std::vector<int> steps;     // at which step the rank fails
  unsigned seed;
};

void one_verb(mg::thread_comm& comm, std::mt19937& random, bool mismatched) {
  const std::size_t sizes[] = {0, 1, 33, 257, 5000, 70'000};
  const std::size_t n = sizes[random() % std::size(sizes)] + (mismatched ? 1 : 0);
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::vector<float> in(n, 1.0f);
  switch (random() % 7) {
    case 0: return comm.barrier();
    case 1: return comm.broadcast(in, static_cast<int>(random() % ranks));
    case 2: return comm.all_reduce(std::span{in}, mg::sum);
    case 3: {
      std::vector<float> out(n * ranks);
      return comm.all_gather(in, out);
    }
    case 4: {
      std::vector<std::size_t> counts(ranks, n);
      std::vector<float> out(n * ranks);
      return comm.all_gather_v(in, out, counts);
    }
    case 5: {
      std::vector<std::size_t> counts(ranks, n);
      std::vector<float> from(n * ranks), to(n * ranks);
      return comm.all_to_all_v(from, counts, to, counts);
    }
    default: {
      if (ranks == 1) return;
      const int next = (comm.rank() + 1) % comm.size(), previous = (comm.rank() + comm.size() - 1) % comm.size();
      std::vector<float> out(n);
      if (comm.rank() == 0) comm.send(in, next);
      comm.recv(std::span(out), previous);
      if (comm.rank() != 0) comm.send(in, next);
      return;
    }
  }
}

struct Injected : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// 60 steps over the world, a split, a group and a duplicate.
void rank_main(mg::thread_comm& world, const Plan& plan) {
  std::mt19937 random(plan.seed);
  const auto me = static_cast<std::size_t>(world.rank());
  auto parity = world.split(world.rank() % 2, -world.rank());
  auto copy = world.duplicate();
  std::vector<int> members(static_cast<std::size_t>(world.size() - 1));
  std::iota(members.begin(), members.end(), 1);
  std::unique_ptr<mg::thread_comm> upper;
  if (world.rank() > 0) upper = std::make_unique<mg::thread_comm>(world.create_group(members, "upper"));
  for (int step = 0; step < 60; ++step) {
    const bool fails = plan.steps[me] == step;
    if (fails && plan.faults[me] == Fault::throws) throw Injected("rank " + std::to_string(world.rank()));
    if (fails && plan.faults[me] == Fault::leaves) return;
    if (fails && plan.faults[me] == Fault::sleeps) std::this_thread::sleep_for(6ms);
    const bool mismatched = fails && plan.faults[me] == Fault::mismatches;
    const auto which = random() % 4;
    std::mt19937 same(random());
    if (which == 0) one_verb(world, same, mismatched);
    if (which == 1) one_verb(parity, same, mismatched);
    if (which == 2) one_verb(copy, same, mismatched);
    if (which == 3 && upper) one_verb(*upper, same, mismatched);
  }
}

}  // namespace

TEST_CASE("random failures of random ranks end every run, with a cause") {
  int failed = 0, injected = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    for (const int ranks : {1, 2, 3, 4, 7}) {
      std::mt19937 random(seed * 8 + static_cast<unsigned>(ranks));
      Plan plan{std::vector<Fault>(static_cast<std::size_t>(ranks), Fault::none),
                std::vector<int>(static_cast<std::size_t>(ranks), -1), static_cast<unsigned>(random())};
      bool throws = false;
      // From one failing rank up to all of them, not all at the same step.
      for (unsigned k = 0; k < 1 + random() % static_cast<unsigned>(ranks); ++k) {
        const auto r = random() % static_cast<unsigned>(ranks);
        plan.faults[r] = static_cast<Fault>(1 + random() % 4);
        plan.steps[r] = static_cast<int>(random() % 60);
        throws = throws || plan.faults[r] == Fault::throws;
      }
      // Short enough that sleeping ranks are given up now and then, in the middle of others' copies.
      const auto deadline = seed % 3 == 0 ? std::chrono::nanoseconds(3ms) : std::chrono::nanoseconds(20s);
      try {
        mg::run_threads(ranks, [&](mg::thread_comm& world) { rank_main(world, plan); }, {.deadline = deadline});
      } catch (const Injected&) {
        ++injected;
        ++failed;
        CHECK(throws);
      } catch (const mg::Error& e) {
        ++failed;
        CHECK(std::string(e.what()).size() > 20);
      }
    }
  }
  CHECK(failed > 100);
  CHECK(injected > 20);
}
