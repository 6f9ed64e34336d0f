// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include <mgroups/core/dims.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// An axis-aligned part of a tensor: `sizes` elements per axis from `offsets` on. A zero-dimensional box holds one element.
struct Box {
  Dims offsets;
  Dims sizes;

  [[nodiscard]] constexpr int rank() const noexcept { return sizes.rank(); }
  [[nodiscard]] constexpr std::int64_t volume() const noexcept { return numel(sizes); }
  [[nodiscard]] constexpr bool empty() const noexcept { return volume() == 0; }
  [[nodiscard]] friend constexpr bool operator==(const Box&, const Box&) = default;
  [[nodiscard]] friend constexpr auto operator<=>(const Box&, const Box&) = default;
};

/// The whole of a tensor of this shape.
[[nodiscard]] constexpr Box whole(const Dims& shape) { return {Dims::filled(shape.rank(), 0), shape}; }

/// The common part of two boxes of equal rank, or nothing where no element is common.
[[nodiscard]] constexpr std::optional<Box> intersection(const Box& a, const Box& b) {
  Box out;
  for (int axis = 0; axis < a.rank(); ++axis) {
    const std::int64_t begin = std::max(a.offsets[axis], b.offsets[axis]);
    const std::int64_t end = std::min(a.offsets[axis] + a.sizes[axis], b.offsets[axis] + b.sizes[axis]);
    if (begin >= end) return std::nullopt;
    out.offsets.push_back(begin);
    out.sizes.push_back(end - begin);
  }
  return out;
}

/// The smallest box that holds two boxes of equal rank.
[[nodiscard]] constexpr Box bounding_box(Box a, const Box& b) {
  for (int axis = 0; axis < a.rank(); ++axis) {
    const std::int64_t begin = std::min(a.offsets[axis], b.offsets[axis]);
    a.sizes[axis] = std::max(a.offsets[axis] + a.sizes[axis], b.offsets[axis] + b.sizes[axis]) - begin;
    a.offsets[axis] = begin;
  }
  return a;
}

/// `inner` in coordinates that start at `outer`'s corner.
[[nodiscard]] constexpr Box relative_to(const Box& inner, const Box& outer) {
  Box out = inner;
  for (int axis = 0; axis < inner.rank(); ++axis) out.offsets[axis] -= outer.offsets[axis];
  return out;
}

/// `[0:2, 3:5]`: begin and end per axis.
[[nodiscard]] inline std::string to_string(const Box& box) {
  std::string out = "[";
  for (int axis = 0; axis < box.rank(); ++axis) {
    if (axis > 0) out += ", ";
    out += concat(box.offsets[axis], ':', box.offsets[axis] + box.sizes[axis]);
  }
  return out + "]";
}

/// Why `box` is no part of a tensor of `shape`: one phrase, or nothing when it is one. Safe against overflow.
[[nodiscard]] inline std::optional<std::string> box_fault(const Box& box, const Dims& shape) {
  if (box.offsets.rank() != shape.rank() || box.sizes.rank() != shape.rank()) {
    return concat("offsets ", to_string(box.offsets), " and sizes ", to_string(box.sizes), " do not have the ", shape.rank(),
                  " axes of shape ", to_string(shape));
  }
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const std::int64_t offset = box.offsets[axis], size = box.sizes[axis];
    if (offset < 0 || size < 0) {
      return concat("offsets ", to_string(box.offsets), " and sizes ", to_string(box.sizes), " hold a negative number");
    }
    if (offset > shape[axis] || size > shape[axis] - offset) {
      return concat("axis ", axis, " of the box at ", to_string(box.offsets), " with sizes ", to_string(box.sizes),
                    " leaves shape ", to_string(shape));
    }
  }
  return std::nullopt;
}

/// A half-open range of indices along one axis.
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] constexpr std::int64_t size() const noexcept { return end - begin; }
  [[nodiscard]] friend constexpr bool operator==(const IndexRange&, const IndexRange&) = default;
};

/// Part `index` of `size` elements split over `parts` as evenly as possible: the first `size % parts` parts hold one more.
/// Equal to Megatron's split where the size divides; where it does not, no padding is added and trailing parts may be empty.
[[nodiscard]] inline IndexRange split_range(std::int64_t size, std::int64_t parts, std::int64_t index) {
  if (size < 0 || parts < 1 || index < 0 || index >= parts) {
    throw InvalidArgument(concat("part ", index, " of ", parts, " of ", size,
                                 " elements does not exist; parts are numbered from 0 and sizes are not negative"));
  }
  const std::int64_t base = size / parts, extra = size % parts;
  const std::int64_t begin = index * base + std::min(index, extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

MGROUPS_END_NAMESPACE
