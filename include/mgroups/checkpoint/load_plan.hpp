// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/chunk_index.hpp>
#include <mgroups/checkpoint/load_options.hpp>
#include <mgroups/checkpoint/load_report.hpp>
#include <mgroups/checkpoint/read_chunks.hpp>
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

/// Asks the coordinator for this rank's keys and boxes.
[[nodiscard]] inline std::vector<std::byte> load_request(std::span<const LocalShard> shards) {
  std::vector<std::byte> message;
  WireWriter writer(message);
  for (const LocalShard& shard : shards) {
    const ShardLayout& layout = *shard.layout;
    writer.text(layout.key);
    writer.number(static_cast<std::uint64_t>(layout.dtype));
    writer.number(layout.allow_shape_mismatch ? 1 : 0);
    writer.number(static_cast<std::uint64_t>(layout.global_shape.rank()));
    writer.dims(layout.global_shape);
    writer.box(layout.box());
  }
  return message;
}

/// What the coordinator makes of all requests. Local.
class LoadPlanner {
 public:
  LoadPlanner(const CheckpointMetadata& metadata, const LoadOptions& options) : metadata_(metadata), options_(options) {}

  [[nodiscard]] LoadReport report(const Parcels& requests) const {
    LoadReport out;
    std::set<std::string_view> wanted, missing, mismatched;
    requests.for_each([&](int, std::span<const std::byte> bytes) {
      for (WireReader reader(bytes); !reader.done();) {
        const Request request = read_request(reader);
        wanted.insert(request.key);
        const auto found = metadata_.tensors.find(request.key);
        if (found == metadata_.tensors.end()) {
          if (missing.insert(request.key).second) out.missing.emplace_back(request.key);
        } else if (const auto reason = mismatch(found->second, request)) {
          if (mismatched.insert(request.key).second) out.mismatched.push_back({std::string(request.key), *reason});
        }
      }
    });
    for (const auto& [key, tensor] : metadata_.tensors) {
      if (!wanted.contains(key)) out.unexpected.push_back(key);
    }
    std::sort(out.missing.begin(), out.missing.end());
    std::sort(out.mismatched.begin(), out.mismatched.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    return out;
  }

  [[nodiscard]] bool acceptable(const LoadReport& report) const noexcept {
    return report.mismatched.empty() && (report.missing.empty() || options_.allow_missing) &&
           (report.unexpected.empty() || options_.allow_unexpected);
  }

  /// For each shard of each rank, the stored chunks that it needs.
  [[nodiscard]] Parcels answers(const Parcels& requests) {
    Parcels out(static_cast<int>(requests.counts.size()));
    WireWriter writer(out.bytes);
    requests.for_each([&](int rank, std::span<const std::byte> bytes) {
      const std::size_t before = out.bytes.size();
      for (WireReader reader(bytes); !reader.done();) answer(read_request(reader), writer);
      out.counts[static_cast<std::size_t>(rank)] = out.bytes.size() - before;
    });
    return out;
  }

 private:
  struct Request {
    std::string_view key;
    DType dtype;
    bool allow_shape_mismatch;
    Dims shape;
    Box box;
  };

  [[nodiscard]] static Request read_request(WireReader& reader) {
    Request out{reader.text(), static_cast<DType>(reader.number()), reader.number() != 0, {}, {}};
    out.shape = reader.dims(static_cast<int>(reader.number()));
    out.box = reader.box(out.shape.rank());
    return out;
  }

  [[nodiscard]] std::optional<std::string> mismatch(const TensorEntry& stored, const Request& wanted) const {
    if (const auto transform = metadata_.transforms.find(wanted.key); transform != metadata_.transforms.end()) {
      return concat("stored through the transform ", transform->second, ", which cannot be undone here");
    }
    std::string reason;
    const bool shape_fits =
        wanted.allow_shape_mismatch ? stored.shape.rank() == wanted.shape.rank() : stored.shape == wanted.shape;
    if (!shape_fits) reason = concat("shape ", to_string(stored.shape), " stored, ", to_string(wanted.shape), " wanted");
    if (stored.dtype != wanted.dtype && !options_.convert_dtype) {
      reason += concat(reason.empty() ? "" : ", ", "dtype ", name(stored.dtype), " stored, ", name(wanted.dtype), " wanted");
    }
    if (reason.empty()) return std::nullopt;
    return reason;
  }

  void answer(const Request& request, WireWriter& writer) {
    const auto found = metadata_.tensors.find(request.key);
    if (found == metadata_.tensors.end()) {
      writer.number(0);
      return;
    }
    const TensorEntry& tensor = found->second;
    writer.number(1);
    writer.number(static_cast<std::uint64_t>(tensor.dtype));
    writer.dims(tensor.shape);
    auto index = indices_.find(&tensor);
    if (index == indices_.end()) index = indices_.emplace(&tensor, ChunkIndex(tensor)).first;
    std::vector<std::size_t> chunks;
    if (!request.box.empty()) {
      index->second.for_each_overlap(request.box, [&](std::size_t chunk, const Box&) { chunks.push_back(chunk); });
    }
    writer.number(chunks.size());
    for (const std::size_t chunk : chunks) {
      const StorageInfo& storage = tensor.chunk_storage(chunk);
      writer.box(tensor.chunk_box(chunk));
      writer.text(metadata_.files[storage.file]);
      writer.number(storage.offset);
      writer.number(storage.length);
    }
  }

  const CheckpointMetadata& metadata_;
  const LoadOptions& options_;
  std::unordered_map<const TensorEntry*, ChunkIndex> indices_;
};

/// Turns the coordinator's answer into reads of whole or partial chunks. Checks that the chunks cover each shard exactly
/// once, and zeroes what a stored tensor of another size does not reach.
class LoadTask {
 public:
  LoadTask(std::span<const LocalShard> shards, std::span<const std::byte> answer, const std::string& directory) {
    WireReader reader(answer);
    for (const LocalShard& shard : shards) {
      if (reader.number() == 0) continue;
      const ShardLayout& layout = *shard.layout;
      const auto dtype = static_cast<DType>(reader.number());
      const int rank = layout.global_shape.rank();
      const Dims stored_shape = reader.dims(rank);
      const Box box = layout.box();
      const auto wanted = intersection(box, whole(stored_shape));
      if (layout.allow_shape_mismatch && box != wanted) beyond_.push_back(shard.data);

      // Prepended axes have size one: seen with them, the local tensor has the global tensor's rank.
      TensorView local = shard.data;
      local.shape = box.sizes;
      local.strides = Dims::filled(layout.prepend_axis_num, 0);
      for (const std::int64_t stride : shard.data.strides) local.strides.push_back(stride);

      BoxList covered(rank);
      for (auto n = reader.number(); n > 0; --n) {
        const Box chunk = reader.box(rank);
        const std::uint32_t file = file_number(reader.text());
        const std::uint64_t offset = reader.number();
        const StorageInfo storage{file, offset, reader.number()};
        const auto common = wanted ? intersection(*wanted, chunk) : std::nullopt;
        if (!common) continue;
        covered.push_back(relative_to(*common, *wanted));
        reads_.push_back(
            {storage, layout.key, dtype, chunk.sizes, relative_to(*common, chunk), local.part(relative_to(*common, box))});
      }
      if (!wanted) continue;
      if (const auto fault = find_tiling_fault(covered, wanted->sizes)) {
        Box where = fault->where;
        for (int axis = 0; axis < rank; ++axis) where.offsets[axis] += wanted->offsets[axis];
        throw FormatError(concat("tensor '", layout.key, "' in ", directory, ": ",
                                 fault->overlap ? "two stored chunks hold " : "no stored chunk holds ", to_string(where),
                                 "; .metadata is damaged, or the save was never checked"),
                          {.verb = "load", .key = layout.key, .file = directory});
      }
    }
  }

  /// Writes to the shards' memory.
  void run(FileSystem& files, const std::string& directory, const LoadOptions& options) {
    for (const TensorView& view : beyond_) fill_zero(view);
    ChunkReader(files, directory, names_, options).read(std::move(reads_));
  }

 private:
  [[nodiscard]] std::uint32_t file_number(std::string_view file) {
    const auto [found, inserted] = numbers_.try_emplace(std::string(file), static_cast<std::uint32_t>(names_.size()));
    if (inserted) names_.push_back(found->first);
    return found->second;
  }

  static void fill_zero(const TensorView& view) {
    std::byte zero[16] = {};
    copy_box({zero, view.dtype, view.shape, Dims::filled(view.shape.rank(), 0)}, view);
  }

  std::vector<std::string> names_;
  std::map<std::string, std::uint32_t> numbers_;
  std::vector<TensorView> beyond_;
  std::vector<ChunkRead> reads_;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
