// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstdint>

#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// The next multiple of `alignment`, a power of two, from `value` on.
[[nodiscard]] constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) noexcept {
  return (value + alignment - 1) & ~(alignment - 1);
}

MGROUPS_END_NAMESPACE
