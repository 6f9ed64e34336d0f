// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <mgroups/core/box.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {
class MetadataReader;
class MetadataPlaces;
}  // namespace detail

/// Where one item lies: `length` bytes from `offset` on, in file `file` of CheckpointMetadata::files.
struct StorageInfo {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  [[nodiscard]] friend bool operator==(const StorageInfo&, const StorageInfo&) = default;
};

/// A tensor of a checkpoint and the chunks that it is stored in: 24 bytes a chunk and 16 a chunk and axis.
class TensorEntry {
 public:
  DType dtype = DType::float32;
  Dims shape;

  TensorEntry() = default;
  TensorEntry(DType dtype_of_all, const Dims& global_shape) : dtype(dtype_of_all), shape(global_shape) {}

  [[nodiscard]] std::size_t chunk_count() const noexcept { return storage_.size(); }
  [[nodiscard]] Box chunk_box(std::size_t i) const { return {Dims(offsets(i)), Dims(sizes(i))}; }
  [[nodiscard]] const StorageInfo& chunk_storage(std::size_t i) const noexcept { return storage_[i]; }
  /// Offsets of chunk `i`, one number per axis, where they lie.
  [[nodiscard]] std::span<const std::int64_t> offsets(std::size_t i) const noexcept { return numbers(2 * i); }
  [[nodiscard]] std::span<const std::int64_t> sizes(std::size_t i) const noexcept { return numbers(2 * i + 1); }

  /// Throws InvalidArgument when the box is no part of the shape.
  void add_chunk(const Box& box, StorageInfo storage) {
    if (const auto fault = box_fault(box, shape))
      throw InvalidArgument(concat("a chunk is no part of its tensor: ", *fault));
    numbers_.insert(numbers_.end(), box.offsets.begin(), box.offsets.end());
    numbers_.insert(numbers_.end(), box.sizes.begin(), box.sizes.end());
    storage_.push_back(storage);
  }
  void reserve(std::size_t chunks) {
    numbers_.reserve(chunks * 2 * shape.size());
    storage_.reserve(chunks);
  }

  [[nodiscard]] friend bool operator==(const TensorEntry&, const TensorEntry&) = default;

 private:
  friend class detail::MetadataReader;
  friend class detail::MetadataPlaces;
  [[nodiscard]] std::span<const std::int64_t> numbers(std::size_t i) const noexcept {
    return std::span(numbers_).subspan(i * shape.size(), shape.size());
  }
  std::vector<std::int64_t> numbers_;  // offsets, then sizes, of each chunk
  std::vector<StorageInfo> storage_;
};

/// A step on the way to a value in a nested state dict: a dict's key or a list's index.
using PathElement = std::variant<std::string, std::int64_t>;

/// What `.metadata` says of a checkpoint.
struct CheckpointMetadata {
  std::vector<std::string> files;  ///< relative paths of data files
  std::map<std::string, TensorEntry, std::less<>> tensors;
  std::map<std::string, StorageInfo, std::less<>> objects;

  /// PyTorch's `planner_data`: where each key lay in the nested state dict. May be empty.
  std::map<std::string, std::vector<PathElement>, std::less<>> paths;
  /// Megatron's `nd_reformulated_orig_global_shape`: the true shape of tensors stored as flattened ranges
  /// (Megatron-Core <= 0.15).
  std::map<std::string, Dims, std::less<>> original_shapes;
  /// Tensors that a MetadataFilter has left out, sorted.
  std::vector<std::string> left_out;
  /// Keys that are stored in a way which mgroups cannot read, and why: a dtype or layout that it does not know (such keys
  /// are not among `tensors`), or a transform, `stream.zstd/1` for one (such keys are).
  std::map<std::string, std::string, std::less<>> unreadable;
  std::string version;       ///< as the file says; empty where it says none
  std::string save_id;       ///< ours: ties the file to the checksums beside it; empty in files of other writers
  std::string writer_class;  ///< module and name of the root's class; set by the reader
};

MGROUPS_END_NAMESPACE
