// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <mgroups/comm/buffer.hpp>
#include <mgroups/comm/checks.hpp>
#include <mgroups/comm/concepts.hpp>
#include <mgroups/comm/reducible.hpp>
#include <mgroups/comm/verb.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/memory.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

template <class T>
inline constexpr bool is_device_span = false;
template <class T>
inline constexpr bool is_device_span<device_span<T>> = true;

template <class Data>
constexpr auto as_span(Data&& data) {
  if constexpr (is_device_span<std::remove_cvref_t<Data>>) {
    return data;
  } else {
    static_assert(
        std::ranges::contiguous_range<Data> && std::ranges::sized_range<Data>,
        "a verb takes contiguous elements: a std::span, a std::vector (not of bool), a std::array or a device_span");
    return std::span(std::ranges::data(data), std::ranges::size(data));
  }
}

template <class Data>
using element_of = std::remove_pointer_t<decltype(as_span(std::declval<Data&>()).data())>;

}  // namespace detail

/// The typed verbs of every communicator, made of the untyped `do_*` members that `Derived` implements.
///
/// Elements are given as `std::span`, as a contiguous container or as `device_span`; counts are elements, never bytes.
/// Every verb is collective over the communicator but send and recv, which concern two ranks. On hosts a verb blocks
/// until the calling rank's part is done and its buffers are its own again; with streams it is ordered on the stream of
/// `on(stream)`. Arguments are checked before anything is sent: InvalidArgument for impossible ones, UnsupportedError for
/// memory or element types out of reach, NotAMember on a rank outside. What other ranks do can make any verb throw
/// PeerFailed, MismatchedCall or TimeoutError, as the backend documents.
template <class Derived>
class verbs {
 public:
  /// Returns when every rank has called it.
  void barrier() {
    static_assert(has_barrier<Derived>, "the backend of this communicator has no barrier");
    (void)self().size();
    self().do_barrier();
  }

  /// Copies the root's `data` into every other rank's. `root` is a rank of this communicator.
  template <class Data>
  void broadcast(Data&& data, int root) {
    static_assert(has_broadcast<Derived>, "the backend of this communicator has no broadcast");
    const buffer out = output<Data>(Verb::broadcast, "buffer", data);
    require(Verb::broadcast, detail::rank_fault("root", root, self().size()));
    self().do_broadcast(out, root);
  }

  /// In place: `data` becomes the elementwise reduction over all ranks, the same bits on all of them.
  template <class Data>
  void all_reduce(Data&& data, ReduceOp op) {
    static_assert(has_all_reduce<Derived>, "the backend of this communicator has no all_reduce");
    const buffer out = output<Data>(Verb::all_reduce, "buffer", data);
    reducible<Data>(op, out.type);
    (void)self().size();
    self().do_all_reduce(out, out, op);
  }

  /// Out of place; `in` and `out` are equally long and, unless they are the same memory, do not overlap.
  template <class In, class Out>
  void all_reduce(const In& in, Out&& out, ReduceOp op) {
    static_assert(has_all_reduce<Derived>, "the backend of this communicator has no all_reduce");
    const auto [from, to] = both<In, Out>(Verb::all_reduce, in, out);
    reducible<Out>(op, to.type);
    (void)self().size();
    require(Verb::all_reduce, detail::equal_count_fault(from, to));
    require(Verb::all_reduce, detail::overlap_fault(from, to, 0));
    self().do_all_reduce(from, to, op);
  }

  /// `out` holds size() x in.size() elements: every rank's `in` in rank order. In place: `in` is this rank's part of `out`.
  template <class In, class Out>
  void all_gather(const In& in, Out&& out) {
    static_assert(has_all_gather<Derived>, "the backend of this communicator has no all_gather");
    const auto [from, to] = both<In, Out>(Verb::all_gather, in, out);
    require(Verb::all_gather, detail::gathered_count_fault(from, to, self().size()));
    require(Verb::all_gather, detail::overlap_fault(from, to, static_cast<std::size_t>(self().rank()) * from.count));
    self().do_all_gather(from, to);
  }

  /// Rank r gives counts[r] elements; `counts` is the same on all ranks and adds up to `out`. In place as for all_gather.
  template <class In, class Out>
  void all_gather_v(const In& in, Out&& out, std::span<const std::size_t> counts) {
    static_assert(has_all_gather_v<Derived>, "the backend of this communicator has no all_gather_v");
    const auto [from, to] = both<In, Out>(Verb::all_gather_v, in, out);
    require(Verb::all_gather_v, detail::counts_fault("gather", counts, self().size(), to.count));
    require(Verb::all_gather_v, detail::own_count_fault(counts, self().rank(), from.count));
    require(Verb::all_gather_v, detail::overlap_fault(from, to, detail::offset_of(counts, self().rank())));
    self().do_all_gather_v(from, to, counts);
  }

  /// Sends send_counts[r] elements of `in` to each rank r and receives recv_counts[r] from it, both packed in rank order.
  /// What r expects from this rank must be what this rank sends to r. `in` and `out` do not overlap.
  template <class In, class Out>
  void all_to_all_v(const In& in, std::span<const std::size_t> send_counts, Out&& out,
                    std::span<const std::size_t> recv_counts) {
    static_assert(has_all_to_all_v<Derived>, "the backend of this communicator has no all_to_all_v");
    const auto [from, to] = both<In, Out>(Verb::all_to_all_v, in, out);
    require(Verb::all_to_all_v, detail::counts_fault("send", send_counts, self().size(), from.count));
    require(Verb::all_to_all_v, detail::counts_fault("receive", recv_counts, self().size(), to.count));
    require(Verb::all_to_all_v, detail::disjoint_fault(from, to));
    self().do_all_to_all_v(from, send_counts, to, recv_counts);
  }

  /// Sends all elements to rank `destination`, which receives as many. Messages of one pair arrive in the order sent.
  /// May wait until the receiver has them. A rank cannot send to itself.
  template <class Data>
  void send(const Data& data, int destination) {
    static_assert(has_send_recv<Derived>, "the backend of this communicator has no send");
    const const_buffer in = input<Data>(Verb::send, "buffer", data);
    require(Verb::send, detail::peer_fault("destination", destination, self().rank(), self().size()));
    self().do_send(in, destination);
  }

  /// Receives exactly `data.size()` elements from rank `source`.
  template <class Data>
  void recv(Data&& data, int source) {
    static_assert(has_send_recv<Derived>, "the backend of this communicator has no recv");
    const buffer out = output<Data>(Verb::recv, "buffer", data);
    require(Verb::recv, detail::peer_fault("source", source, self().rank(), self().size()));
    self().do_recv(out, source);
  }

 protected:
  verbs() = default;
  verbs(const verbs&) = default;
  verbs& operator=(const verbs&) = default;
  ~verbs() = default;

 private:
  [[nodiscard]] Derived& self() noexcept { return static_cast<Derived&>(*this); }

  void require(Verb verb, const detail::Fault& fault) {
    if (fault) throw InvalidArgument(sentence(verb, *fault), context(verb));
  }

  [[nodiscard]] std::string sentence(Verb verb, const std::string& phrase) {
    return concat(mgroups::name(verb), " on group ", std::string_view(self().name()), ": ", phrase);
  }

  [[nodiscard]] ErrorContext context(Verb verb) {
    ErrorContext at{std::string(mgroups::name(verb)), std::string(std::string_view(self().name()))};
    if constexpr (maps_to_world<Derived>) at.rank = self().world_rank(self().rank());
    return at;
  }

  template <class Data>
  void reducible(ReduceOp op, ElementType type) {
    static_assert(tensor_element<detail::element_of<Data>>,
                  "this element type cannot be reduced: it is neither a number nor one of the half types");
    if (const auto fault = reduction_fault(type, op)) {
      throw UnsupportedError(sentence(Verb::all_reduce, *fault), context(Verb::all_reduce));
    }
  }

  template <class Data>
  void reach(Verb verb) {
    constexpr bool on_device = detail::is_device_span<std::remove_cvref_t<Data>>;
    static_assert(
        !on_device || may_reach(Derived::memory_reach, MemorySpace::device),
        "device_span given to a communicator that only reaches host memory: use a communicator of a GPU backend, or "
        "copy the elements to the host first");
    static_assert(on_device || may_reach(Derived::memory_reach, MemorySpace::host),
                  "host memory given to a communicator that only reaches device memory: pass mgroups::device(pointer, n) of "
                  "device memory, or use a host communicator");
    if constexpr (Derived::memory_reach == MemoryReach::run_time) {
      if (!self().reaches(on_device ? MemorySpace::device : MemorySpace::host)) {
        throw UnsupportedError(
            sentence(verb, on_device
                               ? "device_span given to a communicator that only reaches host memory; use a communicator of "
                                 "a GPU backend, or copy the elements to the host first"
                               : "host memory given to a communicator that only reaches device memory; pass "
                                 "mgroups::device(pointer, n), or use a host communicator"),
            context(verb));
      }
    }
  }

  template <class Data>
  [[nodiscard]] const_buffer input(Verb verb, std::string_view role, const Data& data) {
    using Element = detail::element_of<const Data>;
    static_assert(
        transportable<std::remove_const_t<Element>>,
        "this element type cannot travel between ranks: it is not trivially copyable, or it is a pointer or a view");
    reach<Data>(verb);
    const const_buffer in(detail::as_span(data));
    require(verb, detail::null_fault(role, in));
    return in;
  }

  template <class Data>
  [[nodiscard]] buffer output(Verb verb, std::string_view role, std::remove_reference_t<Data>& data) {
    using Element = detail::element_of<Data>;
    static_assert(detail::is_device_span<std::remove_cvref_t<Data>> || std::ranges::borrowed_range<Data>,
                  "the output is a temporary container, which would be lost with its elements; pass a variable or a span");
    static_assert(!std::is_const_v<Element>, "the output's elements are const; pass a span of mutable elements");
    static_assert(
        transportable<std::remove_const_t<Element>>,
        "this element type cannot travel between ranks: it is not trivially copyable, or it is a pointer or a view");
    reach<Data>(verb);
    const buffer out(detail::as_span(data));
    require(verb, detail::null_fault(role, out));
    return out;
  }

  template <class In, class Out>
  [[nodiscard]] std::pair<const_buffer, buffer> both(Verb verb, const In& in, std::remove_reference_t<Out>& out) {
    static_assert(std::is_same_v<std::remove_const_t<detail::element_of<const In>>, detail::element_of<Out>>,
                  "input and output have different element types");
    return {input<In>(verb, "input", in), output<Out>(verb, "output", out)};
  }
};

/// A communicator of host memory without streams: what the concept asks for beside rank, size and name.
template <class Derived>
class host_memory_only {
 public:
  using stream_type = no_stream;
  static constexpr MemoryReach memory_reach = MemoryReach::host;

  [[nodiscard]] static constexpr bool reaches(MemorySpace space) noexcept { return space == MemorySpace::host; }
  /// The same communicator: verbs on hosts are done when they return.
  template <class Stream>
  Derived& on(const Stream&) noexcept {
    return static_cast<Derived&>(*this);
  }
  /// Nothing to wait for.
  void synchronize() noexcept {}
};

MGROUPS_END_NAMESPACE
