// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <mgroups/core/box.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Which copy of a shard a rank holds. The main copy has only zeros (or nothing at all); each box must have exactly one.
/// Megatron's convention for model tensors is `(0 or copy number, tp rank, dp_cp rank)`, with a zero where the tensor is
/// split.
struct ReplicaId {
  Dims values;

  ReplicaId() = default;
  ReplicaId(std::int64_t value) : values{value} {}  // a plain number is a replica id, as in Megatron
  ReplicaId(std::initializer_list<std::int64_t> list) : values(list) {}

  [[nodiscard]] bool is_main() const noexcept {
    for (const std::int64_t value : values) {
      if (value != 0) return false;
    }
    return true;
  }
  [[nodiscard]] friend bool operator==(const ReplicaId&, const ReplicaId&) = default;
};

/// How a local tensor sits in its global tensor: everything of a `ShardedTensor` but the data. Sizes and offsets are in
/// elements. `global_shape` and `global_offset` have `prepend_axis_num` axes more than the local tensor; the local tensor
/// has size one along those.
struct ShardLayout {
  std::string key;
  DType dtype = DType::float32;
  Dims local_shape;
  Dims global_shape;
  Dims global_offset;
  std::optional<Dims> axis_fragmentations;  ///< parts per axis of a regular grid; none where shards are uneven
  ReplicaId replica_id;
  int prepend_axis_num = 0;
  bool allow_shape_mismatch = false;  ///< a stored tensor of another size is read as far as it goes, the rest becomes zero

  /// The part of the global tensor that this shard holds.
  [[nodiscard]] Box box() const {
    Box out{global_offset, Dims::filled(prepend_axis_num, 1)};
    for (const std::int64_t size : local_shape) out.sizes.push_back(size);
    return out;
  }
};

/// A local tensor and its place in the global one.
template <tensor_handle T>
struct ShardedTensor : ShardLayout {
  T data;
};

/// One split axis of a regular grid: this rank's tensor is part `index` of `parts` along `axis` (prepended axes counted).
struct RankOffset {
  int axis = 0;
  std::int64_t index = 0;
  std::int64_t parts = 1;
};

/// What `make_sharded` takes beside key and data; Megatron's names.
struct ShardOptions {
  ReplicaId replica_id = {};
  int prepend_axis_num = 0;
  bool allow_shape_mismatch = false;
};

namespace detail {

inline void check_layout(const ShardLayout& layout) {
  const auto fail = [&](const std::string& reason) {
    throw InvalidArgument(concat("sharded tensor '", layout.key, "': ", reason), {.key = layout.key});
  };
  if (layout.prepend_axis_num < 0) fail(concat("prepend_axis_num is ", layout.prepend_axis_num, "; it cannot be negative"));
  if (layout.global_shape.rank() != layout.local_shape.rank() + layout.prepend_axis_num) {
    fail(concat("global shape ", to_string(layout.global_shape), " must have the ", layout.local_shape.rank(),
                " axes of local shape ", to_string(layout.local_shape), " and ", layout.prepend_axis_num,
                " prepended ones"));
  }
  if (const auto fault = box_fault(layout.box(), layout.global_shape)) fail(*fault);
  if (!checked_numel(layout.global_shape)) {
    fail(concat("global shape ", to_string(layout.global_shape), " has more than 2^63 elements"));
  }
  if (layout.axis_fragmentations && layout.axis_fragmentations->rank() != layout.global_shape.rank()) {
    fail(concat("axis_fragmentations ", to_string(*layout.axis_fragmentations),
                " must have one number per axis of global shape ", to_string(layout.global_shape)));
  }
}

}  // namespace detail

/// A shard at any place: the general form, uneven splits included. Local. Throws InvalidArgument when the local tensor at
/// `global_offset` leaves `global_shape`.
template <tensor_handle T>
[[nodiscard]] ShardedTensor<T> make_sharded_at(std::string key, T data, const Dims& global_shape, const Dims& global_offset,
                                               const ShardOptions& options = {}) {
  const TensorView view = tensor_traits<T>::view(data);
  ShardedTensor<T> out{{.key = std::move(key),
                        .dtype = view.dtype,
                        .local_shape = view.shape,
                        .global_shape = global_shape,
                        .global_offset = global_offset,
                        .axis_fragmentations = std::nullopt,
                        .replica_id = options.replica_id,
                        .prepend_axis_num = options.prepend_axis_num,
                        .allow_shape_mismatch = options.allow_shape_mismatch},
                       std::move(data)};
  detail::check_layout(out);
  return out;
}

/// A shard of a regular grid, Megatron's `ShardedTensor.from_rank_offsets`: along each named axis all parts have this
/// tensor's size (a prepended axis has one index per part), so the global size is the local one times `parts`. Axes that
/// are not named are whole. Local. Throws InvalidArgument for an axis that does not exist or is named twice, and for an
/// index outside the parts.
template <tensor_handle T>
[[nodiscard]] ShardedTensor<T> make_sharded_grid(std::string key, T data, std::span<const RankOffset> rank_offsets,
                                                 const ShardOptions& options = {}) {
  const TensorView view = tensor_traits<T>::view(data);
  Dims sizes = Dims::filled(options.prepend_axis_num, 1);
  for (const std::int64_t size : view.shape) sizes.push_back(size);
  Dims global_shape = sizes, global_offset = Dims::filled(sizes.rank(), 0), fragmentations = Dims::filled(sizes.rank(), 1);
  Dims named = Dims::filled(sizes.rank(), 0);
  for (const RankOffset& split : rank_offsets) {
    if (split.axis < 0 || split.axis >= sizes.rank() || split.parts < 1 || split.index < 0 || split.index >= split.parts ||
        named[split.axis]++ > 0) {
      throw InvalidArgument(
          concat("sharded tensor '", key, "': part ", split.index, " of ", split.parts, " on axis ", split.axis,
                 " is impossible for ", sizes.rank(), " axes; name each axis once and number parts from 0"),
          {.key = key});
    }
    const auto global = checked_mul(sizes[split.axis], split.parts);
    if (!global) throw InvalidArgument(concat("sharded tensor '", key, "' has more than 2^63 elements"), {.key = key});
    global_shape[split.axis] = *global;
    global_offset[split.axis] = sizes[split.axis] * split.index;
    fragmentations[split.axis] = split.parts;
  }
  ShardedTensor<T> out = make_sharded_at(std::move(key), std::move(data), global_shape, global_offset, options);
  out.axis_fragmentations = fragmentations;
  return out;
}

template <tensor_handle T>
[[nodiscard]] ShardedTensor<T> make_sharded_grid(std::string key, T data, std::initializer_list<RankOffset> rank_offsets,
                                                 const ShardOptions& options = {}) {
  return make_sharded_grid(std::move(key), std::move(data), std::span(rank_offsets.begin(), rank_offsets.size()), options);
}

/// A tensor that is whole on this rank. Local.
template <tensor_handle T>
[[nodiscard]] ShardedTensor<T> make_whole(std::string key, T data, const ShardOptions& options = {}) {
  return make_sharded_grid(std::move(key), std::move(data), std::span<const RankOffset>{}, options);
}

MGROUPS_END_NAMESPACE
