// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <span>
#include <string>

#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/memory.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/shard/state_dict.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Refuses shards whose tensors are not what they were when they were added, or that this process cannot read and write.
/// Local.
inline void check_shards(std::span<const LocalShard> shards) {
  for (const LocalShard& shard : shards) {
    const ShardLayout& layout = *shard.layout;
    const auto fail = [&](const std::string& reason) {
      throw InvalidArgument(concat("tensor '", layout.key, "' ", reason), {.key = layout.key});
    };
    if (shard.data.shape != layout.local_shape || shard.data.dtype != layout.dtype) {
      fail(concat("is ", name(shard.data.dtype), " ", to_string(shard.data.shape),
                  " now, but was added to the state dict as ", name(layout.dtype), " ", to_string(layout.local_shape)));
    }
    if (shard.data.numel() == 0) continue;
    if (shard.data.data == nullptr) fail("has elements but no address; is its storage allocated?");
    if (shard.data.space != MemorySpace::host) {
      throw UnsupportedError(
          concat("tensor '", layout.key, "' lies in device memory; copy it to the host before saving or loading"),
          {.key = layout.key});
    }
  }
}

}  // namespace detail

MGROUPS_END_NAMESPACE
