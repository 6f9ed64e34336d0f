// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/agreement.hpp>
#include <mgroups/checkpoint/common_state.hpp>
#include <mgroups/checkpoint/directory.hpp>
#include <mgroups/checkpoint/load_options.hpp>
#include <mgroups/checkpoint/load_plan.hpp>
#include <mgroups/checkpoint/load_report.hpp>
#include <mgroups/checkpoint/load_request.hpp>
#include <mgroups/checkpoint/load_task.hpp>
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

/// Adds what any rank has not understood to every rank's report. Collective, blocking.
inline void add_not_understood(any_communicator& comm, const LoadReport& own, LoadReport& report) {
  std::uint64_t most = own.not_understood.size();
  comm.all_reduce(std::span(&most, 1), ReduceOp::max);
  if (most == 0) return;
  std::vector<std::byte> message;
  WireWriter writer(message);
  to_wire(writer, own);
  const Parcels all = gather(comm, std::move(message), coordinator);
  std::vector<std::byte> merged;
  if (comm.rank() == coordinator) {
    LoadReport sum;
    all.for_each([&](int, std::span<const std::byte> bytes) {
      WireReader reader(bytes);
      LoadReport one = report_from_wire(reader);
      std::move(one.not_understood.begin(), one.not_understood.end(), std::back_inserter(sum.not_understood));
    });
    std::stable_sort(sum.not_understood.begin(), sum.not_understood.end(),
                     [](const auto& a, const auto& b) { return a.key < b.key; });
    WireWriter out(merged);
    to_wire(out, sum);
  }
  broadcast_bytes(comm, merged, coordinator);
  WireReader reader(merged);
  LoadReport sum = report_from_wire(reader);
  std::move(sum.not_understood.begin(), sum.not_understood.end(), std::back_inserter(report.not_understood));
}

/// The collective part that does not depend on the tensor handle's type. See `load`.
inline LoadReport load_state(const std::string& directory, const LocalState& state, any_communicator& comm,
                             const LoadOptions& options) {
  FileSystem& files = options.files != nullptr ? *options.files : posix_file_system();
  const bool leads = comm.rank() == coordinator;

  on_all_ranks(comm, "load", [&] { check_shards(state.tensors); });
  const Parcels requests = gather(comm, load_request(state), coordinator);
  const auto opened = on_all_ranks(comm, "load", [&] {
    if (!leads) return std::optional<OpenedCheckpoint>();
    const MetadataFilter wanted = LoadPlanner::filter_of(requests);
    return std::optional(open_checkpoint(files, directory, options.verify, &wanted));
  });

  std::optional<LoadPlanner> planner;  // the coordinator's
  if (leads) planner.emplace(*opened, options);
  std::vector<std::byte> verdict;
  on_all_ranks(comm, "load", [&] {
    if (!leads) return;
    const LoadReport report = planner->report(requests);
    WireWriter writer(verdict);
    to_wire(writer, report);
    if (!planner->acceptable(report)) {
      const CheckpointMetadata& stored = opened->metadata;
      std::vector<std::string_view> keys(stored.left_out.begin(), stored.left_out.end());
      for (const auto& [key, tensor] : stored.tensors) keys.push_back(key);
      std::sort(keys.begin(), keys.end());
      return writer.text(report_sentence(directory, report, keys));
    }
    writer.text("");
    writer.text(opened->directory);
    writer.number(opened->flavour == Flavour::torch_dist ? 1 : 0);
    const bool common_wanted = wants_common(requests);
    writer.number(common_wanted ? 1 : 0);
    if (common_wanted) to_wire(writer, read_common(files, *opened, planner->wanted_objects(requests)));
  });
  broadcast_bytes(comm, verdict, coordinator);
  WireReader reader(verdict);
  LoadReport report = report_from_wire(reader);
  const std::string_view refusal = reader.text();
  if (!refusal.empty()) throw LoadError(std::string(refusal), {.verb = "load", .file = directory}, std::move(report));
  const std::string committed(reader.text());
  const Object::Form form = reader.number() != 0 ? Object::Form::listed : Object::Form::plain;

  // Every rank makes the common state of the same bytes, wanted there or not: then all know what of it is not understood.
  const Object common = on_all_ranks(comm, "load", [&] {
    return reader.number() != 0 ? make_common(common_from_wire(reader), committed, report) : Object();
  });
  const Parcels answers =
      on_all_ranks(comm, "load", [&] { return leads ? planner->answers(requests) : Parcels(comm.size()); });
  const Parcels mine = exchange(comm, answers);
  auto task = on_all_ranks(comm, "load", [&] { return LoadTask(state, mine.bytes, committed, form, comm.size()); });
  LoadReport own;
  on_all_ranks(comm, "load", [&] { task.run(files, options, own); });
  task.run_shared(comm, files, options);
  if (state.common != nullptr) *state.common = common;
  add_not_understood(comm, own, report);
  return report;
}

}  // namespace detail

/// Loads a `torch_dist` or DCP checkpoint into the tensors of a sharded state dict, whatever layout it was saved under.
///
/// `where` is a communicator or a context, whose world it is then. Collective over it, blocking. Each rank reads only the
/// bytes that its shards need. Objects and the common state are replaced by what is stored; one whose value is not
/// understood keeps its bytes and is reported. Before any tensor is written to, everything that does not fit is found and
/// reported together (`LoadReport`, or a LoadError that holds it). A tensor with `allow_shape_mismatch` takes what the
/// stored one has and becomes zero beyond.
///
/// Throws the same error on every rank: LoadError (nothing was loaded), CheckpointError where there is no checkpoint,
/// FormatError and IoError for files that are damaged or cannot be read; those can strike after some tensors have been
/// written to.
template <tensor_handle T, class Where>
LoadReport load(const std::string& directory, const ShardedStateDict<T>& state, Where&& where,
                const LoadOptions& options = {}) {
  any_communicator comm = detail::communicator_of(where);
  return detail::load_state(directory, state.local_state(), comm, options);
}

MGROUPS_END_NAMESPACE
