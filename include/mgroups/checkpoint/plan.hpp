// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/balance.hpp>
#include <mgroups/checkpoint/plan_messages.hpp>
#include <mgroups/core/box.hpp>
#include <mgroups/core/box_list.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/tiling.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// "Rank `rank` writes its shard number `index`."
struct WriteAssignment {
  std::uint32_t rank;
  std::uint32_t index;
};

/// What an owner knows of its keys, and what it makes of it. Local: the messages are the only way in, so the same code
/// plans for real ranks and for simulated ones. Of ranks that sent the same bytes only the numbers are kept.
class OwnedKeys {
 public:
  /// Takes rank `rank`'s message. Ranks in ascending order. Returns whether the message must live as long as this: true
  /// where no rank before has sent the same bytes.
  bool add(int rank, std::span<const std::byte> message) {
    if (message.empty()) return false;
    const std::string_view content(reinterpret_cast<const char*>(message.data()), message.size());
    const auto [known, is_new] = by_content_.try_emplace(content, static_cast<std::uint32_t>(holders_.size()));
    if (is_new) {
      holders_.emplace_back().push_back(static_cast<std::uint32_t>(rank));
      read(known->second, message);
    } else {
      holders_[known->second].push_back(static_cast<std::uint32_t>(rank));
    }
    return is_new;
  }

  /// Groups the replicas of every box. Returns one sentence for each key that cannot be saved.
  [[nodiscard]] std::vector<std::string> validate() {
    std::vector<std::string> faults;
    std::sort(keys_.begin(), keys_.end(), [](const Key& a, const Key& b) { return a.name < b.name; });
    for (std::uint32_t k = 0; k < keys_.size(); ++k) {
      if (keys_[k].fault.empty()) group_replicas(k);
      if (!keys_[k].fault.empty()) faults.push_back(std::move(keys_[k].fault));
    }
    return faults;
  }

  /// After `validate` without a fault: adds what each rank has to write in any case to `load`, and returns what is to be
  /// chosen between ranks.
  [[nodiscard]] Offer offer(std::span<std::uint64_t> load) {
    Offer out;
    std::map<std::vector<std::uint32_t>, std::uint32_t> sets;
    for (const Item& item : items_) {
      const std::span<const Shard> replicas = replicas_of(item);
      const std::uint32_t main = first_rank(replicas.front());
      if (!item.shared) {
        load[main] += item.bytes;
        continue;
      }
      std::vector<std::uint32_t> who;
      for (const Shard& shard : replicas) who.push_back(shard.holders);
      const auto [known, is_new] = sets.try_emplace(std::move(who), static_cast<std::uint32_t>(out.rank_sets.size()));
      if (is_new) out.rank_sets.push_back(ranks_of(replicas));
      out.boxes.push_back({item.bytes, known->second, main});
    }
    return out;
  }

  /// Who writes what, given the ranks that were chosen for the boxes of `offer`.
  [[nodiscard]] std::vector<WriteAssignment> writes(std::span<const std::uint32_t> chosen) const {
    std::vector<WriteAssignment> out;
    out.reserve(items_.size());
    std::size_t next = 0;
    for (const Item& item : items_) {
      const std::span<const Shard> replicas = replicas_of(item);
      if (!item.shared) {
        out.push_back({first_rank(replicas.front()), replicas.front().index});
        continue;
      }
      const std::uint32_t rank = chosen[next++];
      const auto has_it = [&](const Shard& shard) {
        const auto& ranks = holders_[shard.holders];
        return std::binary_search(ranks.begin(), ranks.end(), rank);
      };
      out.push_back({rank, std::find_if(replicas.begin(), replicas.end(), has_it)->index});
    }
    return out;
  }

 private:
  /// A shard of every rank that sent one message.
  struct Shard {
    std::uint32_t holders;
    std::uint32_t index;
    std::uint32_t checksum;
    bool main;
  };
  struct Key {
    std::string_view name;
    std::uint64_t kind = object_kind;
    std::uint32_t first_holders = 0;
    Dims shape;
    BoxList boxes;              ///< one per shard
    std::vector<Shard> shards;  ///< after grouping: the replicas of a box side by side, the main one first
    std::string fault;
  };
  /// One box to write: the replicas `first` to `first + replicas` of a key.
  struct Item {
    std::uint64_t bytes;
    std::uint32_t key;
    std::uint32_t first;
    std::uint32_t replicas;
    bool shared;  ///< by several ranks
  };

  [[nodiscard]] std::span<const Shard> replicas_of(const Item& item) const {
    return std::span(keys_[item.key].shards).subspan(item.first, item.replicas);
  }

  void read(std::uint32_t holders, std::span<const std::byte> message) {
    WireReader reader(message);
    std::size_t expected = 0;
    while (!reader.done()) {
      const std::string_view key = reader.text();
      // Ranks mostly have the same keys in the same order, which saves the look-up.
      bool inserted = false;
      if (expected >= keys_.size() || keys_[expected].name != key) {
        const auto found = by_name_.try_emplace(key, keys_.size());
        inserted = found.second;
        if (inserted) keys_.emplace_back();
        expected = found.first->second;
      }
      Key& known = keys_[expected++];
      const std::uint64_t kind = reader.number();
      const Dims shape = reader.dims(static_cast<int>(reader.number()));
      if (inserted) {
        known.name = key;
        known.kind = kind;
        known.shape = shape;
        known.first_holders = holders;
        known.boxes.reset(shape.rank());
      }
      const bool fits = known.kind == kind && known.shape == shape;
      if (!fits && known.fault.empty()) {
        known.fault = concat("key '", key, "' is ", kind_name(known.kind), " ", to_string(known.shape), " on rank ",
                             holders_[known.first_holders].front(), " but ", kind_name(kind), " ", to_string(shape),
                             " on rank ", holders_[holders].front(), "; all ranks must give one dtype and one global shape");
      }
      for (std::uint64_t n = reader.number(); n > 0; --n) {
        const auto index = reader.small_number();
        const std::uint64_t flags = reader.number();
        const std::uint32_t checksum = (flags & has_checksum) != 0 ? reader.small_number() : 0;
        if (!fits) {
          for (int i = 0; i < 2 * shape.rank(); ++i) static_cast<void>(reader.number());
          continue;
        }
        known.boxes.append([&] { return static_cast<std::int64_t>(reader.number()); });
        known.shards.push_back({holders, index, checksum, (flags & is_main) != 0});
      }
    }
  }

  void group_replicas(std::uint32_t k) {
    Key& key = keys_[k];
    const BoxList& boxes = key.boxes;
    const auto n = static_cast<std::uint32_t>(key.shards.size());
    std::vector<std::uint32_t> order(n);
    for (std::uint32_t i = 0; i < n; ++i) order[i] = i;
    const auto compare_boxes = [&](std::uint32_t a, std::uint32_t b) -> int {
      for (int axis = 0; axis < boxes.rank(); ++axis) {
        if (boxes.offset(a, axis) != boxes.offset(b, axis)) return boxes.offset(a, axis) < boxes.offset(b, axis) ? -1 : 1;
        if (boxes.extent(a, axis) != boxes.extent(b, axis)) return boxes.extent(a, axis) < boxes.extent(b, axis) ? -1 : 1;
      }
      return 0;
    };
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      const int boxes_compared = compare_boxes(a, b);
      if (boxes_compared != 0) return boxes_compared < 0;
      if (key.shards[a].main != key.shards[b].main) return key.shards[a].main;
      return a < b;
    });

    BoxList distinct(boxes.rank());
    std::vector<std::uint32_t> sample;  // a shard of each distinct box
    for (std::uint32_t begin = 0; begin < n;) {
      std::uint32_t end = begin + 1;
      while (end < n && compare_boxes(order[begin], order[end]) == 0) ++end;
      const std::uint32_t i = order[begin];
      const std::int64_t volume = boxes.volume(i);
      // Without elements there is nothing to write, nor to dispute.
      if (volume > 0) {
        const std::span<const std::uint32_t> replicas = std::span(order).subspan(begin, end - begin);
        key.fault = replica_fault(key, replicas);
        if (!key.fault.empty()) return;
        distinct.push_back(boxes.box(i));
        sample.push_back(i);
        // An object is written by its main replica: those of other ranks may differ, and nobody reads them.
        const bool is_object = key.kind == object_kind;
        const std::uint64_t element = is_object ? 0 : size_of(static_cast<DType>(key.kind - 1));
        items_.push_back({static_cast<std::uint64_t>(volume) * element, k, begin, end - begin,
                          !is_object && on_several_ranks(key, replicas)});
      }
      begin = end;
    }
    // A tensor without elements is still a tensor: one of its empty shards stands for it.
    if (numel(key.shape) == 0 && n > 0) items_.push_back({0, k, 0, 1, false});
    if (const auto fault = find_tiling_fault(distinct, key.shape)) {
      if (fault->overlap) {
        const std::uint32_t a = sample[fault->first], b = sample[fault->second];
        key.fault = concat("key '", key.name, "': box ", to_string(boxes.box(a)), " of rank ", first_rank(key.shards[a]),
                           " and box ", to_string(boxes.box(b)), " of rank ", first_rank(key.shards[b]), " overlap in ",
                           to_string(fault->where), "; every element must belong to one box");
      } else {
        key.fault = concat("key '", key.name, "': no rank holds ", to_string(fault->where), " of global shape ",
                           to_string(key.shape), "; the shards that are there come from ", ranks_text(key.shards));
      }
      return;
    }
    std::vector<Shard> grouped;
    grouped.reserve(n);
    for (const std::uint32_t i : order) grouped.push_back(key.shards[i]);
    key.shards = std::move(grouped);
  }

  [[nodiscard]] std::uint32_t first_rank(const Shard& shard) const { return holders_[shard.holders].front(); }

  [[nodiscard]] bool on_several_ranks(const Key& key, std::span<const std::uint32_t> replicas) const {
    const std::uint32_t first = first_rank(key.shards[replicas.front()]);
    return std::any_of(replicas.begin(), replicas.end(), [&](std::uint32_t i) {
      const auto& ranks = holders_[key.shards[i].holders];
      return ranks.size() > 1 || ranks.front() != first;
    });
  }

  /// A sentence where replicas of one box, given as shards with main ones first, are not one main replica and its equals.
  [[nodiscard]] std::string replica_fault(const Key& key, std::span<const std::uint32_t> replicas) const {
    const Shard& main = key.shards[replicas.front()];
    const auto box_text = [&] { return to_string(key.boxes.box(replicas.front())); };
    if (!main.main) {
      return concat("key '", key.name, "': box ", box_text(), " has no main replica, only copies on rank ", first_rank(main),
                    "; exactly one rank must give replica id 0");
    }
    const bool second = replicas.size() > 1 && key.shards[replicas[1]].main;
    if (second || holders_[main.holders].size() > 1) {
      const std::uint32_t other =
          holders_[main.holders].size() > 1 ? holders_[main.holders][1] : first_rank(key.shards[replicas[1]]);
      return concat(
          "key '", key.name, "': box ", box_text(), " has two main replicas, on ranks ", first_rank(main), " and ", other,
          "; give one of them another replica id (its rank in the group that shares the tensor), or another offset");
    }
    for (const std::uint32_t i : replicas) {
      if (key.shards[i].checksum == main.checksum) continue;
      return concat("key '", key.name, "': the replicas of box ", box_text(), " on ranks ", first_rank(main), " and ",
                    first_rank(key.shards[i]), " differ; they must hold the same values");
    }
    return {};
  }

  /// All that hold any of the shards, ascending.
  [[nodiscard]] std::vector<std::uint32_t> ranks_of(std::span<const Shard> shards) const {
    std::vector<std::uint32_t> ranks;
    for (const Shard& shard : shards) {
      ranks.insert(ranks.end(), holders_[shard.holders].begin(), holders_[shard.holders].end());
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
  }
  [[nodiscard]] std::string ranks_text(std::span<const Shard> shards) const {
    return shards.empty() ? "no rank" : concat("ranks ", list_text(ranks_of(shards)));
  }

  std::vector<std::vector<std::uint32_t>> holders_;  // ranks that sent one and the same message, ascending
  std::unordered_map<std::string_view, std::uint32_t> by_content_;
  std::vector<Key> keys_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
  std::vector<Item> items_;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
