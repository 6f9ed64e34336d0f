// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/chunk_index.hpp>
#include <mgroups/checkpoint/directory.hpp>
#include <mgroups/checkpoint/flattened.hpp>
#include <mgroups/checkpoint/flavour.hpp>
#include <mgroups/checkpoint/load_options.hpp>
#include <mgroups/checkpoint/load_report.hpp>
#include <mgroups/checkpoint/load_request.hpp>
#include <mgroups/checkpoint/shared_reads.hpp>
#include <mgroups/core/block_checksums.hpp>
#include <mgroups/core/box.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/format/checksum_file.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/shard/state_dict.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// How a chunk comes to a rank.
inline constexpr std::uint64_t read_alone = 0, read_run = 1, read_for_several = 2;

/// What the coordinator makes of all requests. Local.
class LoadPlanner {
 public:
  LoadPlanner(const OpenedCheckpoint& opened, const LoadOptions& options)
      : opened_(opened), metadata_(opened.metadata), options_(options) {}

  /// Finds the tensors that are asked for. Part of `report`.
  void look_up(const Parcels& requests) {
    forget();
    for_each_request(
        requests, [&](int, const TensorRequest& request) { static_cast<void>(look_up(request)); },
        [](int, const ObjectRequest&) {});
  }

  /// What all requests together need of the checkpoint's tensors.
  [[nodiscard]] static MetadataFilter filter_of(const Parcels& requests) {
    MetadataFilter out;
    for_each_request(
        requests, [&](int, const TensorRequest& request) { out.want(request.key, request.box); },
        [](int, const ObjectRequest&) {});
    return out;
  }

  [[nodiscard]] LoadReport report(const Parcels& requests) {
    LoadReport out;
    forget();
    std::set<std::string_view> wanted, missing, mismatched;
    const auto mismatch = [&](std::string_view key, std::string reason) {
      if (mismatched.insert(key).second) out.mismatched.push_back({std::string(key), std::move(reason)});
    };
    for_each_request(
        requests,
        [&](int, const TensorRequest& request) {
          const Stored* const stored = look_up(request);
          if (const auto unreadable = metadata_.unreadable.find(request.key); unreadable != metadata_.unreadable.end()) {
            wanted.insert(request.key);
            mismatch(request.key, unreadable->second);
          } else if (stored == nullptr) {
            if (missing.insert(request.key).second) out.missing.emplace_back(request.key);
          } else if (auto reason = fault_of(seen_by(request, stored->second), request)) {
            mismatch(request.key, std::move(*reason));
          }
        },
        [&](int, const ObjectRequest& request) {
          const auto found = find_object(request);
          if (found != metadata_.objects.end()) {
            wanted.insert(found->first);
            const auto unreadable = metadata_.unreadable.find(found->first);
            if (unreadable != metadata_.unreadable.end()) mismatch(found->first, unreadable->second);
          } else if (const std::string other = other_piece(request.key); !other.empty()) {
            mismatch(request.key, concat("stored in other pieces, '", other, "' for one, than '", request.unique_key,
                                         "'; an object is loaded in as many pieces as it was saved in"));
          } else if (missing.insert(request.key).second) {
            out.missing.emplace_back(request.key);
          }
        });
    for (const auto& [key, tensor] : metadata_.tensors) {
      if (!askers_.contains(&tensor)) out.unexpected.push_back(key);
    }
    out.unexpected.insert(out.unexpected.end(), metadata_.left_out.begin(), metadata_.left_out.end());
    for (const auto& [key, reason] : metadata_.unreadable) {
      if (!wanted.contains(key) && !metadata_.tensors.contains(key)) out.unexpected.push_back(key);
    }
    // Bytes of PyTorch's are the common state, whoever asks for it; Megatron's objects are not.
    for (const auto& [key, item] : metadata_.objects) {
      if (opened_.flavour == Flavour::torch_dist && key != common_key && !wanted.contains(key))
        out.unexpected.push_back(key);
    }
    std::sort(out.missing.begin(), out.missing.end());
    std::sort(out.unexpected.begin(), out.unexpected.end());
    std::sort(out.mismatched.begin(), out.mismatched.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    return out;
  }

  /// The stored keys of all objects that some rank asks for.
  [[nodiscard]] std::set<std::string, std::less<>> wanted_objects(const Parcels& requests) const {
    std::set<std::string, std::less<>> out;
    for_each_request(
        requests, [](int, const TensorRequest&) {},
        [&](int, const ObjectRequest& request) {
          if (const auto found = find_object(request); found != metadata_.objects.end()) out.insert(found->first);
        });
    return out;
  }

  [[nodiscard]] bool acceptable(const LoadReport& report) const noexcept {
    return report.mismatched.empty() && (report.missing.empty() || options_.allow_missing) &&
           (report.unexpected.empty() || options_.allow_unexpected);
  }

  /// After `report` or `look_up`: for each shard and object of each rank, where what it needs is stored; then the checksums
  /// of the files in which it is; then its part of shared reads.
  [[nodiscard]] Parcels answers(const Parcels& requests) {
    const int ranks = static_cast<int>(requests.counts.size());
    SharedReads shared(ranks, opened_.checksums.empty() ? 1 : static_cast<std::int64_t>(BlockChecksums::block_bytes),
                       options_);
    const std::vector<std::vector<std::byte>> shared_messages = plan_shared(requests, shared);
    Parcels out(ranks);
    WireWriter writer(out.bytes);
    std::set<std::uint32_t> files;
    std::size_t before = 0, next = 0;
    int current = 0;
    const auto finish = [&](int rank) {
      writer.number(opened_.checksums.empty() ? 0 : files.size());
      if (!opened_.checksums.empty()) {
        for (const std::uint32_t file : files) answer_checksums(metadata_.files[file], writer);
      }
      files.clear();
      if (shared.enabled()) {
        const std::vector<std::byte>& own = shared_messages[static_cast<std::size_t>(rank)];
        out.bytes.insert(out.bytes.end(), own.begin(), own.end());
      }
      out.counts[static_cast<std::size_t>(rank)] = out.bytes.size() - before;
      before = out.bytes.size();
    };
    const auto turn_to = [&](int rank) {
      while (current < rank) finish(current++);
    };
    for_each_request(
        requests,
        [&](int rank, const TensorRequest& request) {
          turn_to(rank);
          answer(request, asked_[next++], shared, writer, files);
        },
        [&](int rank, const ObjectRequest& request) {
          turn_to(rank);
          const auto found = find_object(request);
          writer.number(found != metadata_.objects.end() ? 1 : 0);
          if (found == metadata_.objects.end()) return;
          answer_storage(found->second, writer, files);
        });
    turn_to(static_cast<int>(requests.counts.size()));
    return out;
  }

 private:
  using Stored = std::pair<const std::string, TensorEntry>;

  void forget() {
    asked_.clear();
    askers_.clear();
  }
  /// Null where it is not stored.
  const Stored* look_up(const TensorRequest& request) {
    const auto found = metadata_.tensors.find(request.key);
    const bool stored = found != metadata_.tensors.end();
    asked_.push_back(stored ? &*found : nullptr);
    if (stored) ++askers_[&found->second];
    return asked_.back();
  }

  /// Megatron's key of the piece, else the plain key of a whole object.
  [[nodiscard]] std::map<std::string, StorageInfo, std::less<>>::const_iterator find_object(
      const ObjectRequest& request) const {
    const auto found = metadata_.objects.find(request.unique_key);
    return found == metadata_.objects.end() && request.whole ? metadata_.objects.find(request.key) : found;
  }
  /// A stored piece of the object, of whatever number; empty where there is none.
  [[nodiscard]] std::string other_piece(std::string_view key) const {
    const std::string prefix = concat(key, "/shard_");
    const auto found = metadata_.objects.lower_bound(prefix);
    return found != metadata_.objects.end() && found->first.starts_with(prefix) ? found->first : std::string();
  }

  [[nodiscard]] const TensorEntry& seen_by(const TensorRequest& request, const TensorEntry& stored) {
    return tensors_.seen(request.key, stored, request.shape.rank());
  }

  [[nodiscard]] std::optional<std::string> fault_of(const TensorEntry& stored, const TensorRequest& wanted) const {
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

  /// Calls `f(chunk)` for each chunk of `tensor` that overlaps the request's box.
  template <class F>
  void for_each_chunk(const TensorRequest& request, const TensorEntry& tensor, F&& f) {
    if (request.box.empty()) return;
    if (tensor.chunk_count() == 1) return f(std::size_t{0});
    auto index = indices_.find(&tensor);
    if (index == indices_.end()) index = indices_.emplace(&tensor, ChunkIndex(tensor)).first;
    index->second.for_each_overlap(request.box, [&](std::size_t chunk, const Box&) { f(chunk); });
  }

  /// Finds what one rank reads for several, and returns each rank's part of it. What Megatron-Core stored as flattened
  /// ranges every rank reads for itself.
  [[nodiscard]] std::vector<std::vector<std::byte>> plan_shared(const Parcels& requests, SharedReads& shared) {
    if (!shared.enabled()) return {};
    const bool any = std::any_of(askers_.begin(), askers_.end(), [](const auto& one) { return one.second > 1; });
    if (!any) return std::vector<std::vector<std::byte>>(requests.counts.size());
    const auto for_each_part = [&](auto&& f) {
      std::size_t next = 0;
      for_each_request(
          requests,
          [&](int rank, const TensorRequest& request) {
            const Stored* const stored = asked_[next++];
            // What one shard alone asks for cannot be read for several.
            if (stored == nullptr || askers_.find(&stored->second)->second < 2) return;
            const TensorEntry& tensor = seen_by(request, stored->second);
            const auto wanted = intersection(request.box, whole(tensor.shape));
            if (!wanted || tensors_.flattened(tensor) != nullptr) return;
            for_each_chunk(request, tensor, [&](std::size_t chunk) {
              const Box box = tensor.chunk_box(chunk);
              if (const auto common = intersection(*wanted, box)) {
                f(rank, request, stored->first, tensor, chunk, relative_to(*common, box));
              }
            });
          },
          [](int, const ObjectRequest&) {});
    };
    for_each_part([&](int, const TensorRequest&, std::string_view, const TensorEntry& tensor, std::size_t chunk,
                      const Box& part) { shared.count(tensor, chunk, part); });
    for_each_part([&](int rank, const TensorRequest& request, std::string_view key, const TensorEntry& tensor,
                      std::size_t chunk, const Box& part) {
      if (shared.shared(tensor, chunk)) shared.share(tensor, chunk, key, rank, request.shard, part);
    });
    return shared.assign(metadata_.files);
  }

  void answer(const TensorRequest& request, const Stored* stored, const SharedReads& shared, WireWriter& writer,
              std::set<std::uint32_t>& files) {
    if (stored == nullptr) {
      writer.number(0);
      return;
    }
    const TensorEntry& tensor = seen_by(request, stored->second);
    const auto* const flattened = tensors_.flattened(tensor);
    writer.number(1);
    writer.number(static_cast<std::uint64_t>(tensor.dtype));
    writer.dims(tensor.shape);
    std::vector<std::size_t> chunks;
    for_each_chunk(request, tensor, [&](std::size_t chunk) { chunks.push_back(chunk); });
    writer.number(chunks.size());
    for (const std::size_t chunk : chunks) {
      const StorageInfo& storage = tensor.chunk_storage(chunk);
      writer.box(tensor.chunk_box(chunk));
      if (flattened == nullptr && shared.enabled() && shared.shared(tensor, chunk)) {
        writer.number(read_for_several);
        files.insert(storage.file);
        continue;
      }
      writer.number(flattened != nullptr ? read_run : read_alone);
      answer_storage(storage, writer, files);
      if (flattened == nullptr) continue;
      const FlatPiece& piece = flattened->tensor->pieces[chunk];
      writer.number(static_cast<std::uint64_t>(piece.first));
      writer.dims(flattened->stored->chunk_box(piece.chunk).sizes);
    }
  }
  void answer_storage(const StorageInfo& storage, WireWriter& writer, std::set<std::uint32_t>& files) const {
    files.insert(storage.file);
    writer.text(metadata_.files[storage.file]);
    writer.number(storage.offset);
    writer.number(storage.length);
  }
  void answer_checksums(const std::string& file, WireWriter& writer) const {
    writer.text(file);
    const auto found = opened_.checksums.find(file);
    if (found == opened_.checksums.end()) {
      throw FormatError(concat(join_path(opened_.directory, std::string(ChecksumFile::name)), " has no checksums of ", file,
                               ", where a part of the checkpoint lies"),
                        {.verb = "load", .file = file});
    }
    writer.number(found->second.file_bytes);
    for (const std::uint32_t block : found->second.blocks) writer.number(block);
  }

  const OpenedCheckpoint& opened_;
  const CheckpointMetadata& metadata_;
  const LoadOptions& options_;
  std::vector<const Stored*> asked_;  // by all requests for tensors, in order; null: not stored
  std::unordered_map<const TensorEntry*, std::uint32_t> askers_;
  std::unordered_map<const TensorEntry*, ChunkIndex> indices_;
  TensorsInTrueShape tensors_{metadata_};
};

}  // namespace detail

MGROUPS_END_NAMESPACE
