// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/core/box.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/format/torch_dist/metadata_fields.hpp>
#include <mgroups/format/torch_dist/metadata_types.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Where the entries of storage_data belong: chunks find their storage by key and offset, by way of the index that the entry
/// itself suggests, else in the order of the file, else by binary search.
class MetadataPlaces {
 public:
  static constexpr std::uint32_t no_file = 0xFFFFFFFFu;

  explicit MetadataPlaces(const MetadataFields& fields) : fields_(fields) {}

  /// A key of the checkpoint. One with neither tensor nor object cannot be read, or is not wanted.
  struct Slot {
    std::string_view key;
    TensorEntry* tensor = nullptr;
    StorageInfo* object = nullptr;
    bool partial = false;              // chunks that are not wanted are left out
    std::size_t next = 0;              // the chunk that the next entry is expected to name
    std::vector<std::uint32_t> order;  // chunks by offset; made when it is needed
  };
  /// What an entry says of its place, beside the key.
  struct Index {
    std::optional<std::span<const std::int64_t>> offset;
    std::optional<std::uint64_t> chunk;
  };

  /// Nothing for a chunk that is left out.
  [[nodiscard]] StorageInfo* find(Slot& slot, const Index& index) const {
    if (slot.object != nullptr) return slot.object;
    TensorEntry& tensor = *slot.tensor;
    if (!index.offset) {
      if (slot.partial) return tensor.chunk_count() == 1 ? &tensor.storage_[0] : nullptr;
      if (tensor.chunk_count() != 1) fields_.fail(slot.key, "has an entry in storage_data without an offset");
      return &tensor.storage_[0];
    }
    const std::span<const std::int64_t> wanted = *index.offset;
    const auto is_at = [&](std::size_t chunk) {
      const auto offsets = tensor.offsets(chunk);
      return std::equal(offsets.begin(), offsets.end(), wanted.begin(), wanted.end());
    };
    if (index.chunk && *index.chunk < tensor.chunk_count() && is_at(static_cast<std::size_t>(*index.chunk))) {
      return &tensor.storage_[static_cast<std::size_t>(*index.chunk)];
    }
    if (slot.next < tensor.chunk_count() && is_at(slot.next)) return &tensor.storage_[slot.next++];
    sort_chunks(slot);
    const auto found =
        std::lower_bound(slot.order.begin(), slot.order.end(), wanted, [&](std::uint32_t chunk, const auto& value) {
          const auto offsets = tensor.offsets(chunk);
          return std::lexicographical_compare(offsets.begin(), offsets.end(), value.begin(), value.end());
        });
    if (found == slot.order.end() || !is_at(*found)) {
      if (slot.partial) return nullptr;
      fields_.fail(slot.key,
                   concat("has an entry in storage_data at offset ", to_string(Dims(wanted)), ", where it has no chunk"));
    }
    return &tensor.storage_[*found];
  }

  /// Every item must have its place. Chunks without elements need none, and lose one that they share with a chunk that
  /// has some.
  void settle(Slot& slot) const {
    if (slot.object != nullptr && slot.object->file == no_file) {
      fields_.fail(slot.key, "has no entry in storage_data, so nothing says where it lies");
    }
    if (slot.tensor == nullptr) return;
    const auto& storage = slot.tensor->storage_;
    const auto unplaced = [](const StorageInfo& info) { return info.file == no_file; };
    if (!ascending(*slot.tensor) || std::any_of(storage.begin(), storage.end(), unplaced)) settle_chunks(slot);
  }

 private:
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
      if (both || !no_elements(tensor, second)) {
        fields_.fail(slot.key, concat("has two chunks at offset ", to_string(Dims(left))));
      }
      if (tensor.storage_[first].file == no_file) std::swap(tensor.storage_[first], tensor.storage_[second]);
    }
    const auto placed = [](const StorageInfo& info) { return info.file != no_file; };
    if (std::all_of(tensor.storage_.begin(), tensor.storage_.end(), placed)) return;
    TensorEntry kept(tensor.dtype, tensor.shape);
    for (std::size_t i = 0; i < tensor.chunk_count(); ++i) {
      if (tensor.storage_[i].file != no_file) {
        kept.add_chunk(tensor.chunk_box(i), tensor.storage_[i]);
      } else if (!no_elements(tensor, i)) {
        fields_.fail(slot.key, concat("has no entry in storage_data for its chunk ", to_string(tensor.chunk_box(i))));
      }
    }
    tensor = std::move(kept);
  }

  const MetadataFields& fields_;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
