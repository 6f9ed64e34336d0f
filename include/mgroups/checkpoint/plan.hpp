// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

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

struct OwnedPlan {
  std::vector<WriteAssignment> writes;
  std::vector<std::string> faults;  ///< one sentence per key that cannot be saved
};

/// What an owner knows of its keys, and what it makes of it. Local: the messages are the only way in, so the same code
/// plans for real ranks and for simulated ones.
class OwnedKeys {
 public:
  explicit OwnedKeys(int ranks) : ranks_(ranks) {}

  /// Takes rank `rank`'s message, which must live until `plan` has returned. Ranks in ascending order.
  void add(int rank, std::span<const std::byte> message) {
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
        known.first_rank = rank;
        known.boxes.reset(shape.rank());
      }
      const bool fits = known.kind == kind && known.shape == shape;
      if (!fits && known.fault.empty()) {
        known.fault = concat("key '", key, "' is ", kind_name(known.kind), " ", to_string(known.shape), " on rank ",
                             known.first_rank, " but ", kind_name(kind), " ", to_string(shape), " on rank ", rank,
                             "; all ranks must give one dtype and one global shape");
      }
      for (std::uint64_t n = reader.number(); n > 0; --n) {
        const auto index = reader.small_number();
        const std::uint64_t flags = reader.number();
        const std::uint32_t checksum = (flags & 2) != 0 ? reader.small_number() : 0;
        if (!fits) {
          for (int i = 0; i < 2 * shape.rank(); ++i) static_cast<void>(reader.number());
          continue;
        }
        known.boxes.append([&] { return static_cast<std::int64_t>(reader.number()); });
        known.shards.push_back({static_cast<std::uint32_t>(rank), index, checksum, (flags & 1) != 0});
      }
    }
  }

  /// Validates every key and gives each box to one of the ranks that hold it.
  [[nodiscard]] OwnedPlan plan() {
    OwnedPlan out;
    std::vector<Item> items;
    std::sort(keys_.begin(), keys_.end(), [](const Key& a, const Key& b) { return a.name < b.name; });
    for (std::uint32_t k = 0; k < keys_.size(); ++k) {
      if (keys_[k].fault.empty()) group_replicas(k, items);
      if (!keys_[k].fault.empty()) out.faults.push_back(keys_[k].fault);
    }
    if (out.faults.empty()) assign(items, out.writes);
    return out;
  }

 private:
  struct Shard {
    std::uint32_t rank;
    std::uint32_t index;
    std::uint32_t checksum;
    bool main;
  };
  struct Key {
    std::string_view name;
    std::uint64_t kind = object_kind;
    int first_rank = 0;
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
  };

  void group_replicas(std::uint32_t k, std::vector<Item>& items) {
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
        if (!key.shards[i].main) {
          key.fault =
              concat("key '", key.name, "': box ", to_string(boxes.box(i)), " has no main replica, only copies on rank ",
                     key.shards[i].rank, "; exactly one rank must give replica id 0");
          return;
        }
        if (begin + 1 < end && key.shards[order[begin + 1]].main) {
          key.fault = concat(
              "key '", key.name, "': box ", to_string(boxes.box(i)), " has two main replicas, on ranks ", key.shards[i].rank,
              " and ", key.shards[order[begin + 1]].rank,
              "; give one of them another replica id (its rank in the group that shares the tensor), or another offset");
          return;
        }
        if (const std::string fault = differing_replicas(key, std::span(order).subspan(begin, end - begin));
            !fault.empty()) {
          key.fault = fault;
          return;
        }
        distinct.push_back(boxes.box(i));
        sample.push_back(i);
        // An object is written by its main replica: those of other ranks may differ, and nobody reads them.
        if (key.kind == object_kind) {
          items.push_back({0, k, begin, 1});
        } else {
          items.push_back(
              {static_cast<std::uint64_t>(volume) * size_of(static_cast<DType>(key.kind - 1)), k, begin, end - begin});
        }
      }
      begin = end;
    }
    // A tensor without elements is still a tensor: one of its empty shards stands for it.
    if (numel(key.shape) == 0 && n > 0) items.push_back({0, k, 0, 1});
    if (const auto fault = find_tiling_fault(distinct, key.shape)) {
      if (fault->overlap) {
        const std::uint32_t a = sample[fault->first], b = sample[fault->second];
        key.fault = concat("key '", key.name, "': box ", to_string(boxes.box(a)), " of rank ", key.shards[a].rank,
                           " and box ", to_string(boxes.box(b)), " of rank ", key.shards[b].rank, " overlap in ",
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

  /// A sentence where replicas of one box, given as shards with the main one first, have different checksums.
  [[nodiscard]] static std::string differing_replicas(const Key& key, std::span<const std::uint32_t> replicas) {
    const Shard& main = key.shards[replicas.front()];
    for (const std::uint32_t i : replicas) {
      const Shard& other = key.shards[i];
      if (other.checksum == main.checksum) continue;
      return concat("key '", key.name, "': the replicas of box ", to_string(key.boxes.box(i)), " on ranks ", main.rank,
                    " and ", other.rank, " differ; they must hold the same values");
    }
    return {};
  }

  [[nodiscard]] static std::string ranks_text(const std::vector<Shard>& shards) {
    std::vector<std::uint32_t> ranks;
    for (const Shard& shard : shards) ranks.push_back(shard.rank);
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks.empty() ? "no rank" : concat("ranks ", list_text(ranks));
  }

  /// Largest first, each to its replica with the fewest bytes so far (Graham's rule). Small boxes stay with the main replica
  /// while that costs no balance, so that scalars come from where their truth is.
  void assign(std::vector<Item>& items, std::vector<WriteAssignment>& writes) {
    std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.bytes > b.bytes; });
    std::vector<std::uint64_t> load(static_cast<std::size_t>(ranks_), 0);
    for (const Item& item : items) {
      if (item.replicas == 1) load[keys_[item.key].shards[item.first].rank] += item.bytes;
    }
    const std::uint64_t slack = (std::uint64_t{256} << 10) / static_cast<std::uint64_t>(ranks_);
    writes.reserve(items.size());
    for (const Item& item : items) {
      const Key& key = keys_[item.key];
      const Shard* chosen = &key.shards[item.first];
      if (item.replicas > 1) {
        // Owners do not see each other's loads: starting the search at a place that depends on the key keeps them from all
        // giving their odd box to the same rank.
        const std::uint32_t start =
            item.bytes > slack ? static_cast<std::uint32_t>(key_hash(key.name) >> 32) % item.replicas : 0;
        const Shard* least = nullptr;
        for (std::uint32_t i = 0; i < item.replicas; ++i) {
          const Shard& shard = key.shards[item.first + (start + i) % item.replicas];
          if (least == nullptr || load[shard.rank] < load[least->rank]) least = &shard;
        }
        if (item.bytes > slack || load[chosen->rank] + item.bytes > load[least->rank] + slack) chosen = least;
        load[chosen->rank] += item.bytes;
      }
      writes.push_back({chosen->rank, chosen->index});
    }
  }

  int ranks_;
  std::vector<Key> keys_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
