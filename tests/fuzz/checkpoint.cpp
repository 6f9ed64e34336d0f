// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <mgroups/checkpoint/reader.hpp>
#include <mgroups/core/box.hpp>
#include <mgroups/core/tensor_view.hpp>

#include "harness.hpp"
#include "support/memory_files.hpp"

namespace mgroups_fuzz {

constexpr std::int64_t most_elements = 64 << 10;
constexpr std::size_t most_items = 16;

/// Reads tensors whole, and the middle of each as float32.
void read_all(mgroups::CheckpointReader& reader, bool whole) {
  std::size_t count = 0;
  for (const auto& [key, tensor] : reader.metadata().tensors) {
    if (count++ == most_items) return;
    mgroups::Box part = mgroups::whole(tensor.shape);
    for (int axis = 0; axis < part.rank() && !whole; ++axis) {
      part.offsets[axis] = part.sizes[axis] / 4;
      part.sizes[axis] = std::min<std::int64_t>((part.sizes[axis] + 1) / 2, 3);
    }
    if (part.volume() > most_elements) continue;
    const mgroups::DType dtype = whole ? tensor.dtype : mgroups::DType::float32;
    std::vector<std::byte> data(static_cast<std::size_t>(part.volume()) * mgroups::size_of(dtype));
    succeeds([&] { reader.read(key, part, {data.data(), dtype, part.sizes, mgroups::row_major_strides(part.sizes)}); });
  }
}

/// Reads objects, and the common state out of them or of its own file.
void read_objects(mgroups::CheckpointReader& reader) {
  std::size_t count = 0;
  for (const auto& [key, storage] : reader.metadata().objects) {
    if (count++ == most_items) break;
    succeeds([&] { static_cast<void>(reader.read_object(key).understood()); });
  }
  succeeds([&] { static_cast<void>(reader.read_common().understood()); });
}

/// The input is `.metadata`, `metadata.json`, `common.pt` and data files, of which any may be empty.
void run(Bytes input) {
  static const char* const names[] = {".metadata",    "metadata.json", "common.pt",   "__0_0.distcp",
                                      "__0_1.distcp", "__1_0.distcp",  "__1_1.distcp"};
  MemoryFiles files;
  const auto parts = split_files(input);
  for (std::size_t i = 0; i < std::min(parts.size(), std::size(names)); ++i) {
    if (!parts[i].empty()) files.add(std::string("saved/") + names[i], parts[i]);
  }
  const MemoryLimit limit(512 * input.size() + (24 << 20));
  for (const bool whole : {true, false}) {
    succeeds([&] {
      mgroups::LoadOptions options;
      options.files = &files;
      options.convert_dtype = !whole;
      options.buffer_bytes = 64 << 10;
      mgroups::CheckpointReader reader("saved", options);
      read_all(reader, whole);
      if (whole) read_objects(reader);
    });
  }
}

}  // namespace mgroups_fuzz
