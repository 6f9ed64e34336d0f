// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <mgroups/core/box.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/shard/state_dict.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Asks the coordinator for this rank's keys and boxes, objects, and common state.
[[nodiscard]] inline std::vector<std::byte> load_request(const LocalState& state) {
  std::vector<std::byte> message;
  WireWriter writer(message);
  writer.number(state.common != nullptr ? 1 : 0);
  writer.number(state.tensors.size());
  for (const LocalShard& shard : state.tensors) {
    const ShardLayout& layout = *shard.layout;
    writer.text(layout.key);
    writer.number(static_cast<std::uint64_t>(layout.dtype));
    writer.number(layout.allow_shape_mismatch ? 1 : 0);
    writer.number(static_cast<std::uint64_t>(layout.global_shape.rank()));
    writer.dims(layout.global_shape);
    writer.box(layout.box());
  }
  for (const ShardedObject* object : state.objects) {
    writer.text(object->key);
    writer.text(object->unique_key());
    writer.number(object->whole() ? 1 : 0);
  }
  return message;
}

/// A shard that a rank asks for. Points into its message.
struct TensorRequest {
  std::string_view key;
  DType dtype;
  bool allow_shape_mismatch;
  Dims shape;
  Box box;
  std::uint32_t shard;  // its number on its rank
};

/// A piece of an object that a rank asks for. Points into its message.
struct ObjectRequest {
  std::string_view key;
  std::string_view unique_key;
  bool whole;
};

/// Calls `on_tensor(rank, request)` and `on_object(rank, request)` for all that ranks ask for, in order.
template <class OnTensor, class OnObject>
void for_each_request(const Parcels& requests, OnTensor&& on_tensor, OnObject&& on_object) {
  requests.for_each([&](int rank, std::span<const std::byte> bytes) {
    WireReader reader(bytes);
    static_cast<void>(reader.number());
    const std::uint64_t shards = reader.number();
    for (std::uint32_t shard = 0; shard < shards; ++shard) {
      TensorRequest request{reader.text(), static_cast<DType>(reader.number()), reader.number() != 0, {}, {}, shard};
      request.shape = reader.dims(static_cast<int>(reader.number()));
      request.box = reader.box(request.shape.rank());
      on_tensor(rank, request);
    }
    while (!reader.done()) {
      const std::string_view key = reader.text(), unique_key = reader.text();
      on_object(rank, ObjectRequest{key, unique_key, reader.number() != 0});
    }
  });
}

/// Whether any rank asks for the common state.
[[nodiscard]] inline bool wants_common(const Parcels& requests) {
  bool wanted = false;
  requests.for_each([&](int, std::span<const std::byte> bytes) { wanted = wanted || WireReader(bytes).number() != 0; });
  return wanted;
}

}  // namespace detail

MGROUPS_END_NAMESPACE
