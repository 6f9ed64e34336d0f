// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/format/countable.hpp>
#include <mgroups/format/relative_path.hpp>
#include <mgroups/format/torch_dist/metadata_fields.hpp>
#include <mgroups/format/torch_dist/metadata_filter.hpp>
#include <mgroups/format/torch_dist/metadata_places.hpp>
#include <mgroups/format/torch_dist/metadata_records.hpp>
#include <mgroups/format/torch_dist/metadata_scanner.hpp>
#include <mgroups/format/torch_dist/metadata_types.hpp>
#include <mgroups/format/torch_dist/pickle_text.hpp>
#include <mgroups/format/torch_dist/pickle_value.hpp>
#include <mgroups/format/utf8.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Interprets the classes of torch.distributed.checkpoint.metadata in the tree of a pickle; with records in it, or without.
class MetadataReader : private MetadataFields {
 public:
  MetadataReader(PickleTree& tree, const MetadataMemo& memo, const MetadataFilter* filter)
      : MetadataFields(tree.file),
        tree_(tree),
        scanner_(tree, memo),
        filter_(filter),
        spare_(32 * std::uint64_t{tree.input.size()} + 65536),
        recent_files_(2048) {}

  [[nodiscard]] CheckpointMetadata read(PickleValue root) {
    if (!root.is(PickleKind::object) || !root.callable().is(PickleKind::global) || !root.attribute("state_dict_metadata")) {
      fail({}, concat("is no checkpoint's metadata: it holds ", to_string(root, 100)));
    }
    out_.writer_class = concat(root.callable().module_name(), '.', root.callable().class_name());
    read_entries(*root.attribute("state_dict_metadata"));
    const auto storage = root.attribute("storage_data");
    if (!storage || !storage->is(PickleKind::dict)) fail({}, "has no storage_data, so nothing says where its tensors lie");
    read_storage(*storage);
    for (Slot& slot : slots_) places_.settle(slot);
    if (const auto paths = root.attribute("planner_data")) read_paths(*paths);
    if (const auto extra = root.attribute("mcore_data")) read_original_shapes(*extra);
    if (const auto version = root.attribute("version"); version && version->is(PickleKind::string)) {
      out_.version = version->as_string();
    }
    if (const auto id = root.attribute(save_id_attribute); id && id->is(PickleKind::string)) out_.save_id = id->as_string();
    std::sort(out_.left_out.begin(), out_.left_out.end());
    return std::move(out_);
  }

 private:
  using Slot = MetadataPlaces::Slot;
  using A = RecordAttribute;
  static constexpr std::uint32_t no_file = MetadataPlaces::no_file;
  // What nests values along a path recurses; Python itself stops at a thousand.
  static constexpr std::size_t longest_path = 200;

  /// Reads a value that is a record of this type; false where it is something else.
  [[nodiscard]] bool scan(PickleValue value, RecordType type) {
    const PickleNode& node = tree_.nodes[value.id()];
    if (record_type(node) != type) return false;
    scanner_.read(type, node.bits());
    return true;
  }

  /// A pickle repeats a value in one or two bytes, however large it is: what is copied or hashed each time is counted.
  void spend(std::string_view key, std::uint64_t bytes) {
    if (bytes > spare_) fail(key, "repeats values so often that they would take more than 32 times the bytes of the file");
    spare_ -= bytes;
  }
  void spend_chunks(std::string_view key, std::uint64_t chunks, std::size_t rank) {
    spend(key, chunks * (sizeof(StorageInfo) + 2 * sizeof(std::int64_t) * rank));
  }

  void read_entries(PickleValue entries) {
    slots_.reserve(entries.size());
    index_.reserve(entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::string_view key = key_text(entries.key(i));
      const PickleValue value = entries.value(i);
      if (!index_.emplace(key, static_cast<std::uint32_t>(slots_.size())).second)
        fail(key, "stands twice in state_dict_metadata");
      Slot slot;
      slot.key = key;
      if (is_instance(value, "BytesStorageMetadata")) {
        slot.object = &out_.objects.emplace(std::string(key), StorageInfo{.file = no_file}).first->second;
      } else if (is_instance(value, "TensorStorageMetadata")) {
        const MetadataFilter::Wanted* wanted = filter_ != nullptr ? filter_->find(key) : nullptr;
        slot.partial = wanted != nullptr && wanted->partial();
        if (filter_ != nullptr && wanted == nullptr) {
          spend(key, key.size());
          out_.left_out.emplace_back(key);
        } else {
          try {
            slot.tensor = &out_.tensors.emplace(std::string(key), read_tensor(key, value, wanted)).first->second;
          } catch (const UnsupportedError& error) {
            out_.unreadable.emplace(std::string(key), error.what());
          }
        }
      } else {
        fail(key, concat("is described by ", to_string(value, 100), ", neither a tensor nor bytes"));
      }
      slots_.push_back(std::move(slot));
    }
  }
  [[nodiscard]] TensorEntry read_tensor(std::string_view key, PickleValue value, const MetadataFilter::Wanted* wanted) {
    TensorEntry entry(read_dtype(key, need(key, value, "properties")), dims(key, need(key, value, "size")));
    if (!countable(entry.shape)) fail(key, concat("has a shape of too many elements, ", to_string(entry.shape)));
    const PickleValue chunks = need(key, value, "chunks");
    if (!chunks.is(PickleKind::list) && !chunks.is(PickleKind::tuple)) fail(key, "has no list of chunks");
    spend_chunks(key, chunks.size(), entry.shape.size());
    const bool partial = wanted != nullptr && wanted->partial();
    if (!partial) entry.reserve(chunks.size());
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      if (scan(chunks[i], RecordType::chunk)) {
        add_chunk(key, entry, scanner_[A::offsets].span(), scanner_[A::sizes].span(), partial ? wanted : nullptr);
        continue;
      }
      if (!is_instance(chunks[i], "ChunkStorageMetadata"))
        fail(key, concat("has a chunk that is ", to_string(chunks[i], 100)));
      const Dims offsets = dims(key, need(key, chunks[i], "offsets")), sizes = dims(key, need(key, chunks[i], "sizes"));
      add_chunk(key, entry, offsets, sizes, partial ? wanted : nullptr);
    }
    return entry;
  }
  void add_chunk(std::string_view key, TensorEntry& entry, std::span<const std::int64_t> offsets,
                 std::span<const std::int64_t> sizes, const MetadataFilter::Wanted* wanted) const {
    bool inside = offsets.size() == entry.shape.size() && sizes.size() == entry.shape.size();
    for (std::size_t i = 0; inside && i < offsets.size(); ++i) {
      const std::int64_t all = entry.shape.data()[i];
      inside = offsets[i] <= all && sizes[i] <= all - offsets[i];
    }
    if (!inside) {
      const auto fault = box_fault({Dims(offsets), Dims(sizes)}, entry.shape);
      fail(key, concat("has a chunk that is no part of it: ", *fault));
    }
    if (wanted != nullptr && !wanted->overlaps(offsets, sizes)) return;
    entry.numbers_.insert(entry.numbers_.end(), offsets.begin(), offsets.end());
    entry.numbers_.insert(entry.numbers_.end(), sizes.begin(), sizes.end());
    entry.storage_.push_back({.file = no_file});
  }

  void read_storage(PickleValue entries) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const PickleValue index = entries.key(i);
      MetadataPlaces::Index at;
      if (scan(index, RecordType::index)) {
        const MetadataScanner::Value &offset = scanner_[A::offset], &chunk = scanner_[A::index];
        if (offset.kind == MetadataScanner::Kind::counts) at.offset = offset.span();
        if (chunk.kind == MetadataScanner::Kind::number) at.chunk = static_cast<std::uint64_t>(chunk.number);
        place(read_key(scanner_[A::fqn].text), at, index, entries.value(i));
        continue;
      }
      if (!is_instance(index, "MetadataIndex"))
        fail({}, concat("has an entry in storage_data under ", to_string(index, 100)));
      Slot& slot = read_key(key_text(need({}, index, "fqn")));
      if (slot.object == nullptr && slot.tensor == nullptr) continue;
      Dims numbers;
      if (const auto offset = index.attribute("offset"); offset && !offset->is_none() && slot.object == nullptr) {
        numbers = dims(slot.key, *offset);
        at.offset = std::span(numbers.data(), numbers.size());
      }
      const auto chunk = index.attribute("index");
      if (chunk && chunk->is(PickleKind::integer) && chunk->as_int() >= 0)
        at.chunk = static_cast<std::uint64_t>(chunk->as_int());
      place(slot, at, index, entries.value(i));
    }
  }
  /// The slot of an entry's key; most entries have the key of the one before.
  [[nodiscard]] Slot& read_key(std::string_view key) {
    if (last_slot_ < slots_.size() && slots_[last_slot_].key == key) return slots_[last_slot_];
    spend(key, key.size());
    const auto found = index_.find(key);
    if (found == index_.end()) fail(key, "stands in storage_data, but not in state_dict_metadata");
    last_slot_ = found->second;
    return slots_[last_slot_];
  }
  void place(Slot& slot, const MetadataPlaces::Index& at, PickleValue index, PickleValue value) {
    if (slot.object == nullptr && slot.tensor == nullptr) return;
    StorageInfo* const target = places_.find(slot, at);
    if (target == nullptr) return;
    if (target->file != no_file) fail(slot.key, concat("has two entries in storage_data for ", to_string(index, 160)));
    *target = read_info(slot.key, value);
  }
  [[nodiscard]] StorageInfo read_info(std::string_view key, PickleValue value) {
    StorageInfo info;
    if (scan(value, RecordType::info)) {
      info.offset = static_cast<std::uint64_t>(scanner_[A::offset].number);
      info.length = static_cast<std::uint64_t>(scanner_[A::length].number);
      check_end(key, info);
      info.file = file_index(key, scanner_[A::path].text);
      return info;
    }
    if (!is_instance(value, "_StorageInfo"))
      fail(key, concat("is stored at ", to_string(value, 100), ", which is no _StorageInfo"));
    info.offset = count(key, need(key, value, "offset"), "offset in its file");
    info.length = count(key, need(key, value, "length"), "length in its file");
    check_end(key, info);
    const PickleValue path = need(key, value, "relative_path");
    if (!path.is(PickleKind::string)) fail(key, concat("is stored in a file named ", to_string(path, 100)));
    info.file = file_index(key, path.as_string());
    if (const auto transforms = value.attribute("transform_descriptors")) note_transforms(key, *transforms);
    return info;
  }
  void check_end(std::string_view key, const StorageInfo& info) const {
    if (info.length <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) - info.offset) return;
    fail(key, concat("is stored in ", info.length, " bytes at byte ", info.offset, ", behind the end of any file"));
  }
  [[nodiscard]] std::uint32_t file_index(std::string_view key, std::string_view path) {
    // Known by its place in the input.
    const auto at = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(path.data()));
    RecentFile& recent = recent_files_[at * 0x9E3779B97F4A7C15u >> 53];
    if (recent.path.data() == path.data() && recent.path.size() == path.size()) return recent.file;
    const auto [found, is_new] = files_.emplace(path, static_cast<std::uint32_t>(out_.files.size()));
    if (is_new) {
      if (const auto fault = relative_path_fault(path)) {
        fail(key, concat("is stored in ", in_quotes(path), ", a path that ", *fault,
                         "; files outside of a checkpoint are never read"));
      }
      out_.files.emplace_back(path);
    }
    recent = {path, found->second};
    return recent.file;
  }
  void note_transforms(std::string_view key, PickleValue transforms) {
    if (transforms.is_none() || (transforms.is(PickleKind::list) && transforms.size() == 0)) return;
    out_.unreadable.emplace(std::string(key), concat("it is stored through the transform ", to_string(transforms, 200),
                                                     ", which cannot be undone here"));
  }

  void read_paths(PickleValue paths) {
    if (!paths.is(PickleKind::dict)) return;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const PickleValue path = paths.value(i);
      if (!paths.key(i).is(PickleKind::string) || (!path.is(PickleKind::tuple) && !path.is(PickleKind::list))) continue;
      if (path.size() > longest_path) continue;
      const std::string_view key = paths.key(i).as_string();
      if (!is_kept(key)) continue;
      spend(key, key.size() + path.size() * sizeof(PathElement));
      std::vector<PathElement> elements;
      elements.reserve(path.size());
      for (std::size_t k = 0; k < path.size(); ++k) {
        if (path[k].is(PickleKind::string)) {
          spend(key, path[k].as_string().size());
          elements.emplace_back(std::string(path[k].as_string()));
        }
        if (path[k].is(PickleKind::integer)) elements.emplace_back(path[k].as_int());
      }
      // A planner of somebody's own may keep other things here.
      if (elements.size() == path.size()) out_.paths.insert_or_assign(std::string(key), std::move(elements));
    }
  }
  void read_original_shapes(PickleValue extra) {
    if (!extra.is(PickleKind::dict)) return;
    for (std::size_t i = 0; i < extra.size(); ++i) {
      if (!extra.key(i).is(PickleKind::string) || !extra.value(i).is(PickleKind::dict)) continue;
      const std::string_view key = extra.key(i).as_string();
      if (!is_kept(key)) continue;
      if (extra.value(i).size() > most_attributes) fail(key, "has more notes of Megatron-Core's than it ever makes");
      spend(key, key.size());
      const auto shape = extra.value(i).lookup("nd_reformulated_orig_global_shape");
      if (shape && !shape->is_none()) out_.original_shapes.insert_or_assign(std::string(key), dims(key, *shape));
    }
  }

  /// Whether anything but the key is to be kept.
  [[nodiscard]] bool is_kept(std::string_view key) const {
    return filter_ == nullptr || out_.objects.contains(key) || filter_->find(key) != nullptr;
  }

  PickleTree& tree_;
  MetadataScanner scanner_;
  const MetadataFilter* filter_;
  CheckpointMetadata out_;
  MetadataPlaces places_{*this};
  std::vector<Slot> slots_;
  std::unordered_map<std::string_view, std::uint32_t> index_;
  std::unordered_map<std::string_view, std::uint32_t> files_;
  struct RecentFile {
    std::string_view path;
    std::uint32_t file = no_file;
  };
  std::size_t last_slot_ = 0;
  std::uint64_t spare_;
  std::vector<RecentFile> recent_files_;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
