// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <mgroups/checkpoint/safetensors_reader.hpp>
#include <mgroups/core/box.hpp>
#include <mgroups/core/tensor_view.hpp>

#include "harness.hpp"
#include "support/memory_files.hpp"

namespace mgroups_fuzz {

constexpr std::int64_t most_elements = 64 << 10;

/// Reads every tensor whole, and its middle as float32.
void read_all(const std::string& path, MemoryFiles& files) {
  mgroups::SafetensorsReader reader(path, &files);
  for (const auto& [name, tensor] : reader.model().tensors) {
    const auto read = [&](const mgroups::Box& part, mgroups::DType dtype) {
      if (part.volume() > most_elements) return;
      std::vector<std::byte> data(static_cast<std::size_t>(part.volume()) * mgroups::size_of(dtype));
      reader.read(name, part, {data.data(), dtype, part.sizes, mgroups::row_major_strides(part.sizes)});
    };
    succeeds([&] { read(mgroups::whole(tensor.shape), tensor.element_type(name)); });
    mgroups::Box middle = mgroups::whole(tensor.shape);
    for (int axis = 0; axis < middle.rank(); ++axis) {
      middle.offsets[axis] = middle.sizes[axis] / 4;
      middle.sizes[axis] = std::min<std::int64_t>((middle.sizes[axis] + 1) / 2, 3);
    }
    succeeds([&] { read(middle, mgroups::DType::float32); });
  }
}

/// The input is an index (none where it is empty) and the files of the model.
void run(Bytes input) {
  MemoryFiles files;
  const auto parts = split_files(input);
  for (std::size_t i = 0; i < std::min<std::size_t>(parts.size(), 5); ++i) {
    if (i == 0 && parts[0].empty()) continue;
    files.add(
        i == 0 ? "model/model.safetensors.index.json" : "model/model-0000" + std::to_string(i) + "-of-00002.safetensors",
        parts[i]);
  }
  const MemoryLimit limit(128 * input.size() + (5 << 20));
  for (const char* const path : {"model", "model/model-00001-of-00002.safetensors"}) {
    succeeds([&] { read_all(path, files); });
  }
}

}  // namespace mgroups_fuzz
