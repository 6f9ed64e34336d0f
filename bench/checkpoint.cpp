// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// One save or load, or the raw file work of the same bytes, timed between barriers of thread ranks. bench.py runs it in
// turn with peers.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/checkpoint/async.hpp>
#include <mgroups/checkpoint/load.hpp>
#include <mgroups/checkpoint/save.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/shard/sharded_tensor.hpp>
#include <mgroups/shard/state_dict.hpp>

#include "support/raw_file_speed.hpp"

namespace mg = mgroups;

namespace {

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// This rank's part of the state: large tensors are split along axis 0 over all ranks, small ones are dealt out whole.
struct RankState {
  std::vector<std::uint32_t> memory;
  mg::ShardedStateDict<mg::TensorView> state;

  RankState(int rank, int ranks, std::int64_t tensors, std::int64_t bytes) {
    const bool split = bytes >= (1 << 20);
    const std::int64_t elements = bytes / 4, mine = split ? elements / ranks : elements;
    const std::int64_t held = split ? tensors : mg::split_range(tensors, ranks, rank).size();
    memory.resize(static_cast<std::size_t>(held * mine));
    std::uint32_t value = static_cast<std::uint32_t>(rank) + 1;
    for (std::uint32_t& element : memory) element = value = value * 1664525u + 1013904223u;
    auto* at = memory.data();
    for (std::int64_t i = 0; i < held; ++i, at += mine) {
      const mg::TensorView view{at, mg::DType::float32, {mine / 16, 16}, {16, 1}};
      const std::string key = mg::concat("layer.", split ? i : i * ranks + rank, ".weight");
      state.add(split ? mg::make_sharded_grid(key, view, {{0, rank, ranks}}) : mg::make_whole(key, view));
    }
  }
};

/// What training waits for in an asynchronous save, from the second one on; or a copy of the same bytes into warm memory.
double stage_seconds(std::string_view verb, const std::string& directory, RankState& rank, mg::thread_comm& world) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); };
  if (verb == "stage") {
    mg::AsyncSaver saver(world);
    saver.save(directory, rank.state).wait();
    world.barrier();
    const auto start = Clock::now();
    const mg::AsyncSave save = saver.save(directory, rank.state);
    const double seconds = since(start);
    save.wait();
    return seconds;
  }
  const std::vector<mg::LocalShard> shards = rank.state.local_state().tensors;
  std::vector<std::vector<std::byte>> copies;
  for (const mg::LocalShard& shard : shards) copies.emplace_back(shard.data.nbytes(), std::byte{1});
  world.barrier();
  const auto start = Clock::now();
  for (std::size_t i = 0; i < shards.size(); ++i) std::memcpy(copies[i].data(), shards[i].data.data, copies[i].size());
  world.barrier();
  return since(start);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: checkpoint save|load|stage|memcpy|raw-write|raw-read DIRECTORY RANKS TENSORS BYTES_EACH\n");
    return 2;
  }
  const std::string_view verb = argv[1];
  const std::string directory = argv[2];
  const int ranks = std::atoi(argv[3]);
  const std::int64_t tensors = std::atoll(argv[4]), bytes = std::atoll(argv[5]);
  try {
    double seconds = 0, cpu = 0;
    if (verb.starts_with("raw")) {
      const RawSeconds raw = raw_file_speed(directory, static_cast<std::uint64_t>(tensors * bytes), ranks);
      seconds = verb == "raw-write" ? raw.write : raw.read;
    } else {
      const auto times = mg::run_threads(ranks, [&](auto& world) {
        RankState rank(world.rank(), ranks, tensors, bytes);
        // Replacing an old checkpoint would time the file system's deleting, too.
        if (verb == "stage" || verb == "memcpy") return stage_seconds(verb, directory, rank, world);
        if (verb == "save" && world.rank() == 0) mg::posix_file_system().remove_all(directory);
        world.barrier();
        const double cpu_before = cpu_seconds();
        const auto start = std::chrono::steady_clock::now();
        if (verb == "save") {
          mg::save(directory, rank.state, world);
        } else {
          mg::load(directory, rank.state, world);
        }
        world.barrier();
        if (world.rank() == 0) cpu = cpu_seconds() - cpu_before;
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      });
      seconds = *std::max_element(times.begin(), times.end());
    }
    std::printf("{\"seconds\": %.6f, \"cpu_seconds\": %.6f}\n", seconds, cpu);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "checkpoint: %s\n", error.what());
    return 1;
  }
}
