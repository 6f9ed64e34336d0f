// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/checkpoint/read_part.hpp>
#include <mgroups/core/box.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/format/safetensors.hpp>
#include <mgroups/io/posix.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Reads single tensors, or parts of them, out of safetensors files: one file, a folder with a sharded model and its
/// index, or the shards that DCP's Hugging Face writer leaves. Local, blocking. One object may be used by one thread at a
/// time.
class SafetensorsReader {
 public:
  /// Reads and checks headers and index. Throws FormatError naming file and tensor, IoError.
  explicit SafetensorsReader(const std::string& path, FileSystem* files = nullptr,
                             SafetensorsFaults faults = SafetensorsFaults::refuse)
      : files_(files != nullptr ? *files : posix_file_system()),
        model_(open_safetensors(files_, path, faults)),
        open_files_(model_.files.size()),
        part_reader_(std::size_t{2} << 20) {}
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  [[nodiscard]] const SafetensorsModel& model() const noexcept { return model_; }

  /// Reads `part` of a tensor into `target`, which has the part's shape, any strides, and the stored dtype or one that it
  /// converts to. Throws InvalidArgument for a key or part that is not stored, UnsupportedError for an element type that
  /// cannot be read, IoError.
  void read(std::string_view key, const Box& part, const TensorView& target) {
    const auto found = model_.tensors.find(key);
    if (const auto reason = model_.unreadable.find(key); reason != model_.unreadable.end())
      throw FormatError(reason->second, {.key = std::string(key)});
    if (found == model_.tensors.end())
      throw InvalidArgument(concat("there is no tensor '", key, "'"), {.key = std::string(key)});
    const DType dtype = found->second.element_type(key);
    if (const auto fault = box_fault(part, found->second.shape)) {
      throw InvalidArgument(concat("no such part of tensor '", key, "': ", *fault), {.key = std::string(key)});
    }
    for (const SafetensorsPart& stored : found->second.parts) {
      const auto common = intersection(part, stored.box);
      if (!common) continue;
      std::unique_ptr<File>& file = open_files_[stored.file];
      if (!file) file = files_.open_read(model_.files[stored.file]);
      const Dims strides = row_major_strides(stored.box.sizes);
      std::int64_t first = 0;
      for (int axis = 0; axis < strides.rank(); ++axis)
        first += (common->offsets[axis] - stored.box.offsets[axis]) * strides[axis];
      part_reader_.read(*file, stored.begin + static_cast<std::uint64_t>(first) * size_of(dtype),
                        {nullptr, dtype, common->sizes, strides}, target.part(relative_to(*common, part)));
    }
  }

 private:
  FileSystem& files_;
  SafetensorsModel model_;
  std::vector<std::unique_ptr<File>> open_files_;
  detail::PartReader part_reader_;
};

MGROUPS_END_NAMESPACE
