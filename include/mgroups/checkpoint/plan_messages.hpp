// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/hash.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/shard/sharded_object.hpp>
#include <mgroups/shard/state_dict.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// The rank that validates `key` and decides who writes it.
[[nodiscard]] inline int owner_of(std::string_view key, int ranks) noexcept {
  return static_cast<int>(((murmur64(key) >> 32) * static_cast<std::uint64_t>(ranks)) >> 32);
}

/// What a key stands for, as it travels: a tensor of a dtype, or an object, which is planned like a tensor of its pieces.
[[nodiscard]] constexpr std::uint64_t kind_of(DType dtype) noexcept { return 1 + static_cast<std::uint64_t>(dtype); }
inline constexpr std::uint64_t object_kind = 0;
[[nodiscard]] inline std::string_view kind_name(std::uint64_t kind) noexcept {
  return kind == object_kind ? "an object of pieces" : name(static_cast<DType>(kind - 1));
}

/// Flags of a shard's record.
inline constexpr std::uint32_t is_main = 1, has_checksum = 2;

/// Messages to a few of many ranks, in ascending order of them.
struct SparseParcels {
  struct Part {
    int rank;
    std::size_t bytes;
  };
  std::vector<std::byte> bytes;
  std::vector<Part> parts;

  [[nodiscard]] Parcels to_parcels(int ranks) && {
    Parcels out(ranks);
    for (const Part& part : parts) out.counts[static_cast<std::size_t>(part.rank)] = part.bytes;
    out.bytes = std::move(bytes);
    return out;
  }
};

/// Describes this rank's shards to the owners of their keys. Tensors and objects are each in order of keys, as
/// `ShardedStateDict::local_state` gives them; a record carries the index in that order, objects after tensors.
/// `checksums`, if there are any, holds one per tensor shard, to be compared between replicas. Ranks that hold the same
/// boxes, all as main replicas or none, send the same bytes.
[[nodiscard]] inline SparseParcels plan_messages(const LocalState& state, int ranks,
                                                 std::span<const std::uint32_t> checksums = {}) {
  struct KeyRange {
    int owner;
    std::uint32_t begin, end;
  };
  const auto tensors = static_cast<std::uint32_t>(state.tensors.size());
  const auto all = tensors + static_cast<std::uint32_t>(state.objects.size());
  const auto key_of = [&](std::uint32_t i) -> const std::string& {
    return i < tensors ? state.tensors[i].layout->key : state.objects[i - tensors]->key;
  };
  std::vector<KeyRange> keys;
  keys.reserve(all);
  for (std::uint32_t begin = 0; begin < all;) {
    const std::uint32_t stop = begin < tensors ? tensors : all;
    std::uint32_t end = begin + 1;
    while (end < stop && key_of(end) == key_of(begin)) ++end;
    keys.push_back({owner_of(key_of(begin), ranks), begin, end});
    begin = end;
  }
  std::sort(keys.begin(), keys.end(),
            [](const KeyRange& a, const KeyRange& b) { return a.owner != b.owner ? a.owner < b.owner : a.begin < b.begin; });

  SparseParcels out;
  out.bytes.reserve(64 * std::size_t{all});
  WireWriter writer(out.bytes);
  for (const KeyRange& range : keys) {
    const std::size_t before = out.bytes.size();
    const bool is_object = range.begin >= tensors;
    const Dims& shape =
        is_object ? state.objects[range.begin - tensors]->global_shape : state.tensors[range.begin].layout->global_shape;
    const std::uint64_t kind = is_object ? object_kind : kind_of(state.tensors[range.begin].layout->dtype);
    writer.text(key_of(range.begin));
    writer.numbers(kind, static_cast<std::uint64_t>(shape.rank()), shape, range.end - range.begin);
    for (std::uint32_t i = range.begin; i < range.end; ++i) {
      if (is_object) {
        const ShardedObject& piece = *state.objects[i - tensors];
        writer.numbers(i, piece.replica_id.is_main() ? is_main : 0u, piece.global_offset, Dims::filled(shape.rank(), 1));
        continue;
      }
      const ShardLayout& layout = *state.tensors[i].layout;
      const std::uint32_t main = layout.replica_id.is_main() ? is_main : 0;
      if (checksums.empty()) {
        writer.numbers(i, main, layout.global_offset);
      } else {
        writer.numbers(i, main | has_checksum, checksums[i], layout.global_offset);
      }
      for (int axis = 0; axis < layout.prepend_axis_num; ++axis) writer.number(1);
      writer.dims(layout.local_shape);
    }
    const std::size_t bytes = out.bytes.size() - before;
    if (out.parts.empty() || out.parts.back().rank != range.owner) out.parts.push_back({range.owner, 0});
    out.parts.back().bytes += bytes;
  }
  return out;
}

}  // namespace detail

MGROUPS_END_NAMESPACE
