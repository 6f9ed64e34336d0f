// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/shard/sharded_tensor.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// A shard seen without the type of its tensor handle: what planning and I/O work on. Points into the state dict it came
/// from.
struct LocalShard {
  const ShardLayout* layout = nullptr;
  TensorView data;
};

/// What one rank holds of a model: an ordered map from key to the shards of that key on this rank. A key may have several
/// (stacked layers, the halves of a gated projection), each at its own place. Values of type `T` are kept by copy;
/// a view's memory must stay valid while a save or load uses it.
template <tensor_handle T>
class ShardedStateDict {
 public:
  /// Adds a shard. Local. Throws InvalidArgument when this rank already has the same box of the same key, or when dtype or
  /// global shape differ from the shards of that key which are there.
  void add(ShardedTensor<T> shard) {
    detail::check_layout(shard);
    std::vector<ShardedTensor<T>>& shards = shards_[shard.key];
    for (const ShardedTensor<T>& other : shards) {
      if (other.box() == shard.box() && !shard.box().empty()) {
        throw InvalidArgument(concat("key '", shard.key, "' is in the state dict already, with the same box ",
                                     to_string(shard.box()), "; give each tensor a key or a place of its own"),
                              {.key = shard.key});
      }
      if (other.dtype != shard.dtype || other.global_shape != shard.global_shape) {
        throw InvalidArgument(
            concat("key '", shard.key, "' is added as ", name(shard.dtype), " ", to_string(shard.global_shape),
                   " but is in the state dict as ", name(other.dtype), " ", to_string(other.global_shape)),
            {.key = shard.key});
      }
    }
    shards.push_back(std::move(shard));
    ++size_;
  }

  void add(std::vector<ShardedTensor<T>> shards) {
    for (ShardedTensor<T>& shard : shards) add(std::move(shard));
  }

  /// Number of shards.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  /// Keys in order, each with its shards in order of addition.
  [[nodiscard]] auto begin() const noexcept { return shards_.begin(); }
  [[nodiscard]] auto end() const noexcept { return shards_.end(); }

  /// The shards of `key` on this rank; empty when there is none.
  [[nodiscard]] const std::vector<ShardedTensor<T>>& at(const std::string& key) const {
    static const std::vector<ShardedTensor<T>> none;
    const auto found = shards_.find(key);
    return found == shards_.end() ? none : found->second;
  }

  /// All shards without their handle type, in order of keys. Valid while this state dict is neither changed nor destroyed.
  [[nodiscard]] std::vector<LocalShard> local_shards() const {
    std::vector<LocalShard> out;
    out.reserve(size_);
    for (const auto& [key, shards] : shards_) {
      for (const ShardedTensor<T>& shard : shards) out.push_back({&shard, tensor_traits<T>::view(shard.data)});
    }
    return out;
  }

 private:
  std::map<std::string, std::vector<ShardedTensor<T>>> shards_;
  std::size_t size_ = 0;
};

MGROUPS_END_NAMESPACE
