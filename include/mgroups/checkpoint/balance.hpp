// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/rank_set.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// What one owner cannot decide alone: boxes that several ranks hold.
struct Offer {
  struct Box {
    std::uint64_t bytes;
    std::uint32_t set;   ///< which of `rank_sets` holds it
    std::uint32_t main;  ///< the rank of the main replica
  };
  std::vector<std::vector<std::uint32_t>> rank_sets;  ///< ascending, of two ranks at least
  std::vector<Box> boxes;

  void put(WireWriter& writer) const {
    writer.number(rank_sets.size());
    for (const auto& ranks : rank_sets) put_ranks(writer, ranks);
    writer.number(boxes.size());
    for (const Box& box : boxes) {
      writer.number(box.bytes);
      writer.number(box.set);
      writer.number(box.main);
    }
  }
};

/// Chooses who writes each box that several ranks hold, so that all ranks write nearly as much: the largest box first, each
/// to the one of its holders that has the fewest bytes so far (Graham's LPT rule). Small boxes stay with the main replica
/// while that costs no balance, so that scalars come from where their truth is. Local; O(log n) a box.
class Balancer {
 public:
  /// `fixed`: the bytes that each rank writes in any case.
  explicit Balancer(std::vector<std::uint64_t> fixed) : load_(std::move(fixed)) {}

  /// Takes the offer of the next owner, which must live until `choose` has returned.
  void add(std::span<const std::byte> offer) {
    WireReader reader(offer);
    std::vector<std::uint32_t> sets;
    for (auto n = reader.number(); n > 0; --n) {
      const std::span<const std::byte> rest = reader.rest();
      const std::vector<std::uint32_t> ranks = take_ranks(reader);
      const std::span<const std::byte> bytes = rest.first(rest.size() - reader.rest().size());
      const std::string_view content(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      const auto [known, is_new] = by_content_.try_emplace(content, static_cast<std::uint32_t>(heaps_.size()));
      if (is_new) {
        std::vector<Entry>& heap = heaps_.emplace_back();
        heap.reserve(ranks.size());
        for (const std::uint32_t rank : ranks) heap.push_back({load_[rank], rank});
        std::make_heap(heap.begin(), heap.end(), std::greater<>());
      }
      sets.push_back(known->second);
    }
    for (auto n = reader.number(); n > 0; --n) {
      const std::uint64_t bytes = reader.number();
      const std::uint32_t set = sets[reader.small_number()];
      boxes_.push_back({bytes, set, reader.small_number()});
    }
    ends_.push_back(boxes_.size());
  }

  /// For each owner, in the order in which they came, the rank that writes each of its boxes.
  [[nodiscard]] std::vector<std::vector<std::uint32_t>> choose() {
    std::uint64_t total = 0;
    for (const std::uint64_t bytes : load_) total += bytes;
    for (const Offer::Box& box : boxes_) total += box.bytes;
    const std::uint64_t slack = std::max<std::uint64_t>(1024, total / load_.size() / 64);
    std::vector<std::uint32_t> order(boxes_.size()), chosen(boxes_.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return boxes_[a].bytes > boxes_[b].bytes; });
    for (const std::uint32_t i : order) {
      const Offer::Box& box = boxes_[i];
      const std::uint32_t least = least_loaded(heaps_[box.set]);
      chosen[i] = load_[box.main] + box.bytes <= load_[least] + slack ? box.main : least;
      load_[chosen[i]] += box.bytes;
    }
    std::vector<std::vector<std::uint32_t>> out;
    auto begin = chosen.begin();
    for (const std::size_t end : ends_) {
      const auto next = chosen.begin() + static_cast<std::ptrdiff_t>(end);
      out.emplace_back(begin, next);
      begin = next;
    }
    return out;
  }

 private:
  using Entry = std::pair<std::uint64_t, std::uint32_t>;  // bytes, rank

  /// Loads only grow: the first entry that is up to date is the least of all.
  [[nodiscard]] std::uint32_t least_loaded(std::vector<Entry>& heap) const {
    while (heap.front().first != load_[heap.front().second]) {
      std::pop_heap(heap.begin(), heap.end(), std::greater<>());
      heap.back().first = load_[heap.back().second];
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
    return heap.front().second;
  }

  std::vector<std::uint64_t> load_;
  std::vector<std::vector<Entry>> heaps_;  // one per set of ranks, as the loads were when an entry was last looked at
  std::map<std::string_view, std::uint32_t> by_content_;
  std::vector<Offer::Box> boxes_;
  std::vector<std::size_t> ends_;  // of each owner's boxes
};

}  // namespace detail

MGROUPS_END_NAMESPACE
