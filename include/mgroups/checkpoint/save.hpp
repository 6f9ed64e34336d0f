// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/agreement.hpp>
#include <mgroups/checkpoint/common_state.hpp>
#include <mgroups/checkpoint/data_file.hpp>
#include <mgroups/checkpoint/description.hpp>
#include <mgroups/checkpoint/flavour.hpp>
#include <mgroups/checkpoint/plan_writes.hpp>
#include <mgroups/checkpoint/save_options.hpp>
#include <mgroups/checkpoint/stored_object.hpp>
#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/group/context.hpp>
#include <mgroups/io/commit.hpp>
#include <mgroups/io/posix.hpp>
#include <mgroups/shard/state_dict.hpp>
#include <mgroups/shard/validate.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// The communicator that a checkpoint is saved or loaded over.
template <class Where>
[[nodiscard]] any_communicator communicator_of(Where& where) {
  if constexpr (group_context<Where>) {
    return any_communicator::borrow(where.world());
  } else {
    static_assert(communicator<Where>, "give a communicator (solo, threads, MPI ...) or a context made by make_context");
    return any_communicator::borrow(where);
  }
}

/// The objects that this rank writes, in the flavour's form; the coordinator's with those of the common state. Local.
[[nodiscard]] inline std::vector<ObjectItem> object_items(const LocalState& state, std::span<const std::uint32_t> indices,
                                                          StoredCommon& common, const SaveOptions& options) {
  std::vector<ObjectItem> items;
  for (const std::uint32_t i : indices) {
    const ShardedObject& object = *state.objects[i - state.tensors.size()];
    const bool plain_key = options.flavour == Flavour::dcp && object.whole();
    std::string key = plain_key ? object.key : object.unique_key();
    items.push_back({key, {}, archive_of(*object.data, form_of(options.flavour), key)});
  }
  for (ObjectItem& item : common.items) items.push_back({item.key, {}, std::move(item.archive)});
  return items;
}

/// The collective part that does not depend on the tensor handle's type. See `save`.
inline SaveReport save_state(const std::string& directory, const LocalState& state, any_communicator& comm,
                             const SaveOptions& options) {
  FileSystem& files = options.files != nullptr ? *options.files : posix_file_system();
  const bool leads = comm.rank() == coordinator;
  SaveReport report;

  const std::vector<std::uint32_t> checksums = on_all_ranks(comm, "save", [&] {
    check_shards(state.tensors);
    std::vector<std::uint32_t> sums;
    if (options.compare_replicas) {
      for (const LocalShard& shard : state.tensors) sums.push_back(checksum_of(shard.data, options.buffer_bytes));
    }
    return sums;
  });
  const std::vector<std::uint32_t> writes = plan_writes(comm, state, checksums, options.plan_cache);
  const auto first_object = std::lower_bound(writes.begin(), writes.end(), state.tensors.size());
  const std::span<const std::uint32_t> tensors(writes.begin(), first_object), objects(first_object, writes.end());
  StoredCommon common;
  const std::vector<ObjectItem> items = on_all_ranks(comm, "save", [&] {
    if (leads) common = store_common(state.common, options.flavour);
    return object_items(state, objects, common, options);
  });

  std::optional<DirectoryCommit> commit;
  try {
    std::vector<std::byte> place;
    on_all_ranks(comm, "save", [&] {
      if (!leads) return;
      check_replaceable(files, directory);
      commit.emplace(files, directory);
      const auto text = std::as_bytes(std::span(commit->path()));
      place.assign(text.begin(), text.end());
    });
    broadcast_bytes(comm, place, coordinator);
    const std::string temporary(reinterpret_cast<const char*>(place.data()), place.size());
    // The directory's name has a nonce that only this save knows: a rank that cannot see it is on another file system.
    on_all_ranks(comm, "save", [&] {
      if (files.status(temporary).kind != FileKind::directory) {
        throw CheckpointError(concat("cannot save to ", directory, ": the directory that rank ", coordinator,
                                     " made is not visible here, "
                                     "so it is not on a file system that all ranks share"),
                              {.file = directory});
      }
    });

    std::vector<std::byte> message = on_all_ranks(comm, "save", [&] {
      return to_wire(write_data_file(files, temporary, comm.rank(), state.tensors, tensors, items, options, report));
    });
    const Parcels all_written = gather(comm, std::move(message), coordinator);
    on_all_ranks(comm, "save", [&] {
      if (!leads) return;
      write_description(files, temporary, all_written, common, options);
      commit->commit();
    });
  } catch (...) {
    if (commit) commit->abandon();
    throw;
  }
  return report;
}

}  // namespace detail

/// Saves a sharded state dict as a checkpoint directory that `torch.distributed.checkpoint` and, in the `torch_dist`
/// flavour, Megatron-Core read.
///
/// `where` is a communicator or a context, whose world it is then. Collective over it, blocking. All ranks' shards
/// together must cover every tensor exactly once (replicas apart). Each element is written once, by one of the ranks that
/// hold it; replicas are taken to be equal, unless `compare_replicas` is set. Objects are written by their main replica, the
/// common state as rank 0 has it. The checkpoint appears as a whole when everything is on stable storage: before
/// that, and when anything fails on any rank, what was at `directory` stays as it was. An existing checkpoint is replaced;
/// any other non-empty directory is refused.
///
/// Throws the same error on every rank: InvalidArgument or CheckpointError for state dicts that do not fit together
/// (naming keys, ranks and boxes), IoError for what the system refused.
template <tensor_handle T, class Where>
SaveReport save(const std::string& directory, const ShardedStateDict<T>& state, Where&& where,
                const SaveOptions& options = {}) {
  any_communicator comm = detail::communicator_of(where);
  return detail::save_state(directory, state.local_state(), comm, options);
}

MGROUPS_END_NAMESPACE
