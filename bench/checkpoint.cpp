// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// One save or load, or the raw file work of the same bytes, timed between barriers of thread ranks. bench.py runs it in
// turn with peers. What was loaded is compared with what was saved; what was saved is left for others to compare.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/checkpoint/async.hpp>
#include <mgroups/checkpoint/load.hpp>
#include <mgroups/checkpoint/save.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/io/posix.hpp>

#include "support/counting_files.hpp"
#include "numbered_state.hpp"
#include "support/raw_file_speed.hpp"
#include "support/stopwatch.hpp"

namespace mg = mgroups;

namespace {

struct Result {
  Seconds seconds;
  std::uint64_t bytes_read = 0;    // from data files, by all ranks
  std::uint64_t bytes_needed = 0;  // that the ranks hold
};

template <class Work>
Seconds between_barriers(mg::thread_comm& world, Work&& work) {
  world.barrier();
  const Stopwatch watch;
  work();
  world.barrier();
  return watch.read();
}

/// The first save of a process, or its third; each into a new directory, since replacing an old checkpoint would time the
/// file system's deleting, too.
Seconds save(std::string_view verb, const std::string& directory, const NumberedState& state, mg::thread_comm& world) {
  std::vector<std::string> earlier;
  if (verb == "save-again") earlier = {directory + "-1", directory + "-2"};
  const auto remove = [&](const std::string& path) {
    if (world.rank() == 0) mg::posix_file_system().remove_all(path);
    world.barrier();
  };
  for (const std::string& path : earlier) {
    remove(path);
    mg::save(path, state.dict, world);
  }
  remove(directory);
  const Seconds out = between_barriers(world, [&] { mg::save(directory, state.dict, world); });
  for (const std::string& path : earlier) remove(path);
  return out;
}

/// The first load of a process, or its second.
Result load(std::string_view verb, const std::string& directory, NumberedState& state, mg::thread_comm& world,
            CountingFiles& files) {
  if (verb == "load-again") mg::load(directory, state.dict, world);
  state.clear();
  world.barrier();
  Result out;
  const std::uint64_t read_before = files.bytes_read();
  out.seconds = between_barriers(world, [&] { mg::load(directory, state.dict, world, {.files = &files}); });
  out.bytes_read = files.bytes_read() - read_before;
  state.check();
  out.bytes_needed = static_cast<std::uint64_t>(state.bytes());
  return out;
}

/// What training waits for in an asynchronous save, from the second one on.
Seconds stage(const std::string& directory, const NumberedState& state, mg::thread_comm& world) {
  mg::AsyncSaver saver(world);
  saver.save(directory, state.dict).wait();
  world.barrier();
  const Stopwatch watch;
  const mg::AsyncSave save = saver.save(directory, state.dict);
  const Seconds out = watch.read();
  save.wait();
  return out;
}

/// A copy of the same bytes into warm memory.
Seconds copy(const NumberedState& state, mg::thread_comm& world) {
  const std::vector<mg::LocalShard> shards = state.dict.local_state().tensors;
  std::vector<std::vector<std::byte>> copies;
  for (const mg::LocalShard& shard : shards) copies.emplace_back(shard.data.nbytes(), std::byte{1});
  return between_barriers(world, [&] {
    for (std::size_t i = 0; i < shards.size(); ++i) std::memcpy(copies[i].data(), shards[i].data.data, copies[i].size());
  });
}

Result on_rank(std::string_view verb, const std::string& directory, const StateSizes& sizes, mg::thread_comm& world,
               CountingFiles& files) {
  NumberedState state(sizes, world.rank());
  if (verb.starts_with("load")) return load(verb, directory, state, world, files);
  state.fill();
  if (verb.starts_with("save")) return {save(verb, directory, state, world)};
  if (verb == "stage") return {stage(directory, state, world)};
  if (verb == "memcpy") return {copy(state, world)};
  throw mg::InvalidArgument(mg::concat("'", verb, "' is no verb"));
}

Result measure(std::string_view verb, const std::string& directory, const StateSizes& sizes) {
  if (verb.starts_with("raw-")) {
    const std::int64_t copies = sizes.cut == Cut::copies ? sizes.ranks : 1;
    const auto bytes = static_cast<std::uint64_t>(copies * sizes.tensors * sizes.bytes_each);
    const bool write = verb == "raw-write";
    // A save removes the checkpoint before it and so finds memory for the file system's cache that was in use a moment ago.
    // On a virtual machine other memory may have to come from the host first, at several times the cost of writing.
    if (write) raw_file_speed(directory, bytes, sizes.ranks, false);
    const RawSeconds raw = raw_file_speed(directory, bytes, sizes.ranks, write);
    return {write ? Seconds{raw.write, raw.write_cpu} : Seconds{raw.read, raw.read_cpu}};
  }
  CountingFiles files;
  const auto results =
      mg::run_threads(sizes.ranks, [&](auto& world) { return on_rank(verb, directory, sizes, world, files); });
  // The process's CPU time and the bytes of all ranks are the same for every rank, all but for what ends meanwhile.
  Result out = results.front();
  out.bytes_needed = 0;
  for (const Result& one : results) {
    out.seconds.wall = std::max(out.seconds.wall, one.seconds.wall);
    out.bytes_needed += one.bytes_needed;
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6 || argc > 8) {
    std::fprintf(stderr,
                 "usage: checkpoint save|save-again|load|load-again|stage|memcpy|raw-write|raw-read DIRECTORY RANKS TENSORS "
                 "BYTES_EACH [axis0|axis1|copies|dealt [ROW_BYTES]]\n");
    return 2;
  }
  try {
    StateSizes sizes;
    sizes.ranks = std::atoi(argv[3]);
    sizes.tensors = std::atoll(argv[4]);
    sizes.bytes_each = std::atoll(argv[5]);
    if (argc > 6) sizes.cut = cut_from(argv[6]);
    if (argc > 7) sizes.row_bytes = std::atoll(argv[7]);
    const Result result = measure(argv[1], argv[2], sizes);
    std::printf("{\"seconds\": %.6f, \"cpu_seconds\": %.6f", result.seconds.wall, result.seconds.cpu);
    if (result.bytes_needed > 0) {
      std::printf(", \"bytes_read\": %llu, \"bytes_needed\": %llu", static_cast<unsigned long long>(result.bytes_read),
                  static_cast<unsigned long long>(result.bytes_needed));
    }
    std::printf("}\n");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "checkpoint: %s\n", error.what());
    return 1;
  }
}
