// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <mgroups/comm/buffer.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/version.hpp>

// What is wrong with the arguments of a verb, told before anything is sent: one phrase each, or nothing.

MGROUPS_BEGIN_NAMESPACE
namespace detail {

using Fault = std::optional<std::string>;

[[nodiscard]] inline std::string ranks_text(int size) {
  return size == 1 ? std::string("its only rank is 0") : concat("its ranks are 0 to ", size - 1);
}

[[nodiscard]] inline Fault rank_fault(std::string_view role, int rank, int size) {
  if (rank >= 0 && rank < size) return std::nullopt;
  return concat(role, ' ', rank, " does not exist; ", ranks_text(size));
}

[[nodiscard]] inline Fault peer_fault(std::string_view role, int peer, int rank, int size) {
  if (peer != rank) return rank_fault(role, peer, size);
  return concat("rank ", rank, " cannot be its own ", role,
                ", since a send waits for its receiver; copy the elements instead");
}

[[nodiscard]] inline Fault null_fault(std::string_view role, const const_buffer& data) {
  if (data.data != nullptr || data.count == 0) return std::nullopt;
  return concat("the ", role, " is a null pointer to ", elements_text(data.count, data.type));
}

[[nodiscard]] inline bool overlaps(const const_buffer& a, const const_buffer& b) {
  if (a.bytes() == 0 || b.bytes() == 0) return false;
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.data), b_begin = reinterpret_cast<std::uintptr_t>(b.data);
  return a_begin < b_begin + b.bytes() && b_begin < a_begin + a.bytes();
}

// `in` may lie exactly at element `first` of `out`, or apart from it.
[[nodiscard]] inline Fault overlap_fault(const const_buffer& in, const buffer& out, std::size_t first) {
  if (!overlaps(in, out)) return std::nullopt;
  if (in.data == static_cast<const std::byte*>(out.data) + first * out.type.size()) return std::nullopt;
  return concat("input and output overlap without being in place; in place means that the input starts at element ", first,
                " of the output");
}

[[nodiscard]] inline Fault disjoint_fault(const const_buffer& in, const buffer& out) {
  if (!overlaps(in, out)) return std::nullopt;
  return std::string("input and output overlap; this verb does not work in place");
}

[[nodiscard]] inline Fault equal_count_fault(const const_buffer& in, const buffer& out) {
  if (in.count == out.count) return std::nullopt;
  return concat("the output holds ", out.count, " elements and the input ", in.count, "; both must be equal");
}

[[nodiscard]] inline Fault gathered_count_fault(const const_buffer& in, const buffer& out, int size) {
  const auto n = static_cast<std::size_t>(size);
  if (in.count <= std::numeric_limits<std::size_t>::max() / n && out.count == in.count * n) return std::nullopt;
  return concat("the output holds ", out.count, " elements; ", size, " ranks x ", in.count, " elements of input need ", size,
                " x ", in.count);
}

// One count per rank, which add up to the buffer.
[[nodiscard]] inline Fault counts_fault(std::string_view role, std::span<const std::size_t> counts, int size,
                                        std::size_t total) {
  if (counts.size() != static_cast<std::size_t>(size)) {
    return concat("there are ", counts.size(), ' ', role, " counts for ", size, " ranks; give one per rank");
  }
  std::size_t sum = 0;
  for (const std::size_t count : counts) {
    if (count > std::numeric_limits<std::size_t>::max() - sum) return concat("the ", role, " counts overflow when added");
    sum += count;
  }
  if (sum == total) return std::nullopt;
  return concat("the ", role, " counts ", list_text(counts), " add up to ", sum, " and the buffer holds ", total,
                " elements");
}

[[nodiscard]] inline Fault own_count_fault(std::span<const std::size_t> counts, int rank, std::size_t given) {
  const std::size_t expected = counts[static_cast<std::size_t>(rank)];
  if (expected == given) return std::nullopt;
  return concat("rank ", rank, " gives ", given, " elements and counts[", rank, "] is ", expected);
}

// The first element of rank `rank` in a buffer of packed parts.
[[nodiscard]] inline std::size_t offset_of(std::span<const std::size_t> counts, int rank) {
  std::size_t offset = 0;
  for (const std::size_t count : counts.first(static_cast<std::size_t>(rank))) offset += count;
  return offset;
}

// Why these ranks of a communicator of `size` are no group that `caller` can make.
[[nodiscard]] inline Fault members_fault(std::span<const int> members, int size) {
  if (members.empty()) return std::string("it has no members");
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (auto fault = rank_fault("member", members[i], size)) return fault;
    for (std::size_t j = 0; j < i; ++j) {
      if (members[i] == members[j]) return concat("rank ", members[i], " is listed twice in ", list_text(members));
    }
  }
  return std::nullopt;
}

}  // namespace detail
MGROUPS_END_NAMESPACE
