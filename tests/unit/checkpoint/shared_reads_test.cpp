// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/checkpoint/shared_reads.hpp>

#include <cstdint>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <mgroups/checkpoint/load.hpp>
#include <mgroups/checkpoint/save.hpp>
#include <mgroups/comm/solo.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/shard/sharded_tensor.hpp>
#include <mgroups/shard/state_dict.hpp>

#include <doctest/doctest.h>

#include "support/counting_files.hpp"
#include "support/indexed_tensor.hpp"
#include "support/temporary_directory.hpp"

namespace mg = mgroups;
using State = mg::ShardedStateDict<mg::TensorView>;

namespace {

const mg::Dims shape{700, 1100};
constexpr int tensors = 4;
constexpr std::uint64_t model_bytes = std::uint64_t{700} * 1100 * 4 * tensors;

IndexedTensor part_of_model(const mg::Box& box, int number) {
  IndexedTensor tensor(mg::DType::int32, box.sizes, {0, 1}, 0);
  tensor.fill(static_cast<std::uint64_t>(number), box, shape);
  return tensor;
}

void save_model(const std::string& directory, bool checksums) {
  mg::solo_comm world;
  std::vector<IndexedTensor> memory;
  State state;
  for (int i = 0; i < tensors; ++i) memory.push_back(part_of_model(mg::whole(shape), i));
  for (int i = 0; i < tensors; ++i) {
    state.add(mg::make_whole(mg::concat("w", i), memory[static_cast<std::size_t>(i)].view()));
  }
  mg::save(directory, state, world, {.checksums = checksums});
}

/// Loads on `ranks` ranks, each with its part along `axis` (-1: all of it), and returns the bytes read over those wanted.
double amplification(const std::string& directory, int ranks, int axis, const mg::LoadOptions& base) {
  CountingFiles files;
  std::uint64_t wanted = 0;
  std::mutex mutex;
  const auto wrong = mg::run_threads(ranks, [&](auto& world) {
    mg::Box box = mg::whole(shape);
    if (axis >= 0) {
      const mg::IndexRange range = mg::split_range(shape[axis], ranks, world.rank());
      box.offsets[axis] = range.begin;
      box.sizes[axis] = range.size();
    }
    std::vector<IndexedTensor> memory;
    State state;
    for (int i = 0; i < tensors; ++i) memory.emplace_back(mg::DType::int32, box.sizes, std::vector<int>{0, 1}, 0);
    for (int i = 0; i < tensors; ++i) {
      state.add(mg::make_sharded_at(mg::concat("w", i), memory[static_cast<std::size_t>(i)].view(), shape, box.offsets,
                                    {.replica_id = axis < 0 ? world.rank() : 0}));
    }
    mg::LoadOptions options = base;
    options.files = &files;
    mg::load(directory, state, world, options);
    std::int64_t count = 0;
    for (int i = 0; i < tensors; ++i) {
      count += memory[static_cast<std::size_t>(i)].count_wrong(static_cast<std::uint64_t>(i), box, shape);
    }
    const std::lock_guard lock(mutex);
    wanted += static_cast<std::uint64_t>(box.volume()) * 4 * tensors;
    return count;
  });
  for (const std::int64_t count : wrong) CHECK(count == 0);
  return static_cast<double>(files.bytes_read()) / static_cast<double>(axis < 0 ? model_bytes : wanted);
}

}  // namespace

TEST_CASE("rows cut in parts are read once and dealt out, replicas too where that is wanted") {
  const TemporaryDirectory directory;
  for (const bool checksums : {true, false}) {
    CAPTURE(checksums);
    const std::string path = directory / (checksums ? "checked" : "plain");
    save_model(path, checksums);
    for (const int ranks : checksums ? std::vector{2, 7} : std::vector{3}) {
      CAPTURE(ranks);
      const double alone = 0.9 * ranks;
      CHECK(amplification(path, ranks, 1, {.shared_reads = mg::ReadSharing::never}) >= alone);
      CHECK(amplification(path, ranks, 1, {}) <= 1.25);
      CHECK(amplification(path, ranks, 1, {.buffer_bytes = 65536}) <= 1.5);  // many rounds
      CHECK(amplification(path, ranks, -1, {}) >= alone);                    // from the page cache, a copy is no faster
      CHECK(amplification(path, ranks, -1, {.shared_reads = mg::ReadSharing::always}) <= 1.25);
      // Parts of less than a megabyte: blocks at their ends count.
      CHECK(amplification(path, ranks, 0, {}) <= 1.4);
    }
  }
}

TEST_CASE("each of several readers reads a part of what is shared") {
  mg::TensorEntry entry(mg::DType::float32, {64, 1024});
  std::vector<mg::TensorEntry> many(40, entry);
  mg::LoadOptions options;
  mg::detail::SharedReads shared(4, 1, options);
  for (std::size_t t = 0; t < many.size(); ++t) {
    many[t].add_chunk(mg::whole({64, 1024}), {.file = 0, .offset = t << 20, .length = 64 * 1024 * 4 + 1024});
    for (int rank = 0; rank < 4; ++rank) shared.count(many[t], 0, {{0, 256 * rank}, {64, 256}});
    REQUIRE(shared.shared(many[t], 0));
    for (int rank = 0; rank < 4; ++rank) shared.share(many[t], 0, "key", rank, 0, {{0, 256 * rank}, {64, 256}});
  }
  const std::vector<std::string> files{"__0_0.distcp"};
  const auto messages = shared.assign(files);
  std::vector<int> reads;
  for (const auto& message : messages) {
    mg::WireReader reader(message);
    int count = 0;
    for (; !reader.text().empty(); ++count) {
      static_cast<void>(reader.text());
      for (int i = 0; i < 4; ++i) static_cast<void>(reader.number());
      static_cast<void>(reader.dims(2));
      static_cast<void>(reader.box(2));
      for (auto n = reader.number(); n > 0; --n) {
        static_cast<void>(reader.number());
        static_cast<void>(reader.box(2));
      }
    }
    reads.push_back(count);
  }
  CHECK(std::accumulate(reads.begin(), reads.end(), 0) == 40);
  for (const int count : reads) CHECK(count >= 5);
}

TEST_CASE("what no two ranks read twice is left to each of them") {
  mg::TensorEntry entry(mg::DType::float32, {4096, 4096});
  entry.add_chunk(mg::whole(entry.shape), {.file = 0, .offset = 0, .length = (std::uint64_t{64} << 20) + 1024});
  mg::detail::SharedReads shared(2, 262144, {});
  shared.count(entry, 0, {{0, 0}, {2048, 4096}});
  CHECK(!shared.shared(entry, 0));  // one rank only
  shared.count(entry, 0, {{2048, 0}, {2048, 4096}});
  CHECK(!shared.shared(entry, 0));  // two halves
  mg::detail::SharedReads columns(2, 262144, {});
  columns.count(entry, 0, {{0, 0}, {4096, 2048}});
  columns.count(entry, 0, {{0, 2048}, {4096, 2048}});
  CHECK(columns.shared(entry, 0));
}
