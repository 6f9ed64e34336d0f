// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/balance.hpp>
#include <mgroups/checkpoint/plan.hpp>
#include <mgroups/checkpoint/plan_messages.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/shard/state_dict.hpp>

namespace mgroups_test {

/// The plan of a save by all ranks of a world, and what each of them would have had to do for it.
struct SimulatedPlan {
  std::vector<std::string> faults;
  std::vector<std::vector<std::uint32_t>> writes;  ///< for each rank the numbers of its shards, ascending
  double seconds = 0;                              ///< of all ranks' work, without making the states
  std::size_t records = 0;                         ///< shards of all ranks
  std::size_t message_bytes = 0;                   ///< from ranks to owners, in all
  std::size_t most_messages = 0;                   ///< that one owner received
  std::size_t most_message_bytes = 0;              ///< that one owner received
  std::size_t most_offers = 0;                     ///< boxes that the coordinator had to decide on
};

/// Plans what `mgroups::save` plans collectively, rank by rank in this thread. `state_of(rank)` returns the LocalState of a
/// rank, which must stay valid until the next call.
template <class StateOf>
[[nodiscard]] SimulatedPlan simulate_plan(int ranks, StateOf&& state_of) {
  namespace detail = mgroups::detail;
  using Clock = std::chrono::steady_clock;
  struct Owner {
    detail::OwnedKeys keys;
    std::size_t messages = 0, bytes = 0;
  };
  SimulatedPlan out;
  std::unordered_map<int, Owner> owners;  // only those that own a key
  std::deque<std::vector<std::byte>> kept;
  const auto timed = [&](auto&& work) {
    const auto start = Clock::now();
    work();
    out.seconds += std::chrono::duration<double>(Clock::now() - start).count();
  };
  // An owner looks at the messages of all ranks in a row, not at one each time that a rank has written its own; but those
  // of all ranks at once may need more memory than there is.
  struct Arrived {
    int owner, rank;
    std::span<const std::byte> message;
  };
  constexpr int ranks_at_once = 128;
  for (int first = 0; first < ranks; first += ranks_at_once) {
    std::vector<detail::SparseParcels> sent;
    for (int rank = first; rank < std::min(first + ranks_at_once, ranks); ++rank) {
      const mgroups::LocalState& state = state_of(rank);
      out.records += state.tensors.size() + state.objects.size();
      timed([&] { sent.push_back(detail::plan_messages(state, ranks)); });
      out.message_bytes += sent.back().bytes.size();
    }
    std::vector<Arrived> arrived;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      std::size_t at = 0;
      for (const auto& part : sent[i].parts) {
        arrived.push_back({part.rank, first + static_cast<int>(i), std::span(sent[i].bytes).subspan(at, part.bytes)});
        at += part.bytes;
      }
    }
    std::stable_sort(arrived.begin(), arrived.end(), [](const Arrived& a, const Arrived& b) { return a.owner < b.owner; });
    std::vector<char> needed(sent.size(), 0);
    timed([&] {
      for (const Arrived& one : arrived) {
        Owner& owner = owners[one.owner];
        ++owner.messages;
        owner.bytes += one.message.size();
        if (owner.keys.add(one.rank, one.message)) needed[static_cast<std::size_t>(one.rank - first)] = 1;
      }
    });
    for (std::size_t i = 0; i < sent.size(); ++i) {
      if (needed[i] != 0) kept.push_back(std::move(sent[i].bytes));  // which moves no byte
    }
  }

  std::vector<Owner*> in_order;
  for (int rank = 0; rank < ranks; ++rank) {
    if (const auto found = owners.find(rank); found != owners.end()) in_order.push_back(&found->second);
  }
  for (const Owner* owner : in_order) {
    out.most_messages = std::max(out.most_messages, owner->messages);
    out.most_message_bytes = std::max(out.most_message_bytes, owner->bytes);
  }
  timed([&] {
    for (Owner* owner : in_order) {
      for (std::string& fault : owner->keys.validate()) out.faults.push_back(std::move(fault));
    }
  });
  std::sort(out.faults.begin(), out.faults.end());
  if (!out.faults.empty()) return out;

  std::vector<detail::WriteAssignment> writes;
  timed([&] {
    std::vector<std::uint64_t> load(static_cast<std::size_t>(ranks), 0);
    std::vector<std::vector<std::byte>> offers;
    for (Owner* owner : in_order) {
      detail::Offer offer = owner->keys.offer(load);
      mgroups::WireWriter writer(offers.emplace_back());
      offer.put(writer);
    }
    detail::Balancer balancer(std::move(load));
    for (const auto& offer : offers) balancer.add(offer);
    const std::vector<std::vector<std::uint32_t>> chosen = balancer.choose();
    for (std::size_t i = 0; i < in_order.size(); ++i) {
      const auto own = in_order[i]->keys.writes(chosen[i]);
      writes.insert(writes.end(), own.begin(), own.end());
      out.most_offers += chosen[i].size();
    }
  });
  out.writes.resize(static_cast<std::size_t>(ranks));
  for (const detail::WriteAssignment& write : writes) out.writes[write.rank].push_back(write.index);
  for (auto& own : out.writes) std::sort(own.begin(), own.end());
  return out;
}

}  // namespace mgroups_test
