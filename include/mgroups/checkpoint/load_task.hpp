// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/checkpoint/directory.hpp>
#include <mgroups/checkpoint/load_options.hpp>
#include <mgroups/checkpoint/load_plan.hpp>
#include <mgroups/checkpoint/load_report.hpp>
#include <mgroups/checkpoint/read_chunks.hpp>
#include <mgroups/checkpoint/shared_exchange.hpp>
#include <mgroups/checkpoint/stored_object.hpp>
#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/core/block_checksums.hpp>
#include <mgroups/core/box.hpp>
#include <mgroups/core/box_list.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/tiling.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/io/file.hpp>
#include <mgroups/pack/pack.hpp>
#include <mgroups/shard/state_dict.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Turns the coordinator's answer into reads of whole or partial chunks. Checks that the chunks cover each shard exactly
/// once, and zeroes what a stored tensor of another size does not reach.
class LoadTask {
 public:
  /// `state` and `answer` must outlive this.
  LoadTask(const LocalState& state, std::span<const std::byte> answer, const std::string& directory, Object::Form form,
           int ranks)
      : directory_(directory), form_(form) {
    WireReader reader(answer);
    reads_.reserve(state.tensors.size());
    for (const LocalShard& shard : state.tensors) {
      if (reader.number() == 0) continue;
      const ShardLayout& layout = *shard.layout;
      const auto dtype = static_cast<DType>(reader.number());
      const int rank = layout.global_shape.rank();
      const Dims stored_shape = reader.dims(rank);
      const Box box = layout.box();
      const auto wanted = intersection(box, whole(stored_shape));
      if (layout.allow_shape_mismatch && box != wanted) beyond_.push_back(shard.data);

      const TensorView local = seen_globally(shard);

      BoxList covered(rank);
      for (auto n = reader.number(); n > 0; --n) {
        const Box chunk = reader.box(rank);
        const std::uint64_t how = reader.number();
        const StorageInfo storage = how == read_for_several ? StorageInfo{} : read_storage(reader);
        Dims stored_chunk = chunk.sizes;
        std::optional<std::int64_t> run;
        if (how == read_run) {
          run = static_cast<std::int64_t>(reader.number());
          stored_chunk = reader.dims(rank + 1);
        }
        const auto common = wanted ? intersection(*wanted, chunk) : std::nullopt;
        if (!common) continue;
        covered.push_back(relative_to(*common, *wanted));
        if (how == read_for_several) continue;
        reads_.push_back({storage, layout.key, dtype, stored_chunk, relative_to(*common, chunk),
                          local.part(relative_to(*common, box)), run, chunk.sizes});
      }
      // What a single chunk holds whole needs no search.
      if (!wanted || (covered.size() == 1 && covered.box(0) == whole(wanted->sizes))) continue;
      if (const auto fault = find_tiling_fault(covered, wanted->sizes)) {
        Box where = fault->where;
        for (int axis = 0; axis < rank; ++axis) where.offsets[axis] += wanted->offsets[axis];
        throw FormatError(concat("tensor '", layout.key, "' in ", directory, ": ",
                                 fault->overlap ? "two stored chunks hold " : "no stored chunk holds ", to_string(where),
                                 "; .metadata is damaged, or the save was never checked"),
                          {.verb = "load", .key = layout.key, .file = directory});
      }
    }
    for (const ShardedObject* object : state.objects) {
      if (reader.number() != 0) objects_.push_back({object, read_storage(reader)});
    }
    for (auto n = reader.number(); n > 0; --n) {
      BlockChecksums& sums = checksums_[std::string(reader.text())];
      sums.file_bytes = reader.number();
      for (auto i = BlockChecksums::block_count(sums.file_bytes); i > 0; --i) sums.blocks.push_back(reader.small_number());
    }
    if (!reader.done()) read_shared(reader, state, ranks);
  }

  /// Reads what one rank reads for several, and delivers it. Collective, blocking.
  void run_shared(any_communicator& comm, FileSystem& files, const LoadOptions& options) {
    LoadOptions reading = options;
    reading.progress = nullptr;  // what is read for others is no progress here
    ChunkReader reader(files, directory_, names_, checksums_, reading);
    SharedExchange(comm, reader, shared_, options).run();
  }

  /// Writes to the shards' memory, then to the objects. Objects that are not understood are noted in `report`.
  void run(FileSystem& files, const LoadOptions& options, LoadReport& report) {
    for (const TensorView& view : beyond_) fill_zero(view);
    ChunkReader(files, directory_, names_, checksums_, options).read(reads_);
    for (const auto& [object, at] : objects_) {
      const auto sums = checksums_.find(names_[at.file]);
      const std::string path = join_path(directory_, names_[at.file]);
      *object->data = object_from(
          read_item(files, path, sums != checksums_.end() ? &sums->second : nullptr, at.offset, at.length, object->key),
          form_, path, object->key);
      if (object->data->understood()) continue;
      const bool piece = form_ == Object::Form::listed || !object->whole();
      report.not_understood.push_back({piece ? object->unique_key() : object->key, object->data->fault()});
    }
  }

 private:
  struct ObjectRead {
    const ShardedObject* object;
    StorageInfo at;
  };

  /// Prepended axes have size one: seen with them, the local tensor has the global tensor's rank.
  [[nodiscard]] static TensorView seen_globally(const LocalShard& shard) {
    TensorView local = shard.data;
    local.shape = shard.layout->box().sizes;
    local.strides = Dims::filled(shard.layout->prepend_axis_num, 0);
    for (const std::int64_t stride : shard.data.strides) local.strides.push_back(stride);
    return local;
  }

  /// What `SharedReads::assign` wrote.
  void read_shared(WireReader& reader, const LocalState& state, int ranks) {
    for (std::string_view file = reader.text(); !file.empty(); file = reader.text()) {
      SharedRead& read = shared_.reads.emplace_back();
      read.chunk.key = reader.text();
      read.chunk.storage.file = file_number(file);
      read.chunk.storage.offset = reader.number();
      read.chunk.storage.length = reader.number();
      read.chunk.dtype = static_cast<DType>(reader.number());
      const auto rank = static_cast<int>(reader.number());
      read.chunk.run_shape = read.chunk.chunk_shape = reader.dims(rank);
      read.chunk.part = reader.box(rank);
      for (auto n = reader.number(); n > 0; --n) {
        const auto to = static_cast<int>(reader.number());
        read.destinations.push_back({to, relative_to(reader.box(rank), read.chunk.part)});
      }
    }
    shared_.pieces.resize(static_cast<std::size_t>(ranks));
    while (!reader.done()) {
      std::vector<SharedPiece>& pieces = shared_.pieces[static_cast<std::size_t>(reader.number())];
      const LocalShard& shard = state.tensors[static_cast<std::size_t>(reader.number())];
      const auto dtype = static_cast<DType>(reader.number());
      const Box part = reader.box(shard.layout->global_shape.rank());
      pieces.push_back({dtype, seen_globally(shard).part(relative_to(part, shard.layout->box()))});
    }
  }

  [[nodiscard]] StorageInfo read_storage(WireReader& reader) {
    const std::uint32_t file = file_number(reader.text());
    const std::uint64_t offset = reader.number();
    return {file, offset, reader.number()};
  }
  [[nodiscard]] std::uint32_t file_number(std::string_view file) {
    if (last_file_ < names_.size() && names_[last_file_] == file) return last_file_;
    const auto [found, inserted] = numbers_.try_emplace(std::string(file), static_cast<std::uint32_t>(names_.size()));
    if (inserted) names_.push_back(found->first);
    return last_file_ = found->second;
  }

  static void fill_zero(const TensorView& view) {
    std::byte zero[16] = {};
    copy_box({zero, view.dtype, view.shape, Dims::filled(view.shape.rank(), 0)}, view);
  }

  std::string directory_;
  Object::Form form_;
  std::vector<std::string> names_;
  std::map<std::string, BlockChecksums, std::less<>> checksums_;
  std::vector<ObjectRead> objects_;
  std::map<std::string, std::uint32_t> numbers_;
  std::uint32_t last_file_ = 0;
  std::vector<TensorView> beyond_;
  std::vector<ChunkRead> reads_;
  SharedWork shared_;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
