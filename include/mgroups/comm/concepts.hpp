// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <mgroups/comm/buffer.hpp>
#include <mgroups/core/memory.hpp>
#include <mgroups/version.hpp>

// What a backend is. It implements the low-level members that these concepts name, `do_*` among them, on untyped buffers
// that have been checked; the typed verbs that people call come from `verbs<Backend>` (comm/verbs.hpp).

MGROUPS_BEGIN_NAMESPACE

/// Which memory a type of communicator can be given. `run_time`: only the object knows; ask `reaches(space)`.
enum class MemoryReach : std::uint8_t { host, device, host_and_device, run_time };

[[nodiscard]] constexpr bool may_reach(MemoryReach reach, MemorySpace space) noexcept {
  switch (reach) {
    case MemoryReach::host: return space == MemorySpace::host;
    case MemoryReach::device: return space == MemorySpace::device;
    default: return true;
  }
}

/// The stream of a backend that has none: any stream converts to it, and nothing is ordered by it.
struct no_stream {
  constexpr no_stream() = default;
  template <class Stream>
  constexpr no_stream(const Stream&) noexcept {}
};

/// The colour that makes `split` leave the calling rank out.
inline constexpr int no_color = -1;

namespace detail {

template <class C>
concept ranked = requires(const C& c) {
  { c.rank() } -> std::same_as<int>;
  { c.size() } -> std::same_as<int>;
};

}  // namespace detail

/// A fixed, ordered set of ranks of which the caller is one. This is the core; each verb has a concept of its own below.
/// - `rank()`, `size()`, `name()`: local; `name()` is what error messages call it.
/// - `is_member()`: false for what `split` gave a rank that asked for no group; then rank, size and every verb throw
///   NotAMember.
/// - `on(stream)`: a handle whose verbs are ordered on that stream, after the work already there. Local. Without streams it
///   is the same communicator, and its verbs return when they are done.
/// - `synchronize()`: returns when the host may read what the verbs issued so far have written. Local, blocking.
/// - `memory_reach` and `reaches(space)`: the memory that its verbs can be given, as a constant of the type and of the
///   object.
template <class C>
concept communicator = detail::ranked<C> && requires(C& c, const C& k, MemorySpace space, typename C::stream_type stream) {
  { k.name() } -> std::convertible_to<std::string_view>;
  { k.is_member() } -> std::same_as<bool>;
  { C::memory_reach } -> std::convertible_to<MemoryReach>;
  { k.reaches(space) } -> std::same_as<bool>;
  { c.on(stream) } -> detail::ranked;
  c.synchronize();
};

/// Its verbs are ordered on streams.
template <class C>
concept has_streams = communicator<C> && !std::same_as<typename C::stream_type, no_stream>;

/// No rank leaves before all have come.
template <class C>
concept has_barrier = requires(C& c) {
  c.do_barrier();
};

/// Every rank's `data` becomes the root's.
template <class C>
concept has_broadcast = requires(C& c, const buffer& data, int root) {
  c.do_broadcast(data, root);
};

/// out[i] = in[i] of all ranks combined, the same bits on every rank. `in` and `out` are the same memory or disjoint.
template <class C>
concept has_all_reduce = requires(C& c, const const_buffer& in, const buffer& out, ReduceOp op) {
  c.do_all_reduce(in, out, op);
};

/// out = every rank's `in`, in rank order. `in` may be its own part of `out`.
template <class C>
concept has_all_gather = requires(C& c, const const_buffer& in, const buffer& out) {
  c.do_all_gather(in, out);
};

/// As all_gather, rank r giving counts[r] elements.
template <class C>
concept has_all_gather_v = requires(C& c, const const_buffer& in, const buffer& out, std::span<const std::size_t> counts) {
  c.do_all_gather_v(in, out, counts);
};

/// Rank r is sent send_counts[r] elements of `in` and sends recv_counts[r] elements of `out`, both packed in rank order.
template <class C>
concept has_all_to_all_v = requires(C& c, const const_buffer& in, const buffer& out, std::span<const std::size_t> counts) {
  c.do_all_to_all_v(in, counts, out, counts);
};

/// Messages between two ranks, in order per pair. A send may wait for its receiver.
template <class C>
concept has_send_recv = requires(C& c, const const_buffer& in, const buffer& out, int peer) {
  c.do_send(in, peer);
  c.do_recv(out, peer);
};

/// Collective over the communicator: one new communicator per colour >= 0, its ranks ordered by (key, old rank).
template <class C>
concept has_split = requires(C& c, int color, int key) {
  { c.split(color, key) } -> communicator;
};

/// Collective over `members` alone: ranks of this communicator, in the order that they are to have in the new one.
template <class C>
concept has_create_group = requires(C& c, std::span<const int> members, std::string_view name) {
  { c.create_group(members, name) } -> communicator;
};

/// Collective: the same ranks in a communicator whose traffic is apart.
template <class C>
concept has_duplicate = requires(C& c) {
  { c.duplicate() } -> communicator;
};

/// Waits for other ranks end with a TimeoutError once this time has passed. Local.
template <class C>
concept has_deadline = requires(C& c, const C& k, std::chrono::nanoseconds time) {
  c.set_deadline(time);
  { k.deadline() } -> std::convertible_to<std::chrono::nanoseconds>;
};

/// Makes every pending and later verb of every member throw PeerFailed with this cause. Local, does not wait.
template <class C>
concept has_abort = requires(C& c, std::string_view cause) {
  c.abort(cause);
};

/// Knows the number of each of its ranks in the world that it was derived from. Local.
template <class C>
concept maps_to_world = requires(const C& c, int rank) {
  { c.world_rank(rank) } -> std::same_as<int>;
};

MGROUPS_END_NAMESPACE
