// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/shard/sharded_object.hpp>
#include <mgroups/shard/state_dict.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// FNV-1a: the same on every machine, unlike std::hash.
[[nodiscard]] constexpr std::uint64_t key_hash(std::string_view key) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

/// The rank that validates `key` and decides who writes it.
[[nodiscard]] constexpr int owner_of(std::string_view key, int ranks) noexcept {
  return static_cast<int>(key_hash(key) % static_cast<std::uint64_t>(ranks));
}

/// What a key stands for, as it travels: a tensor of a dtype, or an object, which is planned like a tensor of its pieces.
[[nodiscard]] constexpr std::uint64_t kind_of(DType dtype) noexcept { return 1 + static_cast<std::uint64_t>(dtype); }
inline constexpr std::uint64_t object_kind = 0;
[[nodiscard]] inline std::string_view kind_name(std::uint64_t kind) noexcept {
  return kind == object_kind ? "an object of pieces" : name(static_cast<DType>(kind - 1));
}

/// Describes this rank's shards to the owners of their keys. Tensors and objects are each in order of keys, as
/// `ShardedStateDict::local_state` gives them; a record carries the index in that order, objects after tensors.
/// `checksums`, if there are any, holds one per tensor shard, to be compared between replicas.
[[nodiscard]] inline Parcels plan_messages(const LocalState& state, int ranks,
                                           std::span<const std::uint32_t> checksums = {}) {
  struct KeyRange {
    int owner;
    std::size_t begin, end;
  };
  const std::span<const LocalShard> shards = state.tensors;
  std::vector<KeyRange> keys;
  for (std::size_t begin = 0; begin < shards.size();) {
    const std::string& key = shards[begin].layout->key;
    std::size_t end = begin + 1;
    while (end < shards.size() && shards[end].layout->key == key) ++end;
    keys.push_back({owner_of(key, ranks), begin, end});
    begin = end;
  }
  for (std::size_t begin = 0; begin < state.objects.size();) {
    const std::string& key = state.objects[begin]->key;
    std::size_t end = begin + 1;
    while (end < state.objects.size() && state.objects[end]->key == key) ++end;
    keys.push_back({owner_of(key, ranks), shards.size() + begin, shards.size() + end});
    begin = end;
  }
  std::stable_sort(keys.begin(), keys.end(), [](const KeyRange& a, const KeyRange& b) { return a.owner < b.owner; });

  Parcels out(ranks);
  out.bytes.reserve(64 * (shards.size() + state.objects.size()));
  WireWriter writer(out.bytes);
  const auto put_key = [&](const std::string& key, std::uint64_t kind, const Dims& shape, std::size_t count) {
    writer.text(key);
    writer.number(kind);
    writer.number(static_cast<std::uint64_t>(shape.rank()));
    writer.dims(shape);
    writer.number(count);
  };
  for (const KeyRange& range : keys) {
    const std::size_t before = out.bytes.size(), count = range.end - range.begin;
    if (range.begin < shards.size()) {
      const ShardLayout& first = *shards[range.begin].layout;
      put_key(first.key, kind_of(first.dtype), first.global_shape, count);
    } else {
      const ShardedObject& first = *state.objects[range.begin - shards.size()];
      put_key(first.key, object_kind, first.global_shape, count);
    }
    for (std::size_t i = range.begin; i < range.end; ++i) {
      writer.number(i);
      const bool object = i >= shards.size();
      const ReplicaId& replica = object ? state.objects[i - shards.size()]->replica_id : shards[i].layout->replica_id;
      // Is it the main replica, and does a checksum follow?
      writer.number((replica.is_main() ? 1u : 0u) | (!object && !checksums.empty() ? 2u : 0u));
      if (!object && !checksums.empty()) writer.number(checksums[i]);
      if (object) {
        const ShardedObject& piece = *state.objects[i - shards.size()];
        writer.box({piece.global_offset, Dims::filled(piece.global_offset.rank(), 1)});
        continue;
      }
      const ShardLayout& layout = *shards[i].layout;
      writer.dims(layout.global_offset);
      for (int axis = 0; axis < layout.prepend_axis_num; ++axis) writer.number(1);
      writer.dims(layout.local_shape);
    }
    out.counts[static_cast<std::size_t>(range.owner)] += out.bytes.size() - before;
  }
  return out;
}

}  // namespace detail

MGROUPS_END_NAMESPACE
