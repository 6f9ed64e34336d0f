// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/agreement.hpp>
#include <mgroups/checkpoint/directory.hpp>
#include <mgroups/checkpoint/load_plan.hpp>
#include <mgroups/checkpoint/load_report.hpp>
#include <mgroups/checkpoint/save.hpp>
#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/io/posix.hpp>
#include <mgroups/shard/state_dict.hpp>
#include <mgroups/shard/validate.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// The collective part that does not depend on the tensor handle's type. See `load`.
inline LoadReport load_shards(const std::string& directory, std::span<const LocalShard> shards, any_communicator& comm,
                              const LoadOptions& options) {
  FileSystem& files = options.files != nullptr ? *options.files : posix_file_system();
  const bool leads = comm.rank() == coordinator;

  on_all_ranks(comm, "load", [&] { check_shards(shards); });
  const auto opened =
      on_all_ranks(comm, "load", [&] { return leads ? std::optional(open_checkpoint(files, directory)) : std::nullopt; });
  const Parcels requests = gather(comm, load_request(shards), coordinator);

  std::vector<std::byte> verdict;
  on_all_ranks(comm, "load", [&] {
    if (!leads) return;
    const LoadPlanner planner(opened->metadata, options);
    const LoadReport report = planner.report(requests);
    WireWriter writer(verdict);
    to_wire(writer, report);
    writer.text(opened->directory);
    std::vector<std::string_view> stored_keys;
    for (const auto& [key, tensor] : opened->metadata.tensors) stored_keys.push_back(key);
    writer.text(planner.acceptable(report) ? std::string() : report_sentence(directory, report, stored_keys));
  });
  broadcast_bytes(comm, verdict, coordinator);
  WireReader reader(verdict);
  LoadReport report = report_from_wire(reader);
  const std::string committed(reader.text());
  const std::string_view refusal = reader.text();
  if (!refusal.empty()) throw LoadError(std::string(refusal), {.verb = "load", .file = directory}, std::move(report));

  const Parcels answers = on_all_ranks(
      comm, "load", [&] { return leads ? LoadPlanner(opened->metadata, options).answers(requests) : Parcels(comm.size()); });
  const Parcels mine = exchange(comm, answers);
  auto task = on_all_ranks(comm, "load", [&] { return LoadTask(shards, mine.bytes, committed); });
  on_all_ranks(comm, "load", [&] { task.run(files, committed, options); });
  return report;
}

}  // namespace detail

/// Loads a `torch_dist` or DCP checkpoint into the tensors of a sharded state dict, whatever layout it was saved under.
///
/// `where` is a communicator or a context, whose world it is then. Collective over it, blocking. Each rank reads only the
/// bytes that its shards need. Before any tensor is written to, everything that does not fit is found and reported
/// together (`LoadReport`, or a LoadError that holds it). A tensor with `allow_shape_mismatch` takes what the stored one
/// has and becomes zero beyond.
///
/// Throws the same error on every rank: LoadError (nothing was loaded), CheckpointError where there is no checkpoint,
/// FormatError and IoError for files that are damaged or cannot be read; those can strike after some tensors have been
/// written to.
template <tensor_handle T, class Where>
LoadReport load(const std::string& directory, const ShardedStateDict<T>& state, Where&& where,
                const LoadOptions& options = {}) {
  any_communicator comm = detail::communicator_of(where);
  return detail::load_shards(directory, state.local_shards(), comm, options);
}

MGROUPS_END_NAMESPACE
