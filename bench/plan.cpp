// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// The whole work of planning a save, for every rank of a simulated world on one core: describing the shards, and what each
// owner does.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <mgroups/checkpoint/plan.hpp>
#include <mgroups/shard/state_dict.hpp>

namespace mg = mgroups;

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: plan TENSORS RANKS\n");
    return 2;
  }
  const int tensors = std::atoi(argv[1]), ranks = std::atoi(argv[2]), tp = 8;
  std::vector<mg::ShardLayout> layouts(static_cast<std::size_t>(tensors));
  for (int i = 0; i < tensors; ++i) {
    layouts[static_cast<std::size_t>(i)] = {.key = mg::concat("decoder.layers.", 10000 + i, ".mlp.linear_fc1.weight"),
                                            .dtype = mg::DType::bfloat16,
                                            .local_shape = {512, 1024},
                                            .global_shape = {512 * tp, 1024},
                                            .global_offset = {0, 0},
                                            .axis_fragmentations = mg::Dims{tp, 1},
                                            .replica_id = {}};
  }
  mg::LocalState state;
  for (const mg::ShardLayout& layout : layouts) state.tensors.push_back({&layout, {}});

  using Clock = std::chrono::steady_clock;
  double seconds = 0;
  std::vector<mg::Parcels> messages;
  std::vector<std::vector<std::span<const std::byte>>> inboxes(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    for (mg::ShardLayout& layout : layouts) {
      layout.global_offset = {512 * (rank % tp), 0};
      layout.replica_id = {0, 0, rank / tp};
    }
    const auto start = Clock::now();
    messages.push_back(mg::detail::plan_messages(state, ranks));
    seconds += std::chrono::duration<double>(Clock::now() - start).count();
  }
  std::size_t bytes = 0;
  for (const mg::Parcels& message : messages) {
    bytes += message.bytes.size();
    message.for_each(
        [&](int owner, std::span<const std::byte> part) { inboxes[static_cast<std::size_t>(owner)].push_back(part); });
  }
  std::vector<std::size_t> load(static_cast<std::size_t>(ranks));
  std::size_t writes = 0;
  const auto start = Clock::now();
  for (const auto& inbox : inboxes) {
    mg::detail::OwnedKeys owned(ranks);
    for (int rank = 0; rank < ranks; ++rank) owned.add(rank, inbox[static_cast<std::size_t>(rank)]);
    for (const mg::detail::WriteAssignment& write : owned.plan().writes) ++load[write.rank], ++writes;
  }
  seconds += std::chrono::duration<double>(Clock::now() - start).count();
  std::printf("{\"seconds\": %.6f, \"writes\": %zu, \"most_per_rank\": %zu, \"message_bytes_per_shard\": %.1f}\n", seconds,
              writes, *std::max_element(load.begin(), load.end()),
              static_cast<double>(bytes) / static_cast<double>(tensors) / static_cast<double>(ranks));
  return 0;
}
