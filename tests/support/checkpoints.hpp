// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/core/crc32.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/format/torch_dist/archive.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>

#include "fixtures.hpp"

namespace mgroups_test {

/// Calls `f(position of the element in row-major order, its index)` for each element of a shape.
template <class F>
void for_each_element(const mgroups::Dims& shape, F&& f) {
  mgroups::Dims at = mgroups::Dims::filled(shape.rank(), 0);
  const std::int64_t total = mgroups::numel(shape);
  for (std::int64_t n = 0; n < total; ++n) {
    f(n, at);
    for (int axis = shape.rank() - 1; axis >= 0 && ++at[axis] == shape[axis]; --axis) at[axis] = 0;
  }
}

/// A checkpoint read element by element: slow and plain, so that it can judge.
class PlainCheckpoint {
 public:
  explicit PlainCheckpoint(const std::string& directory)
      : directory_(directory), metadata_bytes_(file_bytes(directory + "/.metadata")) {
    metadata = mgroups::parse_metadata(metadata_bytes_, ".metadata");
  }

  /// The bytes of one item.
  [[nodiscard]] std::span<const std::byte> item(const mgroups::StorageInfo& info) {
    const std::string& name = metadata.files[info.file];
    const auto found = files_.find(name);
    const auto& bytes =
        found != files_.end() ? found->second : files_.emplace(name, file_bytes(directory_ + "/" + name)).first->second;
    if (info.offset + info.length > bytes.size()) throw mgroups::FormatError(name + " is too short");
    return std::span(bytes).subspan(info.offset, info.length);
  }

  /// The whole tensor's row-major bytes; bytes that no chunk holds are 0xEE.
  [[nodiscard]] std::vector<std::byte> tensor(std::string_view key) {
    const mgroups::TensorEntry& entry = metadata.tensors.find(key)->second;
    const std::size_t width = mgroups::size_of(entry.dtype);
    const mgroups::Dims strides = mgroups::row_major_strides(entry.shape);
    std::vector<std::byte> out(static_cast<std::size_t>(mgroups::numel(entry.shape)) * width, std::byte{0xEE});
    for (std::size_t i = 0; i < entry.chunk_count(); ++i) {
      const auto bytes = item(entry.chunk_storage(i));
      const auto stored =
          mgroups::read_tensor_archive(bytes, bytes.size(), metadata.files[entry.chunk_storage(i).file], key);
      const auto box = entry.chunk_box(i);
      if (stored.shape != box.sizes || stored.dtype != entry.dtype) throw mgroups::FormatError("chunk and archive differ");
      if (stored.crc != mgroups::crc32(bytes.subspan(stored.storage_begin, stored.storage_bytes))) {
        throw mgroups::FormatError("checksum of the storage differs");
      }
      for_each_element(box.sizes, [&](std::int64_t, const mgroups::Dims& at) {
        std::int64_t from = 0, to = 0;
        for (int axis = 0; axis < box.rank(); ++axis) {
          from += at[axis] * stored.strides[axis];
          to += (at[axis] + box.offsets[axis]) * strides[axis];
        }
        std::memcpy(out.data() + static_cast<std::size_t>(to) * width,
                    bytes.data() + stored.data_offset + static_cast<std::size_t>(from) * width, width);
      });
    }
    return out;
  }

  mgroups::CheckpointMetadata metadata;

 private:
  std::string directory_;
  std::vector<std::byte> metadata_bytes_;
  std::map<std::string, std::vector<std::byte>> files_;
};

}  // namespace mgroups_test
