// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <mgroups/comm/buffer.hpp>
#include <mgroups/comm/checks.hpp>
#include <mgroups/comm/reduce.hpp>
#include <mgroups/comm/threads/call.hpp>
#include <mgroups/comm/threads/call_scope.hpp>
#include <mgroups/core/box.hpp>
#include <mgroups/version.hpp>

// The verbs of thread_comm. Arguments have been checked. Small payloads travel inside the slots (one meeting), all others
// are read from the peers' buffers between two meetings. Each rank begins with another peer, so that they do not all read
// the same memory at once.

MGROUPS_BEGIN_NAMESPACE
namespace detail {

[[nodiscard]] inline const std::byte* at_byte(const void* data, std::size_t offset) {
  return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + offset;
}
[[nodiscard]] inline std::byte* at_byte(void* data, std::size_t offset) {
  return data == nullptr ? nullptr : static_cast<std::byte*>(data) + offset;
}

inline void thread_broadcast(const ThreadSeat& seat, const buffer& data, int root) {
  Call call{.verb = Verb::broadcast, .type = data.type, .count = data.count, .peer = root};
  call.in = data.data;
  CallScope scope(seat, call);
  const bool is_root = seat.rank == root;
  if (data.bytes() <= inline_bytes) {
    scope.enter(data.data, is_root ? data.bytes() : 0);
    if (!is_root) copy_bytes(data.data, scope.payload(root), data.bytes());
    return scope.finish();
  }
  scope.enter();
  scope.begin_reading();
  if (!is_root) copy_bytes(data.data, scope.call(root).in, data.bytes());
  scope.leave();
}

inline void thread_all_reduce(const ThreadSeat& seat, const const_buffer& in, const buffer& out, ReduceOp op,
                              std::span<const void*> inputs) {
  Call call{.verb = Verb::all_reduce, .op = op, .type = in.type, .count = in.count};
  call.in = in.data;
  call.out = out.data;
  CallScope scope(seat, call);
  const int ranks = seat.group.size();
  if (in.bytes() <= inline_bytes) {
    scope.enter(in.data, in.bytes());
    for (int r = 0; r < ranks; ++r) inputs[static_cast<std::size_t>(r)] = scope.payload(r);
    reduce_elements(in.type, op, inputs, out.data, in.count);
    return scope.finish();
  }
  // Every rank reduces its slice of all inputs, then takes the other slices from the ranks that reduced them.
  const auto slice = [&](int r) { return split_range(static_cast<std::int64_t>(in.count), ranks, r); };
  const auto first_byte = [&](const IndexRange& range) { return static_cast<std::size_t>(range.begin) * in.type.size(); };
  const auto own = slice(seat.rank);
  scope.enter();
  scope.begin_reading();
  for (int r = 0; r < ranks; ++r) {
    inputs[static_cast<std::size_t>(r)] = at_byte(scope.call(r).in, first_byte(own));
  }
  reduce_elements(in.type, op, inputs, at_byte(out.data, first_byte(own)), static_cast<std::size_t>(own.size()));
  scope.end_reading();
  scope.meet();
  scope.begin_reading();
  for (int step = 1; step < ranks; ++step) {
    const int r = (seat.rank + step) % ranks;
    const auto part = slice(r);
    copy_bytes(at_byte(out.data, first_byte(part)), at_byte(scope.call(r).out, first_byte(part)),
               static_cast<std::size_t>(part.size()) * in.type.size());
  }
  scope.leave();
}

// Rank r's part of `out` begins at byte begin(r) and has as many bytes as its input.
template <class Begin>
void gather_parts(CallScope& scope, const ThreadSeat& seat, const buffer& out, Begin begin) {
  const int ranks = seat.group.size();
  for (int step = 1; step <= ranks; ++step) {
    const int r = (seat.rank + step) % ranks;
    const Call& peer = scope.call(r);
    std::byte* const to = at_byte(out.data, begin(r));
    if (to != peer.in) copy_bytes(to, peer.in, peer.count * peer.type.size());
  }
}

inline void thread_all_gather(const ThreadSeat& seat, const const_buffer& in, const buffer& out) {
  Call call{.verb = Verb::all_gather, .type = in.type, .count = in.count};
  call.in = in.data;
  CallScope scope(seat, call);
  if (in.bytes() <= inline_bytes) {
    scope.enter(in.data, in.bytes());
    for (int r = 0; r < seat.group.size(); ++r) {
      copy_bytes(at_byte(out.data, static_cast<std::size_t>(r) * in.bytes()), scope.payload(r), in.bytes());
    }
    return scope.finish();
  }
  scope.enter();
  scope.begin_reading();
  gather_parts(scope, seat, out, [&](int r) { return static_cast<std::size_t>(r) * in.bytes(); });
  scope.leave();
}

inline void thread_all_gather_v(const ThreadSeat& seat, const const_buffer& in, const buffer& out,
                                std::span<const std::size_t> counts) {
  Call call{.verb = Verb::all_gather_v, .type = in.type, .count = in.count};
  call.in = in.data;
  call.recv_counts = counts;
  CallScope scope(seat, call);
  scope.enter();
  scope.begin_reading();
  ThreadGroup& group = seat.group;
  Fault fault;
  for (int r = 1; r < group.size() && !fault; ++r) {
    const auto theirs = scope.call(r).recv_counts, first = scope.call(0).recv_counts;
    if (std::equal(theirs.begin(), theirs.end(), first.begin(), first.end())) continue;
    fault = concat("rank ", group.world_rank(r), " called all_gather_v with counts ", list_text(theirs), " while rank ",
                   group.world_rank(0), " gave ", list_text(first), " on group ", group.name());
  }
  if (!fault) gather_parts(scope, seat, out, [&](int r) { return offset_of(counts, r) * in.type.size(); });
  scope.leave();
  if (fault) scope.throw_mismatch(*fault);
}

inline void thread_all_to_all_v(const ThreadSeat& seat, const const_buffer& in, std::span<const std::size_t> send_counts,
                                const buffer& out, std::span<const std::size_t> recv_counts) {
  Call call{.verb = Verb::all_to_all_v, .type = in.type, .count = in.count};
  call.in = in.data;
  call.send_counts = send_counts;
  call.recv_counts = recv_counts;
  CallScope scope(seat, call);
  scope.enter();
  scope.begin_reading();
  ThreadGroup& group = seat.group;
  const int ranks = group.size();
  Fault fault;
  // Every rank looks at all pairs, so that all come to the same verdict.
  for (int s = 0; s < ranks && !fault; ++s) {
    for (int d = 0; d < ranks && !fault; ++d) {
      const std::size_t sent = scope.call(s).send_counts[static_cast<std::size_t>(d)];
      const std::size_t expected = scope.call(d).recv_counts[static_cast<std::size_t>(s)];
      if (sent == expected) continue;
      fault = concat("rank ", group.world_rank(s), " called all_to_all_v with ", elements_text(sent, in.type), " for rank ",
                     group.world_rank(d), " while rank ", group.world_rank(d), " expects ", expected, " on group ",
                     group.name());
    }
  }
  for (int step = 1; step <= ranks && !fault; ++step) {
    const int r = (seat.rank + step) % ranks;
    const Call& peer = scope.call(r);
    copy_bytes(at_byte(out.data, offset_of(recv_counts, r) * in.type.size()),
               at_byte(peer.in, offset_of(peer.send_counts, seat.rank) * in.type.size()),
               recv_counts[static_cast<std::size_t>(r)] * in.type.size());
  }
  scope.leave();
  if (fault) scope.throw_mismatch(*fault);
}

[[nodiscard]] inline std::string unlike_message(ThreadGroup& group, const Call& sent, int source, const Call& received) {
  return concat("rank ", group.world_rank(sent.peer), " called ", describe(received), " while rank ",
                group.world_rank(source), " called ", describe(sent), " on group ", group.name());
}

inline void thread_send(const ThreadSeat& seat, const const_buffer& data, int destination) {
  Call call{.verb = Verb::send, .type = data.type, .count = data.count, .peer = destination};
  call.in = data.data;
  CallScope scope(seat, call);
  ThreadGroup& group = seat.group;
  Slot& slot = group.slot(seat.rank);
  slot.sent = call;
  slot.mail = destination;
  group.slot(destination).parking.wake();
  const int at = group.world_rank(destination);
  scope.wait([&] { return slot.mail < 0; }, [&] { return group.world()->left(at) ? destination : -1; },
             [&] { return concat("rank ", at, ", which has"); });
  const bool refused = slot.mail == Slot::mail_refused;
  slot.mail = Slot::no_mail;
  if (refused) scope.throw_mismatch(unlike_message(group, call, seat.rank, slot.refusal));
  scope.finish();
}

inline void thread_recv(const ThreadSeat& seat, const buffer& data, int source) {
  const Call call{.verb = Verb::recv, .type = data.type, .count = data.count, .peer = source};
  CallScope scope(seat, call);
  ThreadGroup& group = seat.group;
  Slot& sender = group.slot(source);
  const int at = group.world_rank(source);
  scope.wait([&] { return sender.mail == seat.rank; }, [&] { return group.world()->left(at) ? source : -1; },
             [&] { return concat("rank ", at, ", which has"); });
  scope.begin_reading();
  const Call sent = sender.sent;
  const bool fits = sent.type == data.type && sent.count == data.count;
  if (fits) {
    copy_bytes(data.data, sent.in, data.bytes());
  } else {
    sender.refusal = call;
  }
  scope.end_reading();
  sender.mail = fits ? Slot::mail_taken : Slot::mail_refused;
  sender.parking.wake();
  if (!fits) scope.throw_mismatch(unlike_message(group, sent, source, call));
  scope.finish();
}

}  // namespace detail
MGROUPS_END_NAMESPACE
