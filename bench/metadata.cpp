// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// Writing and reading the `.metadata` of a large checkpoint: TENSORS tensors of rank 2 in CHUNKS_EACH chunks each. A rank of
// the save owned one chunk of every tensor; `parse-part` looks for those that it reads again.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/core/box.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/io/posix.hpp>
#include <mgroups/io/sequential_writer.hpp>

namespace mg = mgroups;

namespace {

constexpr std::int64_t rows_each = 512, columns = 4096;

std::string key_of(int tensor) { return mg::concat("decoder.layers.", 10000 + tensor, ".mlp.linear_fc1.weight"); }
mg::Box box_of(int chunk) { return {{rows_each * chunk, 0}, {rows_each, columns}}; }

mg::CheckpointMetadata describe(int tensors, int chunks_each) {
  mg::CheckpointMetadata out;
  constexpr std::uint64_t item_bytes = 2 * rows_each * columns + 1024;
  for (int rank = 0; rank < chunks_each; ++rank) out.files.push_back(mg::concat("__", rank, "_0.distcp"));
  for (int i = 0; i < tensors; ++i) {
    mg::TensorEntry entry(mg::DType::bfloat16, {rows_each * chunks_each, columns});
    entry.reserve(static_cast<std::size_t>(chunks_each));
    for (int k = 0; k < chunks_each; ++k) {
      entry.add_chunk(box_of(k), {static_cast<std::uint32_t>(k), item_bytes * static_cast<std::uint64_t>(i), item_bytes});
    }
    out.paths[key_of(i)] = {key_of(i)};
    out.tensors.emplace(key_of(i), std::move(entry));
  }
  return out;
}

std::size_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return 1024 * static_cast<std::size_t>(std::atoll(line.c_str() + 6));
  }
  return 0;
}

struct Times {
  double seconds = 0, cpu_seconds = 0;
};
template <class F>
Times timed(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t cpu = std::clock();
  f();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
          static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC};
}

std::vector<std::byte> read_file(const std::string& path) {
  const auto file = mg::posix_file_system().open_read(path);
  std::vector<std::byte> bytes(file->size());
  file->read_at(0, bytes);
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view verb = argc == 5 ? argv[1] : "";
  if (verb != "write" && verb != "parse" && verb != "parse-part") {
    std::fprintf(stderr, "usage: metadata write|parse|parse-part TENSORS CHUNKS_EACH FILE\n");
    return 2;
  }
  const int tensors = std::atoi(argv[2]), chunks_each = std::atoi(argv[3]);
  const std::string path = argv[4];
  std::size_t bytes = 0, before = 0, chunks = 0;
  Times times;
  if (verb == "write") {
    const mg::CheckpointMetadata metadata = describe(tensors, chunks_each);
    mg::posix_file_system().remove_all(path);
    before = peak_bytes();
    times = timed([&] {
      mg::BlockChecksums sums;
      mg::SequentialWriter out(mg::posix_file_system().create(path), 0, std::size_t{1} << 20, &sums);
      mg::write_metadata(metadata, [&](std::span<const std::byte> block) { out.append(block); });
      out.finish();
      bytes = sums.file_bytes;
    });
    for (const auto& [key, tensor] : metadata.tensors) chunks += tensor.chunk_count();
  } else {
    const std::vector<std::byte> input = read_file(path);
    bytes = input.size();
    mg::CheckpointMetadata metadata;
    mg::MetadataFilter wanted;
    for (int i = 0; i < tensors; ++i) wanted.want(key_of(i), box_of(chunks_each / 2));
    before = peak_bytes();
    times = timed(
        [&] { metadata = verb == "parse" ? mg::parse_metadata(input, path) : mg::parse_metadata(input, path, wanted); });
    for (const auto& [key, tensor] : metadata.tensors) chunks += tensor.chunk_count();
  }
  std::printf(
      "{\"seconds\": %.6f, \"cpu_seconds\": %.6f, \"bytes\": %zu, \"peak_bytes\": %zu, \"peak_bytes_before\": %zu, "
      "\"chunks\": %zu}\n",
      times.seconds, times.cpu_seconds, bytes, peak_bytes(), before, chunks);
  return 0;
}
