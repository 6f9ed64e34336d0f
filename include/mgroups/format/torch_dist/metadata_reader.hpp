// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
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
#include <mgroups/format/torch_dist/metadata_types.hpp>
#include <mgroups/format/torch_dist/pickle_reader.hpp>
#include <mgroups/format/torch_dist/pickle_text.hpp>
#include <mgroups/format/utf8.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Interprets the classes of torch.distributed.checkpoint.metadata in a pickle. Chunks find their storage by key and
/// offset, by way of the index that the entry itself suggests, else in the order of the file, else by binary search.
class MetadataReader : private MetadataFields {
 public:
  MetadataReader(std::span<const std::byte> bytes, std::string_view file_name)
      : MetadataFields(file_name), document_(bytes, file_name), spare_(32 * std::uint64_t{bytes.size()} + 65536) {}

  [[nodiscard]] CheckpointMetadata read() {
    const PickleValue root = document_.root();
    if (!root.is(PickleKind::object) || !root.callable().is(PickleKind::global) || !root.attribute("state_dict_metadata")) {
      fail({}, concat("is no checkpoint's metadata: it holds ", to_string(root, 100)));
    }
    out_.writer_class = concat(root.callable().module_name(), '.', root.callable().class_name());
    read_entries(*root.attribute("state_dict_metadata"));
    const auto storage = root.attribute("storage_data");
    if (!storage || !storage->is(PickleKind::dict)) fail({}, "has no storage_data, so nothing says where its tensors lie");
    read_storage(*storage);
    settle();
    if (const auto paths = root.attribute("planner_data")) read_paths(*paths);
    if (const auto extra = root.attribute("mcore_data")) read_original_shapes(*extra);
    if (const auto version = root.attribute("version"); version && version->is(PickleKind::string)) {
      out_.version = version->as_string();
    }
    if (const auto id = root.attribute(save_id_attribute); id && id->is(PickleKind::string)) out_.save_id = id->as_string();
    return std::move(out_);
  }

 private:
  static constexpr std::uint32_t no_file = 0xFFFFFFFFu;
  // What nests values along a path recurses; Python itself stops at a thousand.
  static constexpr std::size_t longest_path = 200;

  struct Slot {
    TensorEntry* tensor = nullptr;
    StorageInfo* object = nullptr;
    std::string_view key;
    std::size_t next = 0;              // the chunk that the next entry is expected to name
    std::vector<std::uint32_t> order;  // chunks by offset; made when it is needed
  };

  /// A pickle repeats a value in one or two bytes, however large it is: what is copied or hashed each time is counted.
  void spend(std::string_view key, std::uint64_t bytes) {
    if (bytes > spare_) fail(key, "repeats values so often that they would take more than 32 times the bytes of the file");
    spare_ -= bytes;
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
        try {
          slot.tensor = &out_.tensors.emplace(std::string(key), read_tensor(key, value)).first->second;
        } catch (const UnsupportedError& error) {
          out_.unreadable.emplace(std::string(key), error.what());
        }
      } else {
        fail(key, concat("is described by ", to_string(value, 100), ", neither a tensor nor bytes"));
      }
      slots_.push_back(std::move(slot));
    }
  }
  [[nodiscard]] TensorEntry read_tensor(std::string_view key, PickleValue value) {
    TensorEntry entry(read_dtype(key, need(key, value, "properties")), dims(key, need(key, value, "size")));
    if (!countable(entry.shape)) fail(key, concat("has a shape of too many elements, ", to_string(entry.shape)));
    const PickleValue chunks = need(key, value, "chunks");
    if (!chunks.is(PickleKind::list) && !chunks.is(PickleKind::tuple)) fail(key, "has no list of chunks");
    spend(key, chunks.size() * (sizeof(StorageInfo) + 2 * sizeof(std::int64_t) * entry.shape.size()));
    entry.reserve(chunks.size());
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const PickleValue chunk = chunks[i];
      if (!is_instance(chunk, "ChunkStorageMetadata")) fail(key, concat("has a chunk that is ", to_string(chunk, 100)));
      const Box box{dims(key, need(key, chunk, "offsets")), dims(key, need(key, chunk, "sizes"))};
      if (const auto fault = box_fault(box, entry.shape)) fail(key, concat("has a chunk that is no part of it: ", *fault));
      entry.add_chunk(box, {.file = no_file});
    }
    return entry;
  }
  [[nodiscard]] DType read_dtype(std::string_view key, PickleValue properties) const {
    const auto state = properties.is(PickleKind::object) ? properties.state() : std::nullopt;
    if (!is_instance(properties, "TensorProperties") || !state || !state->is(PickleKind::tuple) || state->size() < 5) {
      fail(key, concat("has the properties ", to_string(properties, 160), ", which name no dtype"));
    }
    const PickleValue dtype = (*state)[0], layout = (*state)[1];
    if (layout.is(PickleKind::object) && layout.args().size() == 1 && layout.args()[0].is(PickleKind::string) &&
        layout.args()[0].as_string() != "torch.strided") {
      refuse(key, concat("has layout ", in_quotes(layout.args()[0].as_string()), "; mgroups reads dense tensors"));
    }
    const auto known =
        dtype.is(PickleKind::global) && dtype.module_name() == "torch" ? dtype_from_name(dtype.class_name()) : std::nullopt;
    if (!known) refuse(key, concat("has dtype ", to_string(dtype, 60), ", which mgroups does not know"));
    return *known;
  }

  void read_storage(PickleValue entries) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const PickleValue index = entries.key(i);
      if (!is_instance(index, "MetadataIndex"))
        fail({}, concat("has an entry in storage_data under ", to_string(index, 100)));
      const std::string_view key = key_text(need({}, index, "fqn"));
      spend(key, key.size());
      const auto found = index_.find(key);
      if (found == index_.end()) fail(key, "stands in storage_data, but not in state_dict_metadata");
      Slot& slot = slots_[found->second];
      if (slot.object == nullptr && slot.tensor == nullptr) continue;
      StorageInfo& target = place(slot, index);
      if (target.file != no_file) fail(key, concat("has two entries in storage_data for ", to_string(index, 160)));
      target = read_info(key, entries.value(i));
    }
  }
  [[nodiscard]] StorageInfo& place(Slot& slot, PickleValue index) const {
    if (slot.object != nullptr) return *slot.object;
    TensorEntry& tensor = *slot.tensor;
    const auto offset = index.attribute("offset");
    if (!offset || offset->is_none()) {
      if (tensor.chunk_count() != 1) fail(slot.key, "has an entry in storage_data without an offset");
      return tensor.storage_[0];
    }
    const Dims wanted = dims(slot.key, *offset);
    const auto is_at = [&](std::size_t chunk) {
      const auto offsets = tensor.offsets(chunk);
      return std::equal(offsets.begin(), offsets.end(), wanted.begin(), wanted.end());
    };
    const auto hint = index.attribute("index");
    if (hint && hint->is(PickleKind::integer) && hint->as_int() >= 0 &&
        static_cast<std::uint64_t>(hint->as_int()) < tensor.chunk_count() &&
        is_at(static_cast<std::size_t>(hint->as_int()))) {
      return tensor.storage_[static_cast<std::size_t>(hint->as_int())];
    }
    if (slot.next < tensor.chunk_count() && is_at(slot.next)) return tensor.storage_[slot.next++];
    sort_chunks(slot);
    const auto found =
        std::lower_bound(slot.order.begin(), slot.order.end(), wanted, [&](std::uint32_t chunk, const Dims& value) {
          const auto offsets = tensor.offsets(chunk);
          return std::lexicographical_compare(offsets.begin(), offsets.end(), value.begin(), value.end());
        });
    if (found == slot.order.end() || !is_at(*found)) {
      fail(slot.key, concat("has an entry in storage_data at offset ", to_string(wanted), ", where it has no chunk"));
    }
    return tensor.storage_[*found];
  }
  static void sort_chunks(Slot& slot) {
    const TensorEntry& tensor = *slot.tensor;
    if (slot.order.size() == tensor.chunk_count()) return;
    slot.order.resize(tensor.chunk_count());
    std::iota(slot.order.begin(), slot.order.end(), 0u);
    // Where two chunks share an offset, the one with elements comes first.
    std::sort(slot.order.begin(), slot.order.end(), [&](std::uint32_t a, std::uint32_t b) {
      const auto left = tensor.offsets(a), right = tensor.offsets(b);
      const auto at = std::mismatch(left.begin(), left.end(), right.begin());
      if (at.first != left.end()) return *at.first < *at.second;
      const bool empty_a = no_elements(tensor, a), empty_b = no_elements(tensor, b);
      return empty_a != empty_b ? empty_b : a < b;
    });
  }
  [[nodiscard]] static bool no_elements(const TensorEntry& tensor, std::size_t chunk) {
    const auto sizes = tensor.sizes(chunk);
    return std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  }
  [[nodiscard]] StorageInfo read_info(std::string_view key, PickleValue value) {
    if (!is_instance(value, "_StorageInfo"))
      fail(key, concat("is stored at ", to_string(value, 100), ", which is no _StorageInfo"));
    StorageInfo info;
    info.offset = count(key, need(key, value, "offset"), "offset in its file");
    info.length = count(key, need(key, value, "length"), "length in its file");
    if (info.length > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) - info.offset) {
      fail(key, concat("is stored in ", info.length, " bytes at byte ", info.offset, ", behind the end of any file"));
    }
    info.file = file_index(key, need(key, value, "relative_path"));
    if (const auto transforms = value.attribute("transform_descriptors")) note_transforms(key, *transforms);
    return info;
  }
  [[nodiscard]] std::uint32_t file_index(std::string_view key, PickleValue path) {
    if (last_path_ == path.id()) return last_file_;
    if (!path.is(PickleKind::string)) fail(key, concat("is stored in a file named ", to_string(path, 100)));
    const std::string_view text = path.as_string();
    const auto [found, is_new] = files_.emplace(text, static_cast<std::uint32_t>(out_.files.size()));
    if (is_new) {
      if (const auto fault = relative_path_fault(text)) {
        fail(key, concat("is stored in ", in_quotes(text), ", a path that ", *fault,
                         "; files outside of a checkpoint are never read"));
      }
      out_.files.emplace_back(text);
    }
    last_path_ = path.id();
    last_file_ = found->second;
    return last_file_;
  }
  void note_transforms(std::string_view key, PickleValue transforms) {
    if (transforms.is_none() || (transforms.is(PickleKind::list) && transforms.size() == 0)) return;
    out_.unreadable.emplace(std::string(key), concat("it is stored through the transform ", to_string(transforms, 200),
                                                     ", which cannot be undone here"));
  }

  /// Every item must have its place. Chunks without elements need none, and lose one that they share with a chunk that
  /// has some.
  void settle() {
    for (Slot& slot : slots_) {
      if (slot.object != nullptr) {
        if (slot.object->file == no_file) fail(slot.key, "has no entry in storage_data, so nothing says where it lies");
        continue;
      }
      if (slot.tensor == nullptr) continue;
      auto& storage = slot.tensor->storage_;
      const auto unplaced = [](const StorageInfo& info) { return info.file == no_file; };
      if (!ascending(*slot.tensor) || std::any_of(storage.begin(), storage.end(), unplaced)) settle_chunks(slot);
    }
  }
  /// True where no two chunks can share an offset: what most writers' order shows without a sort.
  [[nodiscard]] static bool ascending(const TensorEntry& tensor) {
    for (std::size_t i = 1; i < tensor.chunk_count(); ++i) {
      const auto before = tensor.offsets(i - 1), here = tensor.offsets(i);
      if (!std::lexicographical_compare(before.begin(), before.end(), here.begin(), here.end())) return false;
    }
    return true;
  }
  void settle_chunks(Slot& slot) const {
    TensorEntry& tensor = *slot.tensor;
    sort_chunks(slot);
    for (std::size_t i = 1; i < slot.order.size(); ++i) {
      const std::uint32_t first = slot.order[i - 1], second = slot.order[i];
      const auto left = tensor.offsets(first), right = tensor.offsets(second);
      if (!std::equal(left.begin(), left.end(), right.begin())) continue;
      const bool both = tensor.storage_[first].file != no_file && tensor.storage_[second].file != no_file;
      if (both || !no_elements(tensor, second)) fail(slot.key, concat("has two chunks at offset ", to_string(Dims(left))));
      if (tensor.storage_[first].file == no_file) std::swap(tensor.storage_[first], tensor.storage_[second]);
    }
    const auto placed = [](const StorageInfo& info) { return info.file != no_file; };
    if (std::all_of(tensor.storage_.begin(), tensor.storage_.end(), placed)) return;
    TensorEntry kept(tensor.dtype, tensor.shape);
    for (std::size_t i = 0; i < tensor.chunk_count(); ++i) {
      if (tensor.storage_[i].file != no_file) {
        kept.add_chunk(tensor.chunk_box(i), tensor.storage_[i]);
      } else if (!no_elements(tensor, i)) {
        fail(slot.key, concat("has no entry in storage_data for its chunk ", to_string(tensor.chunk_box(i))));
      }
    }
    tensor = std::move(kept);
  }

  void read_paths(PickleValue paths) {
    if (!paths.is(PickleKind::dict)) return;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const PickleValue path = paths.value(i);
      if (!paths.key(i).is(PickleKind::string) || (!path.is(PickleKind::tuple) && !path.is(PickleKind::list))) continue;
      if (path.size() > longest_path) continue;
      const std::string_view key = paths.key(i).as_string();
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
      if (extra.value(i).size() > most_attributes) fail(key, "has more notes of Megatron-Core's than it ever makes");
      spend(key, key.size());
      const auto shape = extra.value(i).lookup("nd_reformulated_orig_global_shape");
      if (shape && !shape->is_none()) out_.original_shapes.insert_or_assign(std::string(key), dims(key, *shape));
    }
  }

  PickleDocument document_;
  CheckpointMetadata out_;
  std::vector<Slot> slots_;
  std::unordered_map<std::string_view, std::uint32_t> index_;
  std::unordered_map<std::string_view, std::uint32_t> files_;
  std::uint32_t last_path_ = no_node, last_file_ = no_file;
  std::uint64_t spare_;
};

}  // namespace detail

/// Reads `.metadata` as torch 1.13 to 2.14 and Megatron-Core write it; every class but theirs is skipped, nothing is
/// executed. Local, blocking; memory: about four times the input, while it runs, and some hundred times at most, whatever
/// the input. Throws FormatError naming `file_name` and key where the file contradicts itself, names files outside of its
/// folder, or repeats values without end. Whether the chunks cover their tensors, and whether files are long enough, is for
/// the reader of the data to check.
[[nodiscard]] inline CheckpointMetadata parse_metadata(std::span<const std::byte> bytes, std::string_view file_name) {
  return detail::MetadataReader(bytes, file_name).read();
}

MGROUPS_END_NAMESPACE
