// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/core/hash.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <doctest/doctest.h>

TEST_CASE("murmur64 gives SMHasher's verification value of MurmurHash64A") {
  // The hashes of {}, {0}, {0, 1} ... with seeds 256, 255 ..., hashed themselves.
  std::vector<std::byte> key, hashes;
  for (int i = 0; i < 256; ++i) {
    const std::uint64_t hash = mgroups::murmur64(std::span<const std::byte>(key), static_cast<std::uint64_t>(256 - i));
    for (int byte = 0; byte < 8; ++byte) hashes.push_back(static_cast<std::byte>(hash >> (8 * byte)));
    key.push_back(static_cast<std::byte>(i));
  }
  CHECK((mgroups::murmur64(std::span<const std::byte>(hashes)) & 0xFFFFFFFFu) == 0x1F0D3804u);
}
