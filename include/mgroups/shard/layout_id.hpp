// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include <mgroups/core/dims.hpp>
#include <mgroups/core/hash.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Identifies a layout: keys, dtypes, shapes, boxes and which of them are main replicas, in order of addition. Two layouts
/// that differ have different ones, but for a chance of 2^-128.
struct LayoutId {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  /// Adds a shard, or where `dtype` is -1 a piece of an object.
  void add(std::string_view key, std::int64_t dtype, std::int64_t replica, std::initializer_list<const Dims*> dims) {
    std::int64_t numbers[4 + 4 * (max_rank + 1)];
    std::size_t n = 0;
    numbers[n++] = dtype;
    numbers[n++] = replica;
    for (const Dims* values : dims) {
      numbers[n++] = values->rank();
      for (const std::int64_t value : *values) numbers[n++] = value;
    }
    const std::span<const std::byte> bytes = std::as_bytes(std::span(numbers, n));
    low = murmur64(bytes, murmur64(key, low));
    high = murmur64(bytes, murmur64(key, high + 1));
  }
  [[nodiscard]] friend bool operator==(const LayoutId&, const LayoutId&) = default;
};

MGROUPS_END_NAMESPACE
