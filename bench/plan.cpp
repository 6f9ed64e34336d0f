// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// The whole work of planning a save, for every rank of a simulated world on one core: describing the shards, and what each
// owner and the coordinator do.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <mgroups/core/text.hpp>
#include <mgroups/shard/state_dict.hpp>

#include "peak_bytes.hpp"
#include "support/simulated_plan.hpp"

namespace mg = mgroups;

namespace {

constexpr int tp = 8;

/// A rank's shards of a dense model: every tensor is split over tp = 8 ranks and replicated over the others.
void place_dense(mg::ShardLayout& layout, int rank) {
  layout.global_offset = {512 * (rank % tp), 0};
  layout.replica_id = {0, 0, rank / tp};
}

struct Model {
  std::vector<mg::ShardLayout> layouts;
  mg::LocalState state;
  bool mixed;
  int ranks;

  Model(int tensors, int world, bool mixed_model) : mixed(mixed_model), ranks(world) {
    for (int i = 0; i < tensors; ++i) {
      mg::ShardLayout& layout = layouts.emplace_back();
      layout.key = mg::concat("decoder.layers.", 10000 + i, ".mlp.linear_fc1.weight");
      layout.dtype = mg::DType::bfloat16;
      layout.local_shape = {512, 1024 + (mixed ? 16 * (i % 37) : 0)};
      layout.global_shape = {512 * tp, layout.local_shape[1]};
      layout.global_offset = {0, 0};
      switch (kind(i)) {
        case Kind::dense: break;
        case Kind::experts:  // 64 experts over ep = 8 ranks
          layout.local_shape = {8, 256, 512};
          layout.global_shape = {64, 256, 512};
          break;
        case Kind::replicated:  // by every rank
          layout.local_shape = layout.global_shape = i % 2 == 0 ? mg::Dims{} : mg::Dims{4096};
          layout.global_offset = mg::Dims::filled(layout.global_shape.rank(), 0);
          break;
        case Kind::flat:  // of an optimizer: each rank has a slice of its own
          layout.dtype = mg::DType::float32;
          layout.global_shape = {1000 * std::int64_t{ranks}};
          break;
      }
    }
    for (const mg::ShardLayout& layout : layouts) state.tensors.push_back({&layout, {}});
  }

  enum class Kind { dense, experts, replicated, flat };
  [[nodiscard]] Kind kind(int i) const {
    if (!mixed || i % 20 < 12) return Kind::dense;
    return i % 20 < 16 ? Kind::experts : i % 20 < 19 ? Kind::replicated : Kind::flat;
  }

  const mg::LocalState& of(int rank) {
    for (int i = 0; i < static_cast<int>(layouts.size()); ++i) {
      mg::ShardLayout& layout = layouts[static_cast<std::size_t>(i)];
      switch (kind(i)) {
        case Kind::dense: place_dense(layout, rank); break;
        case Kind::experts:
          layout.global_offset = {8 * (rank / tp % 8), 0, 0};
          layout.replica_id = {0, rank % tp, rank / tp / 8};
          break;
        case Kind::replicated: layout.replica_id = {0, 0, rank}; break;
        case Kind::flat: {
          // Uneven: ranks take 900 and 1100 elements by turns, an odd last one 1000.
          const bool odd = rank % 2 == 1, last = rank + 1 == ranks && !odd;
          layout.local_shape = {last ? 1000 : odd ? 1100 : 900};
          layout.global_offset = {1000 * std::int64_t{rank} - (odd ? 100 : 0)};
          break;
        }
      }
    }
    return state;
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: plan TENSORS RANKS [dense|mixed]\n");
    return 2;
  }
  const int tensors = std::atoi(argv[1]), ranks = std::atoi(argv[2]);
  Model model(tensors, ranks, argc == 4 && std::string_view(argv[3]) == "mixed");
  const std::size_t before = peak_bytes();
  const mgroups_test::SimulatedPlan plan =
      mgroups_test::simulate_plan(ranks, [&](int rank) -> const mg::LocalState& { return model.of(rank); });
  const std::size_t peak = peak_bytes() - before;
  if (!plan.faults.empty()) {
    std::fprintf(stderr, "plan: %s\n", plan.faults.front().c_str());
    return 1;
  }

  std::uint64_t total = 0, most = 0, writes = 0, most_writes = 0, largest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const mg::LocalState& state = model.of(rank);
    std::uint64_t bytes = 0;
    for (const std::uint32_t i : plan.writes[static_cast<std::size_t>(rank)]) {
      const mg::ShardLayout& layout = *state.tensors[i].layout;
      const auto own = static_cast<std::uint64_t>(mg::numel(layout.local_shape)) * mg::size_of(layout.dtype);
      bytes += own;
      largest = std::max(largest, own);
    }
    writes += plan.writes[static_cast<std::size_t>(rank)].size();
    most_writes = std::max<std::uint64_t>(most_writes, plan.writes[static_cast<std::size_t>(rank)].size());
    total += bytes;
    most = std::max(most, bytes);
  }
  const double mean = static_cast<double>(total) / ranks, records = static_cast<double>(plan.records);
  std::printf(
      "{\"seconds\": %.6f, \"records\": %zu, \"bytes_per_record\": %.1f, \"message_bytes_per_record\": %.1f, "
      "\"most_messages\": %zu, \"most_message_bytes\": %zu, \"most_offers\": %zu, \"writes\": %llu, \"most_writes\": %llu, "
      "\"balance\": %.4f, \"largest_over_mean\": %.4f}\n",
      plan.seconds, plan.records, static_cast<double>(peak) / records, static_cast<double>(plan.message_bytes) / records,
      plan.most_messages, plan.most_message_bytes, plan.most_offers, static_cast<unsigned long long>(writes),
      static_cast<unsigned long long>(most_writes), static_cast<double>(most) / mean, static_cast<double>(largest) / mean);
  return 0;
}
