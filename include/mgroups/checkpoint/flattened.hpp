// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <mgroups/core/box.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/format/countable.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// A box of a tensor that lies, row-major, in a run of the elements of a stored chunk.
struct FlatPiece {
  Box box;
  std::size_t chunk = 0;
  std::int64_t first = 0;  ///< the run's first element in the chunk
};

/// The boxes that a range of the flattened cell makes: first the rest of a row, then whole rows, at each level.
inline void add_flat_boxes(const Dims& cell_offset, const Dims& cell_shape, std::int64_t begin, std::int64_t end,
                           std::size_t chunk, std::vector<FlatPiece>& out) {
  const std::int64_t start = begin;
  const Dims strides = row_major_strides(cell_shape);
  while (begin < end) {
    // The outermost axis of which the range holds a whole step from here on.
    int axis = 0;
    while (axis < cell_shape.rank() && (begin % strides[axis] != 0 || end - begin < strides[axis])) ++axis;
    Dims offsets = cell_offset, sizes = Dims::filled(cell_shape.rank(), 1);
    std::int64_t rest = begin, taken = 1;
    for (int i = 0; i < cell_shape.rank(); ++i) {
      const std::int64_t index = rest / strides[i];
      rest %= strides[i];
      offsets[i] += index;
      if (i == axis) {
        sizes[i] = std::min((end - begin) / strides[i], cell_shape[i] - index);
        taken = sizes[i] * strides[i];
      } else if (i > axis) {
        sizes[i] = cell_shape[i];
      }
    }
    out.push_back({{offsets, sizes}, chunk, begin - start});
    begin += taken;
  }
}

/// What the chunks of a tensor that Megatron-Core up to 0.15 stored as flattened ranges hold of its true `shape`. The
/// stored tensor has the cells of a regular grid and then one axis, the elements of one cell (Megatron's
/// `nd_flattened_tensor_reformulated_global_shape`). Nothing where the stored sizes are not of that form.
[[nodiscard]] inline std::optional<std::vector<FlatPiece>> flat_pieces(const TensorEntry& stored, const Dims& shape) {
  const int rank = shape.rank();
  if (stored.shape.rank() != rank + 1) return std::nullopt;
  Dims cell = shape;
  for (int axis = 0; axis < rank; ++axis) {
    const std::int64_t parts = stored.shape[axis];
    if (parts < 1 || shape[axis] % parts != 0) return std::nullopt;
    cell[axis] = shape[axis] / parts;
  }
  if (!countable(cell) || numel(cell) != stored.shape[rank]) return std::nullopt;
  std::vector<FlatPiece> out;
  for (std::size_t i = 0; i < stored.chunk_count(); ++i) {
    const Box chunk = stored.chunk_box(i);
    if (chunk.empty()) continue;
    Dims offset = cell;
    for (int axis = 0; axis < rank; ++axis) {
      if (chunk.sizes[axis] != 1) return std::nullopt;
      offset[axis] *= chunk.offsets[axis];
    }
    const std::int64_t begin = chunk.offsets[rank];
    add_flat_boxes(offset, cell, begin, begin + chunk.sizes[rank], i, out);
  }
  return out;
}

/// A tensor that was stored as flattened ranges, as what it is.
struct FlattenedTensor {
  TensorEntry entry;              ///< of the true shape; a chunk for each piece
  std::vector<FlatPiece> pieces;  ///< where each of them lies
};

/// Nothing where the tensor `key` was not stored as flattened ranges.
[[nodiscard]] inline std::optional<FlattenedTensor> flattened_tensor(const CheckpointMetadata& metadata,
                                                                     std::string_view key, const TensorEntry& stored) {
  const auto shape = metadata.original_shapes.find(key);
  if (shape == metadata.original_shapes.end()) return std::nullopt;
  auto pieces = flat_pieces(stored, shape->second);
  if (!pieces) return std::nullopt;
  FlattenedTensor out{TensorEntry(stored.dtype, shape->second), std::move(*pieces)};
  for (const FlatPiece& piece : out.pieces) out.entry.add_chunk(piece.box, stored.chunk_storage(piece.chunk));
  return out;
}

/// The tensors of a checkpoint as somebody asks for them: one that Megatron-Core stored as flattened ranges can be asked for
/// in its true shape.
class TensorsInTrueShape {
 public:
  struct Flattened {
    const FlattenedTensor* tensor;
    const TensorEntry* stored;
  };

  explicit TensorsInTrueShape(const CheckpointMetadata& metadata) : metadata_(metadata) {}

  /// The stored tensor, or what it is when it is asked for with `rank` axes. Valid as long as this.
  [[nodiscard]] const TensorEntry& seen(std::string_view key, const TensorEntry& stored, int rank) {
    if (rank + 1 != stored.shape.rank() || metadata_.original_shapes.empty()) return stored;
    auto known = flattened_.find(&stored);
    if (known == flattened_.end()) {
      known = flattened_.emplace(&stored, flattened_tensor(metadata_, key, stored)).first;
      if (known->second) by_entry_.emplace(&known->second->entry, Flattened{&*known->second, &stored});
    }
    return known->second ? known->second->entry : stored;
  }
  /// How a tensor that `seen` returned was stored; null where as it is.
  [[nodiscard]] const Flattened* flattened(const TensorEntry& tensor) const {
    const auto found = by_entry_.find(&tensor);
    return found != by_entry_.end() ? &found->second : nullptr;
  }

 private:
  const CheckpointMetadata& metadata_;
  std::map<const TensorEntry*, std::optional<FlattenedTensor>> flattened_;
  std::unordered_map<const TensorEntry*, Flattened> by_entry_;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
