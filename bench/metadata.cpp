// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// Writing and reading the `.metadata` of a large checkpoint: TENSORS tensors of rank 2 in CHUNKS_EACH chunks each. A rank of
// the save owned one chunk of every tensor; `parse-part` looks for those that it reads again.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/directory.hpp>
#include <mgroups/core/box.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/io/posix.hpp>
#include <mgroups/io/sequential_writer.hpp>

#include "peak_bytes.hpp"
#include "support/stopwatch.hpp"

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
  Seconds taken;
  if (verb == "write") {
    const mg::CheckpointMetadata metadata = describe(tensors, chunks_each);
    mg::posix_file_system().remove_all(path);
    before = peak_bytes();
    const Stopwatch watch;
    {
      mg::BlockChecksums sums;
      mg::SequentialWriter out(mg::posix_file_system().create(path), 0, std::size_t{1} << 20, &sums);
      mg::write_metadata(metadata, [&](std::span<const std::byte> block) { out.append(block); });
      out.finish();
      bytes = sums.file_bytes;
    }
    taken = watch.read();
    for (const auto& [key, tensor] : metadata.tensors) chunks += tensor.chunk_count();
  } else {
    const std::vector<std::byte> input = mg::detail::read_whole_file(mg::posix_file_system(), path);
    bytes = input.size();
    mg::CheckpointMetadata metadata;
    mg::MetadataFilter wanted;
    for (int i = 0; i < tensors; ++i) wanted.want(key_of(i), box_of(chunks_each / 2));
    before = peak_bytes();
    const Stopwatch watch;
    metadata = verb == "parse" ? mg::parse_metadata(input, path) : mg::parse_metadata(input, path, wanted);
    taken = watch.read();
    for (const auto& [key, tensor] : metadata.tensors) chunks += tensor.chunk_count();
  }
  std::printf(
      "{\"seconds\": %.6f, \"cpu_seconds\": %.6f, \"bytes\": %zu, \"peak_bytes\": %zu, \"peak_bytes_before\": %zu, "
      "\"chunks\": %zu}\n",
      taken.wall, taken.cpu, bytes, peak_bytes(), before, chunks);
  return 0;
}
