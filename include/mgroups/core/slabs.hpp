// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstdint>

#include <mgroups/core/box.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Cuts `box` into parts of at most `max_elements` elements whose row-major order, one part after the other, is the
/// row-major order of the box, and calls `f(const Box&)` for each. Parts are as large as whole rows allow. An empty box
/// has no part.
template <class F>
void for_each_slab(const Box& box, std::int64_t max_elements, F&& f) {
  if (box.empty()) return;
  // The first axis along which a single index fits: axes before it are walked one by one, those after it stay whole.
  int axis = 0;
  std::int64_t inner = box.volume();
  while (axis < box.rank() && inner / box.sizes[axis] > max_elements) inner /= box.sizes[axis++];
  if (axis == box.rank()) return f(box);
  const std::int64_t rows = std::max<std::int64_t>(1, max_elements / std::max<std::int64_t>(1, inner / box.sizes[axis]));

  Box part = box;
  for (int outer = 0; outer < axis; ++outer) part.sizes[outer] = 1;
  for (;;) {
    for (std::int64_t begin = 0; begin < box.sizes[axis]; begin += rows) {
      part.offsets[axis] = box.offsets[axis] + begin;
      part.sizes[axis] = std::min(rows, box.sizes[axis] - begin);
      f(static_cast<const Box&>(part));
    }
    int outer = axis - 1;
    while (outer >= 0 && ++part.offsets[outer] == box.offsets[outer] + box.sizes[outer]) {
      part.offsets[outer] = box.offsets[outer];
      --outer;
    }
    if (outer < 0) return;
  }
}

MGROUPS_END_NAMESPACE
