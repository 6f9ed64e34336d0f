// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/agreement.hpp>
#include <mgroups/checkpoint/balance.hpp>
#include <mgroups/checkpoint/plan.hpp>
#include <mgroups/checkpoint/plan_cache.hpp>
#include <mgroups/checkpoint/plan_messages.hpp>
#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/shard/state_dict.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

inline constexpr int coordinator = 0;

/// Throws on every rank one sentence that is made of all owners' faults. Collective, blocking.
inline void refuse_faults(any_communicator& comm, const std::vector<std::string>& own) {
  std::vector<std::byte> message;
  WireWriter writer(message);
  for (const std::string& fault : own) writer.text(fault);
  const Parcels all = gather(comm, std::move(message), coordinator);
  on_all_ranks(comm, "save", [&] {
    constexpr std::size_t most = 8;
    std::vector<std::string> sentences;
    all.for_each([&](int, std::span<const std::byte> bytes) {
      for (WireReader reader(bytes); !reader.done();) sentences.emplace_back(reader.text());
    });
    if (sentences.empty()) return;
    std::sort(sentences.begin(), sentences.end());
    std::string text = concat("cannot save, since the ranks' shards do not make whole tensors: ");
    for (std::size_t i = 0; i < std::min(most, sentences.size()); ++i) text += (i > 0 ? "; " : "") + sentences[i];
    if (sentences.size() > most) text += concat("; and ", sentences.size() - most, " keys more");
    throw CheckpointError(text);
  });
}

/// For each box of this rank's offer, the rank that writes it. `load` holds what each rank writes of this owner's keys in
/// any case. Collective, blocking.
[[nodiscard]] inline std::vector<std::uint32_t> choose_writers(any_communicator& comm, const Offer& offer,
                                                               std::vector<std::uint64_t> load) {
  std::uint64_t most = offer.boxes.size();
  comm.all_reduce(std::span(&most, 1), ReduceOp::max);
  if (most == 0) return {};
  comm.all_reduce(std::span(load), ReduceOp::sum);
  std::vector<std::byte> message;
  WireWriter writer(message);
  offer.put(writer);
  const Parcels offers = gather(comm, std::move(message), coordinator);
  const Parcels answers = on_all_ranks(comm, "save", [&] {
    Parcels out(comm.size());
    if (comm.rank() != coordinator) return out;
    Balancer balancer(std::move(load));
    offers.for_each([&](int, std::span<const std::byte> bytes) { balancer.add(bytes); });
    const std::vector<std::vector<std::uint32_t>> chosen = balancer.choose();
    WireWriter answer(out.bytes);
    for (std::size_t owner = 0; owner < chosen.size(); ++owner) {
      const std::size_t before = out.bytes.size();
      for (const std::uint32_t rank : chosen[owner]) answer.number(rank);
      out.counts[owner] = out.bytes.size() - before;
    }
    return out;
  });
  std::vector<std::uint32_t> chosen;
  chosen.reserve(offer.boxes.size());
  const Parcels mine = exchange(comm, answers);
  for (WireReader reader(mine.bytes); !reader.done();) chosen.push_back(reader.small_number());
  return chosen;
}

/// Which of its tensors and, numbered after them, its objects this rank writes, in ascending order. Collective, blocking.
[[nodiscard]] inline std::vector<std::uint32_t> plan_writes(any_communicator& comm, const LocalState& state,
                                                            std::span<const std::uint32_t> checksums) {
  const Parcels records = exchange(comm, plan_messages(state, comm.size(), checksums).to_parcels(comm.size()));
  OwnedKeys owned;
  refuse_faults(comm, on_all_ranks(comm, "save", [&] {
                  records.for_each([&](int rank, std::span<const std::byte> message) { owned.add(rank, message); });
                  return owned.validate();
                }));
  std::vector<std::uint64_t> load(static_cast<std::size_t>(comm.size()), 0);
  const Offer offer = on_all_ranks(comm, "save", [&] { return owned.offer(load); });
  const std::vector<std::uint32_t> chosen = choose_writers(comm, offer, std::move(load));

  std::vector<WriteAssignment> writes = owned.writes(chosen);
  std::sort(writes.begin(), writes.end(), [](const WriteAssignment& a, const WriteAssignment& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.index < b.index;
  });
  Parcels orders(comm.size());
  WireWriter writer(orders.bytes);
  for (const WriteAssignment& write : writes) {
    const std::size_t before = orders.bytes.size();
    writer.number(write.index);
    orders.counts[write.rank] += orders.bytes.size() - before;
  }
  std::vector<std::uint32_t> mine;
  const Parcels received = exchange(comm, orders);
  for (WireReader reader(received.bytes); !reader.done();) mine.push_back(reader.small_number());
  std::sort(mine.begin(), mine.end());
  return mine;
}

/// The same by way of a cache, which may be null: where no rank's layout has changed, nothing is planned.
[[nodiscard]] inline std::vector<std::uint32_t> plan_writes(any_communicator& comm, const LocalState& state,
                                                            std::span<const std::uint32_t> checksums, PlanCache* cache) {
  // Checksums are of values, which are compared each time.
  if (cache == nullptr || !checksums.empty()) return plan_writes(comm, state, checksums);
  int unchanged = cache->is_for(state.layout_id, comm.rank(), comm.size()) ? 1 : 0;
  comm.all_reduce(std::span(&unchanged, 1), ReduceOp::min);
  if (unchanged == 0) cache->set(state.layout_id, comm.rank(), comm.size(), plan_writes(comm, state, checksums));
  return cache->writes();
}

}  // namespace detail

MGROUPS_END_NAMESPACE
