// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/core/box.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/io/file.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// `__0.metadata`, `__1.metadata` ...: what PyTorch from 2.9 on writes in place of `.metadata` when ranks save without
/// collectives, each of its own items. Sorted by name; empty where there are none.
[[nodiscard]] inline std::vector<std::string> rank_metadata_names(FileSystem& files, const std::string& directory) {
  std::vector<std::string> out;
  if (files.status(directory).kind != FileKind::directory) return out;
  for (const std::string& name : files.list(directory)) {
    const std::string_view ending = ".metadata";
    if (!name.starts_with("__") || !name.ends_with(ending)) continue;
    const std::string_view digits = std::string_view(name).substr(2, name.size() - 2 - ending.size());
    if (!digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos) out.push_back(name);
  }
  return out;
}

/// Adds what one rank says to what others have said: chunks that are there already are replicas. Throws FormatError where
/// two ranks contradict each other.
inline void merge_metadata(CheckpointMetadata& whole, const CheckpointMetadata& part, const std::string& file) {
  std::vector<std::uint32_t> numbers;
  for (const std::string& name : part.files) {
    const auto found = std::find(whole.files.begin(), whole.files.end(), name);
    numbers.push_back(static_cast<std::uint32_t>(found - whole.files.begin()));
    if (found == whole.files.end()) whole.files.push_back(name);
  }
  const auto renumbered = [&](StorageInfo at) {
    at.file = numbers[at.file];
    return at;
  };
  for (const auto& [key, tensor] : part.tensors) {
    TensorEntry& entry = whole.tensors.try_emplace(key, tensor.dtype, tensor.shape).first->second;
    if (entry.dtype != tensor.dtype || entry.shape != tensor.shape) {
      throw FormatError(concat(file, ": '", key, "' is ", name(tensor.dtype), " ", to_string(tensor.shape), ", but ",
                               name(entry.dtype), " ", to_string(entry.shape), " for another rank"),
                        {.key = key, .file = file});
    }
    std::set<Box> known;
    for (std::size_t i = 0; i < entry.chunk_count(); ++i) known.insert(entry.chunk_box(i));
    for (std::size_t i = 0; i < tensor.chunk_count(); ++i) {
      if (known.insert(tensor.chunk_box(i)).second)
        entry.add_chunk(tensor.chunk_box(i), renumbered(tensor.chunk_storage(i)));
    }
  }
  for (const auto& [key, at] : part.objects) whole.objects.try_emplace(key, renumbered(at));
  whole.paths.insert(part.paths.begin(), part.paths.end());
  whole.original_shapes.insert(part.original_shapes.begin(), part.original_shapes.end());
  whole.unreadable.insert(part.unreadable.begin(), part.unreadable.end());
  std::vector<std::string> left_out;
  std::set_union(whole.left_out.begin(), whole.left_out.end(), part.left_out.begin(), part.left_out.end(),
                 std::back_inserter(left_out));
  whole.left_out = std::move(left_out);
  whole.version = part.version;
  whole.writer_class = part.writer_class;
}

}  // namespace detail

MGROUPS_END_NAMESPACE
