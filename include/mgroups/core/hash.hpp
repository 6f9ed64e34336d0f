// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <mgroups/core/little_endian.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// MurmurHash64A (Austin Appleby, public domain): the same on every machine, unlike std::hash. Not for adversaries.
[[nodiscard]] inline std::uint64_t murmur64(std::span<const std::byte> bytes, std::uint64_t seed = 0) noexcept {
  constexpr std::uint64_t m = 0xc6a4a7935bd1e995u;
  constexpr int r = 47;
  std::uint64_t hash = seed ^ (bytes.size() * m);
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    std::uint64_t k = little_endian(bytes.first<8>()) * m;
    k = (k ^ (k >> r)) * m;
    hash = (hash ^ k) * m;
  }
  if (!bytes.empty()) hash = (hash ^ little_endian(bytes)) * m;
  hash = (hash ^ (hash >> r)) * m;
  return hash ^ (hash >> r);
}
[[nodiscard]] inline std::uint64_t murmur64(std::string_view text, std::uint64_t seed = 0) noexcept {
  return murmur64(std::as_bytes(std::span(text)), seed);
}

MGROUPS_END_NAMESPACE
