// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstdint>

#include <mgroups/core/box.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Up to this many bytes between two wanted ones are read along: from the page cache, it takes about as long as another
/// call.
inline constexpr std::int64_t cheap_gap = 16 << 10;
/// Archives up to this size are read whole, with what lies between them.
inline constexpr std::uint64_t small_archive = std::uint64_t{128} << 10;

/// About how many bytes a rank reads for `part` of a row-major chunk of `shape` with elements of `item` bytes. `block`: all
/// of each block of so many bytes that is touched must be read; 1 where nothing is checked.
[[nodiscard]] inline std::int64_t bytes_read_for(const Box& part, const Dims& shape, std::int64_t item,
                                                 std::int64_t block) noexcept {
  if (part.empty()) return 0;
  // From the last axis on, what is whole in both is contiguous.
  std::int64_t run = item, stride = item, runs = 1, span = 0, period = 0;
  bool broken = false;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    span += (part.sizes[axis] - 1) * stride;
    if (!broken) {
      run = part.sizes[axis] * stride;
      broken = part.sizes[axis] != shape[axis];
    } else if (part.sizes[axis] > 1) {
      if (runs == 1) period = stride;
      runs *= part.sizes[axis];
    }
    stride *= shape[axis];
  }
  span += item;
  if (runs == 1 || period - run <= std::max(cheap_gap, block)) return span + block - 1;
  return std::min(span, runs * (run + block - 1));
}

}  // namespace detail

MGROUPS_END_NAMESPACE
