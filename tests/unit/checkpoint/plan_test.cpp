// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/checkpoint/plan.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/plan_cache.hpp>
#include <mgroups/checkpoint/plan_writes.hpp>
#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/shard/sharded_tensor.hpp>
#include <mgroups/shard/state_dict.hpp>

#include <doctest/doctest.h>

#include "support/simulated_plan.hpp"

namespace mg = mgroups;
using State = mg::ShardedStateDict<mg::TensorView>;

namespace {

/// The plan of a world whose ranks have these state dicts.
mgroups_test::SimulatedPlan plan_of(const std::vector<State>& states) {
  mg::LocalState state;
  return mgroups_test::simulate_plan(static_cast<int>(states.size()), [&](int rank) -> const mg::LocalState& {
    return state = states[static_cast<std::size_t>(rank)].local_state();
  });
}

/// Bytes of tensors that each rank writes. Each box must be written once.
std::vector<std::uint64_t> bytes_written(const std::vector<State>& states, const mgroups_test::SimulatedPlan& plan) {
  std::vector<std::uint64_t> bytes(states.size(), 0);
  std::set<std::pair<std::string, mg::Box>> boxes, held;
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    const mg::LocalState state = states[rank].local_state();
    for (const mg::LocalShard& shard : state.tensors) {
      if (shard.data.nbytes() > 0) held.emplace(shard.layout->key, shard.layout->box());
    }
    for (const std::uint32_t i : plan.writes[rank]) {
      CHECK(boxes.emplace(state.tensors[i].layout->key, state.tensors[i].layout->box()).second);
      bytes[rank] += state.tensors[i].data.nbytes();
    }
  }
  CHECK(boxes == held);
  return bytes;
}

double largest_over_mean(const std::vector<std::uint64_t>& bytes) {
  const double mean = std::accumulate(bytes.begin(), bytes.end(), 0.0) / static_cast<double>(bytes.size());
  return static_cast<double>(*std::max_element(bytes.begin(), bytes.end())) / mean;
}

mg::TensorView shape_only(const mg::Dims& shape) {
  return {nullptr, mg::DType::float32, shape, mg::row_major_strides(shape)};
}

/// What one rank holds of a model with dense layers, experts, replicated scalars and slices of an optimizer: pipeline 2,
/// tensor 2, expert 4 of the rest.
State mixed_state(int rank, int ranks) {
  const int tp = 2, pp = 2, dp = ranks / tp / pp, ep = dp % 4 == 0 ? 4 : 1;
  const int tp_rank = rank % tp, dp_rank = rank / tp % dp, pp_rank = rank / tp / dp;
  State state;
  for (int layer = pp_rank; layer < 24; layer += pp) {
    state.add(mg::make_sharded_grid(mg::concat("layers.", layer, ".qkv.weight"), shape_only({96, 256 + layer}),
                                    {{0, tp_rank, tp}}, {.replica_id = {0, 0, dp_rank}}));
    state.add(mg::make_sharded_grid(mg::concat("layers.", layer, ".proj.weight"), shape_only({256, 48}), {{1, tp_rank, tp}},
                                    {.replica_id = {0, 0, dp_rank}}));
    state.add(mg::make_whole(mg::concat("layers.", layer, ".norm.weight"), shape_only({256}),
                             {.replica_id = {0, tp_rank, dp_rank}}));
    state.add(mg::make_sharded_grid(mg::concat("layers.", layer, ".experts.weight"), shape_only({8, 64, 64}),
                                    {{0, dp_rank % ep, ep}}, {.replica_id = {0, tp_rank, dp_rank / ep}}));
    state.add(mg::make_whole(mg::concat("layers.", layer, ".step"), shape_only({}), {.replica_id = {0, tp_rank, dp_rank}}));
  }
  state.add(mg::make_sharded_grid("optimizer.exp_avg", shape_only({1000}), {{0, rank, ranks}}));
  return state;
}

}  // namespace

TEST_CASE("each box is written once, by a rank that holds it, and bytes are balanced over replicas") {
  for (const int dp : {1, 2, 3, 4, 7}) {
    CAPTURE(dp);
    const int tp = 2;
    std::vector<State> states(static_cast<std::size_t>(tp * dp));
    for (int rank = 0; rank < tp * dp; ++rank) {
      for (int layer = 0; layer < 60; ++layer) {
        states[static_cast<std::size_t>(rank)].add(
            mg::make_sharded_grid(mg::concat("layer", layer), shape_only({512, 512 + layer}), {{0, rank % tp, tp}},
                                  {.replica_id = {0, 0, rank / tp}}));
      }
    }
    const auto plan = plan_of(states);
    CHECK(plan.faults.empty());
    // 60 boxes over 7 ranks: some have 9, the mean is 8.6.
    CHECK(largest_over_mean(bytes_written(states, plan)) <= 1.05);
  }
}

TEST_CASE("a mixed model is balanced over all ranks, whatever only one of them holds") {
  for (const int ranks : {4, 8, 16, 32}) {
    CAPTURE(ranks);
    std::vector<State> states;
    for (int rank = 0; rank < ranks; ++rank) states.push_back(mixed_state(rank, ranks));
    // One rank has much that nobody else could write: the others take over what it shares with them.
    states[1].add(mg::make_whole("only.here", shape_only({100, 1000})));
    const auto plan = plan_of(states);
    CHECK(plan.faults.empty());
    const auto bytes = bytes_written(states, plan);
    // Nothing is shared between the two stages of the pipeline: each is balanced by itself.
    const auto half = bytes.begin() + ranks / 2;
    for (const auto& stage : {std::vector(bytes.begin(), half), std::vector(half, bytes.end())}) {
      CHECK(largest_over_mean(stage) <= (ranks <= 16 ? 1.05 : 1.15));
    }
  }
}

TEST_CASE("ranks plan what the simulation of all of them plans") {
  for (const int ranks : {4, 16, 64}) {
    CAPTURE(ranks);
    std::vector<State> states;
    for (int rank = 0; rank < ranks; ++rank) states.push_back(mixed_state(rank, ranks));
    const auto simulated = plan_of(states);
    const auto real = mg::run_threads(ranks, [&](auto& world) {
      mg::any_communicator comm = mg::any_communicator::borrow(world);
      return mg::detail::plan_writes(comm, states[static_cast<std::size_t>(world.rank())].local_state(), {});
    });
    CHECK(real == simulated.writes);
  }
}

TEST_CASE("what any owner receives does not grow with the number of keys of others") {
  // 200 keys over 64 ranks: some owner has several times the mean of 3.1, none has a large part of all.
  std::vector<State> states(64);
  for (int rank = 0; rank < 64; ++rank) {
    for (int i = 0; i < 200; ++i) {
      states[static_cast<std::size_t>(rank)].add(
          mg::make_whole(mg::concat("layers.", i, ".weight"), shape_only({64, 64}), {.replica_id = rank}));
    }
  }
  const auto plan = plan_of(states);
  CHECK(plan.records == 64u * 200u);
  CHECK(plan.most_messages <= 64);
  CHECK(static_cast<double>(plan.most_message_bytes) <= 0.06 * static_cast<double>(plan.message_bytes));
  CHECK(plan.most_offers == 200);
}

TEST_CASE("an unchanged layout is planned once, and any change on any rank plans anew on all") {
  const auto wrong = mg::run_threads(3, [](auto& world) {
    std::vector<std::string> faults;
    mg::any_communicator comm = mg::any_communicator::borrow(world);
    mg::PlanCache cache;
    const auto state_with = [&](int replicas_of_b, int extra) {
      State state;
      state.add(mg::make_sharded_grid("a", shape_only({5, 4}), {{0, world.rank(), 3}}));
      state.add(mg::make_whole("b", shape_only({300, 300}), {.replica_id = (world.rank() + replicas_of_b) % 3}));
      for (int i = 0; i < extra; ++i) state.add(mg::make_whole(mg::concat("c", world.rank(), ".", i), shape_only({7})));
      return state;
    };
    const auto planned = [&](const State& state) {
      const auto direct = mg::detail::plan_writes(comm, state.local_state(), {});
      const auto cached = mg::detail::plan_writes(comm, state.local_state(), {}, &cache);
      if (cached != direct) faults.emplace_back("the cached plan is another one");
    };
    planned(state_with(0, 0));
    planned(state_with(0, 0));
    planned(state_with(1, 0));                          // only which replica is the main one
    planned(state_with(1, world.rank() == 2 ? 2 : 0));  // one rank's layout alone
    planned(state_with(0, 0));
    const mg::PlanCache before = cache;
    // A layout that its ranks cannot save leaves what is remembered as it was.
    State bad = state_with(0, 0);
    if (world.rank() == 1) bad.add(mg::make_sharded_grid("d", shape_only({5}), {{0, 1, 3}}));
    bool refused = false;
    try {
      static_cast<void>(mg::detail::plan_writes(comm, bad.local_state(), {}, &cache));
    } catch (const mg::CheckpointError&) {
      refused = true;
    }
    if (!refused || cache.writes() != before.writes()) faults.emplace_back("a refused layout was remembered");
    return faults;
  });
  for (const auto& faults : wrong) CHECK(faults == std::vector<std::string>());
}

TEST_CASE("a layout's id depends on all that a plan depends on") {
  const auto id_of = [](const auto& shard) {
    State state;
    state.add(shard);
    return state.local_state().layout_id;
  };
  const auto grid = [](const mg::Dims& shape, int index, int parts, int replica, mg::DType dtype = mg::DType::float32) {
    return mg::make_sharded_grid("key", mg::TensorView{nullptr, dtype, shape, mg::row_major_strides(shape)},
                                 {{0, index, parts}}, {.replica_id = replica});
  };
  const auto id = id_of(grid({4, 6}, 0, 2, 0));
  CHECK(id == id_of(grid({4, 6}, 0, 2, 0)));
  CHECK(id != id_of(grid({6, 4}, 0, 2, 0)));
  CHECK(id != id_of(grid({4, 6}, 1, 2, 0)));
  CHECK(id != id_of(grid({4, 6}, 0, 3, 0)));
  CHECK(id != id_of(grid({4, 6}, 0, 2, 1)));
  CHECK(id != id_of(grid({4, 6}, 0, 2, 0, mg::DType::int32)));
  CHECK(id != id_of(mg::make_whole("key2", shape_only({4, 6}))));
  CHECK(id != State().local_state().layout_id);
}

TEST_CASE("small boxes come from the main replica") {
  std::vector<State> states(4);
  for (int rank = 0; rank < 4; ++rank) {
    for (int i = 0; i < 20; ++i) {
      states[static_cast<std::size_t>(rank)].add(
          mg::make_whole(mg::concat("step", i), shape_only({2}), {.replica_id = 3 - rank}));
    }
  }
  const auto plan = plan_of(states);
  CHECK(plan.writes[3].size() == 20);
  for (const int rank : {0, 1, 2}) CHECK(plan.writes[static_cast<std::size_t>(rank)].empty());
}

TEST_CASE("a plan does not depend on who owns what is not disputed") {
  std::vector<State> states(3);
  states[1].add(mg::make_whole("only here", shape_only({5})));
  const auto plan = plan_of(states);
  CHECK(plan.writes == std::vector<std::vector<std::uint32_t>>{{}, {0}, {}});
}

TEST_CASE("the owner of a key is the same on every machine, and within the world") {
  CHECK(mg::detail::owner_of("decoder.layers.0.mlp.linear_fc1.weight", 1) == 0);
  std::vector<int> keys(7, 0);
  for (int i = 0; i < 7000; ++i) ++keys[static_cast<std::size_t>(mg::detail::owner_of(mg::concat("layer", i), 7))];
  for (const int n : keys) CHECK(std::abs(n - 1000) < 150);
}
