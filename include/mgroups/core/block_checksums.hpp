// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <mgroups/core/crc32.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// The CRC-32 of each block of a file; the last block may be shorter.
struct BlockChecksums {
  /// Small, since a reader of part of a block must read all of it; large enough to take 4 bytes of 2^16.
  static constexpr std::uint64_t block_bytes = std::uint64_t{256} << 10;

  std::uint64_t file_bytes = 0;
  std::vector<std::uint32_t> blocks;

  [[nodiscard]] static constexpr std::uint64_t block_count(std::uint64_t bytes) noexcept {
    return bytes / block_bytes + (bytes % block_bytes != 0 ? 1 : 0);
  }
  /// Adds bytes that stand at the end of the file, and returns their CRC-32: each byte is looked at once.
  std::uint32_t append(std::span<const std::byte> bytes) {
    constexpr std::uint32_t one_block = detail::crc32_power(8 * block_bytes);
    std::uint32_t all = 0;
    while (!bytes.empty()) {
      const std::uint64_t inside = file_bytes % block_bytes;
      const auto part = bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), block_bytes - inside)));
      const std::uint32_t crc = crc32(part);
      if (inside == 0) {
        blocks.push_back(crc);
      } else {
        blocks.back() = crc32_combine(blocks.back(), crc, part.size());
      }
      all = part.size() == block_bytes ? detail::crc32_multiply(one_block, all) ^ crc : crc32_combine(all, crc, part.size());
      file_bytes += part.size();
      bytes = bytes.subspan(part.size());
    }
    return all;
  }
  /// As `append` of `n` bytes whose CRC-32 is known; false, and nothing done, where they reach across the end of a block.
  bool append_known(std::uint64_t n, std::uint32_t crc) {
    const std::uint64_t inside = file_bytes % block_bytes;
    if (n > block_bytes - inside) return false;
    if (inside == 0 && n > 0) blocks.push_back(0);
    if (n > 0) blocks.back() = crc32_combine(blocks.back(), crc, n);
    file_bytes += n;
    return true;
  }
  [[nodiscard]] friend bool operator==(const BlockChecksums&, const BlockChecksums&) = default;
};

MGROUPS_END_NAMESPACE
