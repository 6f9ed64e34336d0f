// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/shard/layout_id.hpp>
#include <mgroups/shard/sharded_object.hpp>
#include <mgroups/shard/sharded_tensor.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// A shard seen without the type of its tensor handle: what planning and I/O work on. Points into the state dict it came
/// from.
struct LocalShard {
  const ShardLayout* layout = nullptr;
  TensorView data;
};

/// A state dict seen without the type of its tensor handles.
struct LocalState {
  std::vector<LocalShard> tensors;
  std::vector<const ShardedObject*> objects;
  Object* common = nullptr;
  LayoutId layout_id = {};
};

/// What one rank holds of a model: an ordered map from key to the shards of that key on this rank. A key may have several
/// (stacked layers, the halves of a gated projection), each at its own place. Values of type `T` are kept by copy;
/// a view's memory must stay valid while a save or load uses it, and so must objects, of which only the address is kept.
template <tensor_handle T>
class ShardedStateDict {
 public:
  /// Adds a shard. Local. Throws InvalidArgument when this rank already has the same box of the same key, or when dtype or
  /// global shape differ from the shards of that key which are there.
  void add(ShardedTensor<T> shard) {
    detail::check_layout(shard);
    if (objects_.contains(shard.key)) {
      throw InvalidArgument(concat("tensor '", shard.key, "' has the key of an object of this state dict"),
                            {.key = shard.key});
    }
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
    layout_id_.add(shard.key, static_cast<std::int64_t>(shard.dtype), shard.replica_id.is_main() ? 1 : 0,
                   {&shard.global_shape, &shard.global_offset, &shard.local_shape});
    shards.push_back(std::move(shard));
    ++size_;
  }

  void add(std::vector<ShardedTensor<T>> shards) {
    for (ShardedTensor<T>& shard : shards) add(std::move(shard));
  }

  /// Adds a piece of an object. Local. Throws InvalidArgument when this rank already has that piece, or a tensor of that
  /// key, or pieces of another number.
  void add(ShardedObject object) {
    const auto fail = [&](std::string_view reason) {
      throw InvalidArgument(concat("object '", object.key, "' ", reason), {.key = object.key});
    };
    if (shards_.contains(object.key)) fail("has the key of a tensor of this state dict");
    std::vector<ShardedObject>& pieces = objects_[object.key];
    for (const ShardedObject& other : pieces) {
      if (other.global_shape != object.global_shape) {
        fail(concat("is added as one of ", to_string(object.global_shape), " pieces but is in the state dict as one of ",
                    to_string(other.global_shape)));
      }
      if (other.global_offset == object.global_offset) fail("is in the state dict already; give each piece its own place");
    }
    layout_id_.add(object.key, -1, object.replica_id.is_main() ? 1 : 0, {&object.global_shape, &object.global_offset});
    pieces.push_back(std::move(object));
    ++object_count_;
  }

  /// The state that is neither sharded nor per rank, a dict: iteration, arguments, schedules. Saved as the first rank has
  /// it; a load gives it to every rank. `common` must outlive this state dict.
  void set_common(Object& common) noexcept { common_ = &common; }
  /// Null where there is none.
  [[nodiscard]] Object* common() const noexcept { return common_; }

  /// Number of shards of tensors.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// True where there are neither tensors nor objects; common state does not count.
  [[nodiscard]] bool empty() const noexcept { return size_ == 0 && object_count_ == 0; }

  /// Keys of tensors in order, each with its shards in order of addition.
  [[nodiscard]] auto begin() const noexcept { return shards_.begin(); }
  [[nodiscard]] auto end() const noexcept { return shards_.end(); }

  /// The shards of `key` on this rank; empty when there is none.
  [[nodiscard]] const std::vector<ShardedTensor<T>>& at(const std::string& key) const {
    static const std::vector<ShardedTensor<T>> none;
    const auto found = shards_.find(key);
    return found == shards_.end() ? none : found->second;
  }

  /// Everything without the type of its handles, in order of keys. Valid while this state dict is neither changed nor
  /// destroyed.
  [[nodiscard]] LocalState local_state() const {
    LocalState out{.tensors = {}, .objects = {}, .common = common_, .layout_id = layout_id_};
    out.tensors.reserve(size_);
    for (const auto& [key, shards] : shards_) {
      for (const ShardedTensor<T>& shard : shards) out.tensors.push_back({&shard, tensor_traits<T>::view(shard.data)});
    }
    out.objects.reserve(object_count_);
    for (const auto& [key, pieces] : objects_) {
      for (const ShardedObject& piece : pieces) out.objects.push_back(&piece);
    }
    return out;
  }

 private:
  std::map<std::string, std::vector<ShardedTensor<T>>> shards_;
  std::map<std::string, std::vector<ShardedObject>> objects_;
  Object* common_ = nullptr;
  std::size_t size_ = 0;
  std::size_t object_count_ = 0;
  LayoutId layout_id_;
};

MGROUPS_END_NAMESPACE
