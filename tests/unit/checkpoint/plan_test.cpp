// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/checkpoint/plan.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <mgroups/shard/sharded_tensor.hpp>
#include <mgroups/shard/state_dict.hpp>

#include <doctest/doctest.h>

namespace mg = mgroups;
using State = mg::ShardedStateDict<mg::TensorView>;

namespace {

struct Plan {
  std::vector<mg::detail::WriteAssignment> writes;
  std::vector<std::string> faults;
};

/// The plans of all owners of a world whose ranks have these state dicts.
Plan plan_of(const std::vector<State>& states) {
  const int ranks = static_cast<int>(states.size());
  std::vector<mg::LocalState> shards;
  std::vector<mg::Parcels> messages;
  for (const State& state : states) {
    shards.push_back(state.local_state());
    messages.push_back(mg::detail::plan_messages(shards.back(), ranks));
  }
  Plan out;
  for (int owner = 0; owner < ranks; ++owner) {
    mg::detail::OwnedKeys owned(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      messages[static_cast<std::size_t>(rank)].for_each([&](int to, std::span<const std::byte> message) {
        if (to == owner) owned.add(rank, message);
      });
    }
    const mg::detail::OwnedPlan plan = owned.plan();
    out.writes.insert(out.writes.end(), plan.writes.begin(), plan.writes.end());
    out.faults.insert(out.faults.end(), plan.faults.begin(), plan.faults.end());
  }
  return out;
}

mg::TensorView shape_only(const mg::Dims& shape) {
  return {nullptr, mg::DType::float32, shape, mg::row_major_strides(shape)};
}

}  // namespace

TEST_CASE("each box is written once, by a rank that holds it, and bytes are balanced over replicas") {
  for (const int dp : {1, 2, 3, 4, 7}) {
    const int tp = 2;
    std::vector<State> states(static_cast<std::size_t>(tp * dp));
    for (int rank = 0; rank < tp * dp; ++rank) {
      for (int layer = 0; layer < 60; ++layer) {
        states[static_cast<std::size_t>(rank)].add(
            mg::make_sharded_grid(mg::concat("layer", layer), shape_only({512, 512 + layer}), {{0, rank % tp, tp}},
                                  {.replica_id = {0, 0, rank / tp}}));
      }
    }
    const Plan plan = plan_of(states);
    CHECK(plan.faults.empty());
    std::set<std::pair<std::uint32_t, std::uint32_t>> boxes;  // tp rank, shard number
    std::vector<std::uint64_t> bytes(states.size());
    for (const auto& write : plan.writes) {
      CHECK(boxes.emplace(write.rank % tp, write.index).second);
      bytes[write.rank] += states[write.rank].local_state().tensors[write.index].data.nbytes();
    }
    CHECK(boxes.size() == 60u * tp);
    const double mean = std::accumulate(bytes.begin(), bytes.end(), 0.0) / static_cast<double>(bytes.size());
    CHECK(static_cast<double>(*std::max_element(bytes.begin(), bytes.end())) < 1.6 * mean);
  }
}

TEST_CASE("small boxes come from the main replica") {
  std::vector<State> states(4);
  for (int rank = 0; rank < 4; ++rank) {
    for (int i = 0; i < 20; ++i) {
      states[static_cast<std::size_t>(rank)].add(
          mg::make_whole(mg::concat("step", i), shape_only({2}), {.replica_id = 3 - rank}));
    }
  }
  const Plan plan = plan_of(states);
  CHECK(plan.writes.size() == 20);
  for (const auto& write : plan.writes) CHECK(write.rank == 3);
}

TEST_CASE("a plan does not depend on who owns what is not disputed") {
  std::vector<State> states(3);
  states[1].add(mg::make_whole("only here", shape_only({5})));
  const Plan plan = plan_of(states);
  REQUIRE(plan.writes.size() == 1);
  CHECK(plan.writes[0].rank == 1);
}

TEST_CASE("the owner of a key is the same on every machine") {
  // FNV-1a of "" and "a", as its authors publish them.
  CHECK(mg::detail::key_hash("") == 0xcbf29ce484222325u);
  CHECK(mg::detail::key_hash("a") == 0xaf63dc4c8601ec8cu);
}
