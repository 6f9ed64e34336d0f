// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/load_options.hpp>
#include <mgroups/checkpoint/read_cost.hpp>
#include <mgroups/core/box.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/hash.hpp>
#include <mgroups/core/slabs.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Bytes that a rank reads, or sends at most, in one round of shared reads: with more ranks less, since what a rank
/// receives in a round may come from all of them.
[[nodiscard]] inline std::size_t shared_round_bytes(std::size_t buffer_bytes, int ranks) noexcept {
  return std::max<std::size_t>(std::size_t{256} << 10, 2 * buffer_bytes / static_cast<std::size_t>(ranks));
}

/// Decides, at the coordinator, which chunks one rank reads for several: where each by itself would read the same bytes
/// again (replicas), or bytes between those that it wants (rows cut in parts). First `count` every part of a chunk that any
/// rank wants; then `share` those whose chunk is `shared`; then `assign` gives each rank its reads. Local.
class SharedReads {
 public:
  /// `block`: see `bytes_read_for`.
  SharedReads(int ranks, std::int64_t block, const LoadOptions& options)
      : block_(block),
        unit_bytes_(static_cast<std::int64_t>(shared_round_bytes(options.buffer_bytes, ranks))),
        enabled_(ranks > 1 && options.shared_reads != ReadSharing::never),
        replicas_(options.shared_reads == ReadSharing::always),
        load_(static_cast<std::size_t>(ranks), 0) {}

  /// False where every rank reads for itself; nothing need be counted then.
  [[nodiscard]] bool enabled() const noexcept { return enabled_; }

  /// Somebody wants `part` (within the chunk) of chunk `i`.
  void count(const TensorEntry& tensor, std::size_t i, const Box& part) {
    auto& uses = uses_[&tensor];
    if (uses.empty()) uses.resize(tensor.chunk_count());
    Use& use = uses[i];
    const auto item = static_cast<std::int64_t>(size_of(tensor.dtype));
    const Dims shape(tensor.sizes(i));
    const StorageInfo& at = tensor.chunk_storage(i);
    const std::int64_t alone =
        at.length <= small_archive ? static_cast<std::int64_t>(at.length) : bytes_read_for(part, shape, item, block_);
    const bool is_new = seen_.insert(hash_of(&tensor, i, part)).second;
    if (is_new) use.wanted += part.volume() * item;
    use.wanted = std::min(use.wanted, numel(shape) * item);
    // A replica costs nothing more where replicas are not shared.
    if (is_new || replicas_) use.alone += alone;
    ++use.ranks;
  }
  /// Whether one rank reads the chunk for all. Ten parts read for thirteen are good enough alone.
  [[nodiscard]] bool shared(const TensorEntry& tensor, std::size_t i) const {
    const auto found = uses_.find(&tensor);
    if (found == uses_.end()) return false;
    const Use& use = found->second[i];
    return use.ranks > 1 && use.alone > use.wanted + use.wanted / 10 * 3 + 2 * block_;
  }

  /// Rank `rank` wants `part`, not empty, for its shard number `shard`. `key` must live as long as this.
  void share(const TensorEntry& tensor, std::size_t i, std::string_view key, int rank, std::uint32_t shard,
             const Box& part) {
    const auto [found, is_new] = chunk_of_.try_emplace({&tensor, i}, chunks_.size());
    if (is_new) chunks_.push_back({key, &tensor, i, {}});
    chunks_[found->second].wants.push_back({rank, shard, part});
  }

  /// Cuts the chunks into slabs, gives each slab to one of the ranks that want of it, and returns what each rank is told:
  /// the slabs that it reads, with whom each part goes to; then for each slab that others read what comes of it.
  [[nodiscard]] std::vector<std::vector<std::byte>> assign(std::span<const std::string> files) {
    std::sort(chunks_.begin(), chunks_.end(), [](const Chunk& a, const Chunk& b) {
      const StorageInfo &x = a.tensor->chunk_storage(a.index), &y = b.tensor->chunk_storage(b.index);
      return x.file != y.file ? x.file < y.file : x.offset < y.offset;
    });
    std::vector<std::vector<std::byte>> reads(load_.size()), pieces(load_.size());
    std::uint64_t total = 0;
    for (const Chunk& chunk : chunks_) total += chunk.tensor->chunk_storage(chunk.index).length;
    stretch_ = std::min(longest_stretch, static_cast<std::int64_t>(total / load_.size() / 4));
    for (const Chunk& chunk : chunks_) {
      const auto item = static_cast<std::int64_t>(size_of(chunk.tensor->dtype));
      const Dims shape(chunk.tensor->sizes(chunk.index));
      for_each_slab(whole(shape), std::max<std::int64_t>(1, unit_bytes_ / item),
                    [&](const Box& slab) { assign_slab(chunk, slab, files, item, reads, pieces); });
    }
    for (std::size_t rank = 0; rank < reads.size(); ++rank) {
      // A text of no bytes ends the reads: every file has a name.
      WireWriter(reads[rank]).text("");
      reads[rank].insert(reads[rank].end(), pieces[rank].begin(), pieces[rank].end());
    }
    return reads;
  }

 private:
  struct Use {
    std::int64_t wanted = 0;  // bytes that somebody wants
    std::int64_t alone = 0;   // bytes that ranks would read if each read for itself
    std::uint32_t ranks = 0;
  };
  struct Want {
    int rank;
    std::uint32_t shard;
    Box part;
  };
  struct Chunk {
    std::string_view key;
    const TensorEntry* tensor;
    std::size_t index;
    std::vector<Want> wants;
  };
  struct ChunkName {
    const TensorEntry* tensor;
    std::size_t index;
    friend bool operator==(const ChunkName&, const ChunkName&) = default;
  };
  struct ChunkHash {
    std::size_t operator()(const ChunkName& name) const noexcept {
      return std::hash<const void*>()(name.tensor) * 31 + name.index;
    }
  };

  [[nodiscard]] static std::uint64_t hash_of(const TensorEntry* tensor, std::size_t i, const Box& part) noexcept {
    const std::uint64_t seed = static_cast<std::uint64_t>(ChunkHash()({tensor, i}));
    const auto bytes = [](const Dims& dims) { return std::as_bytes(std::span(dims.data(), dims.size())); };
    return murmur64(bytes(part.sizes), murmur64(bytes(part.offsets), seed));
  }

  void assign_slab(const Chunk& chunk, const Box& slab, std::span<const std::string> files, std::int64_t item,
                   std::vector<std::vector<std::byte>>& reads, std::vector<std::vector<std::byte>>& pieces) {
    std::vector<std::pair<const Want*, Box>> parts;
    for (const Want& want : chunk.wants) {
      if (const auto common = intersection(want.part, slab)) parts.emplace_back(&want, *common);
    }
    if (parts.empty()) return;
    Box hull = parts[0].second;
    for (const auto& [want, part] : parts) hull = bounding_box(hull, part);
    const StorageInfo& at = chunk.tensor->chunk_storage(chunk.index);
    const int reader = choose_reader(parts, at.file);
    load_[static_cast<std::size_t>(reader)] += hull.volume() * item;

    WireWriter read(reads[static_cast<std::size_t>(reader)]);
    read.text(files[at.file]);
    read.text(chunk.key);
    read.numbers(at.offset, at.length, static_cast<std::uint64_t>(chunk.tensor->dtype),
                 static_cast<std::uint64_t>(hull.rank()), Dims(chunk.tensor->sizes(chunk.index)), hull.offsets, hull.sizes,
                 static_cast<std::uint64_t>(parts.size()));
    for (const auto& [want, part] : parts) {
      read.numbers(static_cast<std::uint64_t>(want->rank), part.offsets, part.sizes);
      WireWriter(pieces[static_cast<std::size_t>(want->rank)])
          .numbers(static_cast<std::uint64_t>(reader), std::uint64_t{want->shard},
                   static_cast<std::uint64_t>(chunk.tensor->dtype), in_tensor(part, chunk).offsets, part.sizes);
    }
  }
  [[nodiscard]] static Box in_tensor(Box part, const Chunk& chunk) {
    const auto offsets = chunk.tensor->offsets(chunk.index);
    for (int axis = 0; axis < part.rank(); ++axis) part.offsets[axis] += offsets[static_cast<std::size_t>(axis)];
    return part;
  }
  /// One of those that want of it: the one before, so that it reads a stretch of the file, until it has enough; then the
  /// one with the fewest bytes.
  [[nodiscard]] int choose_reader(const std::vector<std::pair<const Want*, Box>>& parts, std::uint32_t file) {
    const auto load_of = [&](int rank) { return load_[static_cast<std::size_t>(rank)]; };
    int least = parts[0].first->rank;
    bool wants = false;
    for (const auto& [want, part] : parts) {
      if (load_of(want->rank) < load_of(least)) least = want->rank;
      wants = wants || want->rank == last_;
    }
    if (wants && file == last_file_ && load_of(last_) < load_of(least) + stretch_) return last_;
    last_file_ = file;
    return last_ = least;
  }

  static constexpr std::int64_t longest_stretch = std::int64_t{4} << 20;
  std::int64_t stretch_ = 0;
  std::int64_t block_, unit_bytes_;
  bool enabled_, replicas_;
  std::vector<std::int64_t> load_;  // bytes that each rank reads for all
  int last_ = -1;
  std::uint32_t last_file_ = 0;
  std::unordered_map<const TensorEntry*, std::vector<Use>> uses_;
  std::unordered_set<std::uint64_t> seen_;
  std::vector<Chunk> chunks_;
  std::unordered_map<ChunkName, std::size_t, ChunkHash> chunk_of_;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
