// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstdint>

#include <mgroups/core/dims.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Whether elements, strides and bytes of a shape of non-negative sizes can be counted in 63 bits, at up to 16 bytes
/// an element. A size of zero counts as one: strides of the other axes must fit all the same.
[[nodiscard]] constexpr bool countable(const Dims& shape) noexcept {
  std::int64_t total = 16;
  for (const std::int64_t size : shape) {
    const auto next = checked_mul(total, std::max<std::int64_t>(size, 1));
    if (!next) return false;
    total = *next;
  }
  return true;
}

}  // namespace detail

MGROUPS_END_NAMESPACE
