// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/format/torch_dist/metadata_fields.hpp>
#include <mgroups/format/torch_dist/pickle_fetches.hpp>
#include <mgroups/format/torch_dist/pickle_value.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

// A node of kind `record` is an instance of one of these classes, `tag`. It holds nothing but where its state stands in the
// input, `bits()`: whoever wants it reads it there (MetadataScanner).
enum class RecordType : std::uint8_t { none, chunk, index, info };

[[nodiscard]] inline RecordType record_type(const PickleNode& node) noexcept {
  return node.kind == PickleKind::record ? static_cast<RecordType>(node.tag) : RecordType::none;
}

/// What instances of a class become.
[[nodiscard]] inline RecordType record_type_of_class(PickleValue type) {
  constexpr std::pair<std::string_view, RecordType> known[] = {
      {"ChunkStorageMetadata", RecordType::chunk},
      {"MetadataIndex", RecordType::index},
      {"_StorageInfo", RecordType::info},
  };
  for (const auto& [name, kind] : known) {
    if (MetadataFields::is_class(type, name)) return kind;
  }
  return RecordType::none;
}

/// The attributes that records have.
enum class RecordAttribute : std::uint8_t {
  unseen,
  offsets,
  sizes,
  fqn,
  index,
  offset,
  path,
  length,
  transforms,
  other,
};

/// What a string names as a key of a state; the node remembers it.
[[nodiscard]] inline RecordAttribute record_attribute(PickleTree& tree, std::uint32_t key) {
  PickleNode& text = tree.nodes[key];
  if (text.kind != PickleKind::string) return RecordAttribute::other;
  if (text.tag == static_cast<std::uint8_t>(RecordAttribute::unseen)) {
    constexpr std::string_view names[] = {"offsets", "sizes",         "fqn",    "index",
                                          "offset",  "relative_path", "length", "transform_descriptors"};
    static_assert(std::size(names) + 1 == static_cast<std::size_t>(RecordAttribute::other));
    const auto found = std::find(std::begin(names), std::end(names), PickleValue(&tree, key).as_string());
    text.tag = static_cast<std::uint8_t>(found - std::begin(names) + 1);
  }
  return static_cast<RecordAttribute>(text.tag);
}

/// The memo of a `.metadata`. Once it knows which numbers are fetched at all, it keeps those.
class MetadataMemo {
 public:
  MetadataMemo() { first_.fill(no_node); }

  [[nodiscard]] std::uint32_t find_short(std::uint8_t number) const noexcept { return first_[number]; }
  [[nodiscard]] std::uint32_t find(std::uint64_t number) const noexcept {
    const std::uint64_t slot = fetches_ ? fetches_->slot(number) : number;
    return slot < nodes_.size() ? nodes_[static_cast<std::size_t>(slot)] : no_node;
  }
  /// Whether a number may be fetched later.
  [[nodiscard]] bool may_be_fetched(std::uint64_t number) const noexcept { return !fetches_ || fetches_->contains(number); }
  void set(std::uint64_t number, std::uint32_t node) {
    const std::uint64_t slot = fetches_ ? fetches_->slot(number) : number;
    if (fetches_ && slot == PickleFetches::none) return;
    if (slot >= nodes_.size()) nodes_.resize(static_cast<std::size_t>(slot) + 1, no_node);
    std::uint32_t& place = nodes_[static_cast<std::size_t>(slot)];
    rewritten_ = rewritten_ || place != no_node;
    place = node;
    if (number < first_.size()) first_[static_cast<std::size_t>(number)] = node;
  }
  /// Whether a number was stored to twice: then a number does not say any more what it once stood for.
  [[nodiscard]] bool rewritten() const noexcept { return rewritten_; }

  [[nodiscard]] bool knows_fetches() const noexcept { return fetches_.has_value(); }
  void learn_fetches(std::span<const std::byte> input) {
    const PickleFetches& fetches = fetches_.emplace(input);
    std::vector<std::uint32_t> fetched(fetches.count(), no_node);
    for (std::size_t number = 0; number < nodes_.size(); ++number) {
      if (const std::uint32_t slot = fetches.slot(number); slot != PickleFetches::none) fetched[slot] = nodes_[number];
    }
    nodes_ = std::move(fetched);
  }

 private:
  std::optional<PickleFetches> fetches_;
  std::vector<std::uint32_t> nodes_;
  std::array<std::uint32_t, 256> first_;  // of the numbers that fit into a byte: those of what occurs often
  bool rewritten_ = false;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
