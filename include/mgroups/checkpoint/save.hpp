// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/agreement.hpp>
#include <mgroups/checkpoint/data_file.hpp>
#include <mgroups/checkpoint/directory.hpp>
#include <mgroups/checkpoint/plan.hpp>
#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/format/torch_dist/archive.hpp>
#include <mgroups/format/torch_dist/common_state.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/group/context.hpp>
#include <mgroups/io/commit.hpp>
#include <mgroups/io/posix.hpp>
#include <mgroups/io/sequential_writer.hpp>
#include <mgroups/shard/state_dict.hpp>
#include <mgroups/shard/validate.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// How to save.
struct SaveOptions {
  std::size_t buffer_bytes = std::size_t{4} << 20;  ///< memory that each rank uses beside the state itself, about
  FileSystem* files = nullptr;                      ///< null: the machine's own
  std::atomic<std::uint64_t>* progress = nullptr;   ///< if given, bytes of elements are added to it as they are written
};

/// What a save has done, in numbers of this rank.
struct SaveReport {
  std::uint64_t tensors_written = 0;
  std::uint64_t bytes_written = 0;  ///< bytes of elements, without the format's own
};

namespace detail {

inline constexpr int coordinator = 0;

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

[[nodiscard]] inline std::string data_file_name(int rank) { return concat("__", rank, "_0.distcp"); }

/// Which of its shards this rank writes, in ascending order. Collective, blocking.
[[nodiscard]] inline std::vector<std::uint32_t> plan_writes(any_communicator& comm, std::span<const LocalShard> shards) {
  const Parcels records = exchange(comm, plan_messages(shards, comm.size()));
  OwnedPlan plan = on_all_ranks(comm, "save", [&] {
    OwnedKeys owned(comm.size());
    records.for_each([&](int rank, std::span<const std::byte> message) { owned.add(rank, message); });
    return owned.plan();
  });

  // Every rank learns of every faulty key: owners send their faults to the coordinator, which makes one sentence of them.
  std::vector<std::byte> message;
  WireWriter faults(message);
  for (const std::string& fault : plan.faults) faults.text(fault);
  const Parcels all_faults = gather(comm, std::move(message), coordinator);
  on_all_ranks(comm, "save", [&] {
    constexpr std::size_t most = 8;
    std::vector<std::string> sentences;
    all_faults.for_each([&](int, std::span<const std::byte> bytes) {
      for (WireReader reader(bytes); !reader.done();) sentences.emplace_back(reader.text());
    });
    if (sentences.empty()) return;
    std::sort(sentences.begin(), sentences.end());
    std::string text = concat("cannot save, since the ranks' shards do not make whole tensors: ");
    for (std::size_t i = 0; i < std::min(most, sentences.size()); ++i) text += (i > 0 ? "; " : "") + sentences[i];
    if (sentences.size() > most) text += concat("; and ", sentences.size() - most, " keys more");
    throw CheckpointError(text);
  });

  std::sort(plan.writes.begin(), plan.writes.end(), [](const WriteAssignment& a, const WriteAssignment& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.index < b.index;
  });
  Parcels orders(comm.size());
  WireWriter writer(orders.bytes);
  for (const WriteAssignment& write : plan.writes) {
    const std::size_t before = orders.bytes.size();
    writer.number(write.index);
    orders.counts[write.rank] += orders.bytes.size() - before;
  }
  std::vector<std::uint32_t> mine;
  exchange(comm, orders).for_each([&](int, std::span<const std::byte> bytes) {
    for (WireReader reader(bytes); !reader.done();) mine.push_back(reader.small_number());
  });
  std::sort(mine.begin(), mine.end());
  return mine;
}

/// Writes this rank's data file and describes what lies where in it: the message for the coordinator. Local, blocking.
[[nodiscard]] inline std::vector<std::byte> write_data_file(FileSystem& files, const std::string& directory, int rank,
                                                            std::span<const LocalShard> shards,
                                                            std::span<const std::uint32_t> indices,
                                                            const SaveOptions& options, SaveReport& report) {
  std::vector<std::byte> records;
  if (indices.empty()) return records;
  const auto archive_of = [&](std::uint32_t i) {
    return TensorArchive(shards[i].data.dtype, shards[i].layout->box().sizes);
  };
  std::uint64_t end = 0;
  for (const std::uint32_t i : indices) end = aligned(end) + archive_of(i).total_size();

  const std::size_t buffer = std::max<std::size_t>(options.buffer_bytes, std::size_t{64} << 10);
  SequentialWriter out(files.create(join_path(directory, data_file_name(rank))), end, buffer);
  WireWriter writer(records);
  for (const std::uint32_t i : indices) {
    const ShardLayout& layout = *shards[i].layout;
    TensorArchive archive = archive_of(i);
    out.align(archive_alignment);
    const std::uint64_t offset = out.position();
    append_tensor(out, archive, shards[i].data, buffer / 2);
    writer.text(layout.key);
    writer.number(static_cast<std::uint64_t>(layout.dtype));
    writer.number(static_cast<std::uint64_t>(layout.global_shape.rank()));
    writer.dims(layout.global_shape);
    writer.box(layout.box());
    writer.number(offset);
    writer.number(out.position() - offset);
    ++report.tensors_written;
    report.bytes_written += shards[i].data.nbytes();
    if (options.progress != nullptr) *options.progress += shards[i].data.nbytes();
  }
  out.finish();
  return records;
}

[[nodiscard]] inline CheckpointMetadata assemble_metadata(const Parcels& records) {
  CheckpointMetadata metadata;
  records.for_each([&](int rank, std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    const auto file = static_cast<std::uint32_t>(metadata.files.size());
    metadata.files.push_back(data_file_name(rank));
    for (WireReader reader(bytes); !reader.done();) {
      const std::string_view key = reader.text();
      const auto dtype = static_cast<DType>(reader.number());
      const Dims shape = reader.dims(static_cast<int>(reader.number()));
      auto found = metadata.tensors.find(key);
      if (found == metadata.tensors.end())
        found = metadata.tensors.emplace(std::string(key), TensorEntry(dtype, shape)).first;
      const Box box = reader.box(shape.rank());
      const std::uint64_t offset = reader.number();
      found->second.add_chunk(box, {file, offset, reader.number()});
    }
  });
  return metadata;
}

/// A directory that exists and is no checkpoint is somebody's: it is not replaced.
inline void check_replaceable(FileSystem& files, const std::string& directory) {
  const FileStatus status = files.status(directory);
  if (status.kind == FileKind::none && !status.dangling_link) return;
  if (status.kind == FileKind::directory) {
    if (files.status(join_path(directory, std::string(metadata_name))).kind == FileKind::file) return;
    if (files.list(directory).empty()) return;
  }
  throw CheckpointError(concat("cannot save to ", directory,
                               ": it exists and is not a checkpoint (no .metadata in it), and saving "
                               "would replace all of it; choose another name or remove it"),
                        {.file = directory});
}

/// The collective part that does not depend on the tensor handle's type. See `save`.
inline SaveReport save_shards(const std::string& directory, std::span<const LocalShard> shards, any_communicator& comm,
                              const SaveOptions& options) {
  FileSystem& files = options.files != nullptr ? *options.files : posix_file_system();
  const bool leads = comm.rank() == coordinator;
  SaveReport report;

  on_all_ranks(comm, "save", [&] { check_shards(shards); });
  const std::vector<std::uint32_t> indices = plan_writes(comm, shards);

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

    std::vector<std::byte> records = on_all_ranks(
        comm, "save", [&] { return write_data_file(files, temporary, comm.rank(), shards, indices, options, report); });
    const Parcels all_records = gather(comm, std::move(records), coordinator);
    on_all_ranks(comm, "save", [&] {
      if (!leads) return;
      write_file_atomically(files, join_path(temporary, "common.pt"), empty_common_state());
      write_file_atomically(files, join_path(temporary, "metadata.json"), std::as_bytes(std::span(torch_dist_marker)));
      write_file_atomically(files, join_path(temporary, std::string(metadata_name)),
                            write_metadata(assemble_metadata(all_records)));
      commit->commit();
    });
  } catch (...) {
    if (commit) commit->abandon();
    throw;
  }
  return report;
}

}  // namespace detail

/// Saves a sharded state dict as a `torch_dist` checkpoint directory, which Megatron-Core and
/// `torch.distributed.checkpoint` read.
///
/// `where` is a communicator or a context, whose world it is then. Collective over it, blocking. All ranks' shards
/// together must cover every tensor exactly once (replicas apart). Each element is written once, by one of the ranks that
/// hold it; replicas are taken to be equal. The checkpoint appears as a whole when everything is on stable storage: before
/// that, and when anything fails on any rank, what was at `directory` stays as it was. An existing checkpoint is replaced;
/// any other non-empty directory is refused.
///
/// Throws the same error on every rank: InvalidArgument or CheckpointError for state dicts that do not fit together
/// (naming keys, ranks and boxes), IoError for what the system refused.
template <tensor_handle T, class Where>
SaveReport save(const std::string& directory, const ShardedStateDict<T>& state, Where&& where,
                const SaveOptions& options = {}) {
  any_communicator comm = detail::communicator_of(where);
  return detail::save_shards(directory, state.local_shards(), comm, options);
}

MGROUPS_END_NAMESPACE
