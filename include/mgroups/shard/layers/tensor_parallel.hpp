// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <mgroups/core/box.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/group/context.hpp>
#include <mgroups/group/group.hpp>
#include <mgroups/shard/sharded_tensor.hpp>
#include <mgroups/topology/tags.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// The groups that a model tensor's place depends on. A rule that needs one which is not given throws InvalidArgument: no
/// group ever stands for another, and none is taken to be of size one unless a context says so.
struct ShardGroups {
  Group<TPTag> tp_group = no_group;
  Group<DPCPTag> dp_cp_group = no_group;
};

/// What the rules below take beside key and data; Megatron's names.
struct TpShardOptions {
  std::optional<ReplicaId> replica_id = std::nullopt;  ///< instead of the rule's own
  std::vector<RankOffset> prepend_offsets = {};  ///< one for each axis that the global tensor has before the local ones
  bool allow_shape_mismatch = false;
  /// Elements along the tensor-parallel axis over all ranks, where it does not divide evenly: rank r then holds
  /// `split_range(tp_global_size, tp_size, r)`, without padding. Not given: every rank's part has the same size.
  std::optional<std::int64_t> tp_global_size = std::nullopt;
};

namespace detail {

template <group_context Context>
[[nodiscard]] ShardGroups shard_groups(const Context& context) {
  return {.tp_group = context.template group<TPTag>(), .dp_cp_group = context.template group<DPCPTag>()};
}

[[nodiscard]] inline ShardOptions shard_options(const TpShardOptions& options, ReplicaId replica_id) {
  return {.replica_id = options.replica_id.value_or(replica_id),
          .prepend_axis_num = static_cast<int>(options.prepend_offsets.size()),
          .allow_shape_mismatch = options.allow_shape_mismatch};
}

}  // namespace detail

/// A tensor that is split over the tensor-parallel group along `tp_axis` (an axis of the local tensor) and copied over the
/// DP+CP group: replica id `(0, 0, dp_cp rank)`. Local. The rule is Megatron-Core's of the same name.
template <tensor_handle T>
[[nodiscard]] ShardedTensor<T> make_tp_sharded_tensor_for_checkpoint(std::string key, T data, int tp_axis,
                                                                     const ShardGroups& groups,
                                                                     const TpShardOptions& options = {}) {
  const int tp_size = groups.tp_group.size(), tp_rank = groups.tp_group.rank();
  const ShardOptions shard_options = detail::shard_options(options, {0, 0, groups.dp_cp_group.rank()});
  const int axis = tp_axis + shard_options.prepend_axis_num;
  const Dims local_shape = tensor_traits<T>::view(data).shape;
  if (tp_axis < 0 || tp_axis >= local_shape.rank()) {
    throw InvalidArgument(
        concat("sharded tensor '", key, "' of shape ", to_string(local_shape), " has no axis ", tp_axis, " to split"),
        {.key = key});
  }
  std::vector<RankOffset> offsets = options.prepend_offsets;
  if (!options.tp_global_size) {
    offsets.push_back({axis, tp_rank, tp_size});
    return make_sharded_grid(std::move(key), std::move(data), offsets, shard_options);
  }
  const IndexRange part = split_range(*options.tp_global_size, tp_size, tp_rank);
  if (part.size() != local_shape[tp_axis]) {
    throw InvalidArgument(
        concat("sharded tensor '", key, "' has ", local_shape[tp_axis], " elements on axis ", tp_axis, ", but part ",
               tp_rank, " of ", tp_size, " of ", *options.tp_global_size, " has ", part.size()),
        {.key = key});
  }
  ShardedTensor<T> out = make_sharded_grid(std::move(key), std::move(data), offsets, shard_options);
  out.global_shape[axis] = *options.tp_global_size;
  out.global_offset[axis] = part.begin;
  if (*options.tp_global_size % tp_size == 0) {
    (*out.axis_fragmentations)[axis] = tp_size;
  } else {
    out.axis_fragmentations.reset();
  }
  return out;
}

/// A tensor that every tensor-parallel rank holds whole: replica id `(0, tp rank, dp_cp rank)`. Local. The rule is
/// Megatron-Core's of the same name.
template <tensor_handle T>
[[nodiscard]] ShardedTensor<T> make_sharded_tensor_for_checkpoint(std::string key, T data, const ShardGroups& groups,
                                                                  const TpShardOptions& options = {}) {
  const ReplicaId replica_id{0, groups.tp_group.rank(), groups.dp_cp_group.rank()};
  return make_sharded_grid(std::move(key), std::move(data), options.prepend_offsets,
                           detail::shard_options(options, replica_id));
}

/// The same with the groups of a context.
template <tensor_handle T, group_context Context>
[[nodiscard]] ShardedTensor<T> make_tp_sharded_tensor_for_checkpoint(std::string key, T data, int tp_axis,
                                                                     const Context& context,
                                                                     const TpShardOptions& options = {}) {
  return make_tp_sharded_tensor_for_checkpoint(std::move(key), std::move(data), tp_axis, detail::shard_groups(context),
                                               options);
}

template <tensor_handle T, group_context Context>
[[nodiscard]] ShardedTensor<T> make_sharded_tensor_for_checkpoint(std::string key, T data, const Context& context,
                                                                  const TpShardOptions& options = {}) {
  return make_sharded_tensor_for_checkpoint(std::move(key), std::move(data), detail::shard_groups(context), options);
}

/// The tensors of one big buffer, back to back in the order of `names`, each held whole by every tensor-parallel rank.
/// Local. Throws InvalidArgument where names, shapes and the buffer's length do not fit together.
template <tensor_element E>
[[nodiscard]] std::vector<ShardedTensor<TensorView>> make_flat_sharded_tensors_for_checkpoint(
    std::span<const std::string> names, std::span<const Dims> shapes, std::span<E> buffer, const ShardGroups& groups) {
  std::size_t total = 0;
  for (const Dims& shape : shapes) {
    const auto n = checked_numel(shape);
    total += n ? static_cast<std::size_t>(*n) : buffer.size() + 1;
  }
  if (names.size() != shapes.size() || total != buffer.size()) {
    throw InvalidArgument(concat(names.size(), " names and ", shapes.size(), " shapes with ", total,
                                 " elements in all do not describe a buffer of ", buffer.size(), " elements"));
  }
  std::vector<ShardedTensor<TensorView>> out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto n = static_cast<std::size_t>(numel(shapes[i]));
    out.push_back(make_sharded_tensor_for_checkpoint(names[i], view_of(buffer.first(n), shapes[i]), groups));
    buffer = buffer.subspan(n);
  }
  return out;
}

template <tensor_element E, group_context Context>
[[nodiscard]] std::vector<ShardedTensor<TensorView>> make_flat_sharded_tensors_for_checkpoint(
    std::span<const std::string> names, std::span<const Dims> shapes, std::span<E> buffer, const Context& context) {
  return make_flat_sharded_tensors_for_checkpoint(names, shapes, buffer, detail::shard_groups(context));
}

MGROUPS_END_NAMESPACE
