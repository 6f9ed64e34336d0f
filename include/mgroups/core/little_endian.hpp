// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// The number that at most 8 bytes stand for, the first one lowest.
[[nodiscard]] inline std::uint64_t little_endian(std::span<const std::byte> bytes) noexcept {
  std::uint64_t value = 0;
  if constexpr (std::endian::native == std::endian::little) {
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
  } else {
    for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  }
  return value;
}

MGROUPS_END_NAMESPACE
