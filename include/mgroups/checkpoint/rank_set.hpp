// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <mgroups/core/wire.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Writes ascending ranks as runs of one stride, which is all there is of a group of a grid: a few bytes for any number of
/// ranks. Equal sets give equal bytes.
inline void put_ranks(WireWriter& writer, std::span<const std::uint32_t> ranks) {
  writer.number(ranks.size());
  std::uint32_t last = 0;
  for (std::size_t i = 0; i < ranks.size();) {
    const std::uint32_t stride = i + 1 < ranks.size() ? ranks[i + 1] - ranks[i] : 1;
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] - ranks[end - 1] == stride) ++end;
    writer.number(ranks[i] - last);
    writer.number(stride);
    writer.number(end - i);
    last = ranks[end - 1];
    i = end;
  }
}

/// What `put_ranks` wrote.
[[nodiscard]] inline std::vector<std::uint32_t> take_ranks(WireReader& reader) {
  std::vector<std::uint32_t> ranks;
  const std::uint64_t size = reader.number();
  std::uint32_t last = 0;
  while (ranks.size() < size) {
    std::uint32_t rank = last + reader.small_number();
    const std::uint32_t stride = reader.small_number();
    for (std::uint64_t n = reader.number(); n > 0; --n, rank += stride) ranks.push_back(last = rank);
  }
  return ranks;
}

}  // namespace detail

MGROUPS_END_NAMESPACE
