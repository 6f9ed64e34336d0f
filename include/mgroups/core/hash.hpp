// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// `n` <= 8 bytes, the first one lowest.
[[nodiscard]] inline std::uint64_t little_endian(const std::byte* at, std::size_t n) noexcept {
  std::uint64_t value = 0;
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(&value, at, n);
  } else {
    for (std::size_t i = 0; i < n; ++i) value |= static_cast<std::uint64_t>(at[i]) << (8 * i);
  }
  return value;
}

}  // namespace detail

/// MurmurHash64A (Austin Appleby, public domain): the same on every machine, unlike std::hash. Not for adversaries.
[[nodiscard]] inline std::uint64_t murmur64(std::span<const std::byte> bytes, std::uint64_t seed = 0) noexcept {
  constexpr std::uint64_t m = 0xc6a4a7935bd1e995u;
  constexpr int r = 47;
  std::uint64_t hash = seed ^ (bytes.size() * m);
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    std::uint64_t k = detail::little_endian(at, 8) * m;
    k = (k ^ (k >> r)) * m;
    hash = (hash ^ k) * m;
  }
  if (left > 0) hash = (hash ^ detail::little_endian(at, left)) * m;
  hash = (hash ^ (hash >> r)) * m;
  return hash ^ (hash >> r);
}
[[nodiscard]] inline std::uint64_t murmur64(std::string_view text, std::uint64_t seed = 0) noexcept {
  return murmur64(std::as_bytes(std::span(text)), seed);
}

MGROUPS_END_NAMESPACE
