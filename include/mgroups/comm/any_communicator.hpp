// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <mgroups/comm/any_backend.hpp>
#include <mgroups/comm/any_stream.hpp>
#include <mgroups/comm/buffer.hpp>
#include <mgroups/comm/concepts.hpp>
#include <mgroups/comm/verb.hpp>
#include <mgroups/comm/verbs.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/memory.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// A communicator of any backend, behind one type: what ordinary functions take. A shared handle; copies are the same
/// communicator and cost a reference count. Not thread safe: one thread at a time calls verbs of one communicator, whatever
/// the number of its handles; another thread of the rank takes a `duplicate()`.
/// What the backend lacks throws UnsupportedError; ask `supports(verb)`. An empty handle throws InvalidArgument.
class any_communicator : public verbs<any_communicator> {
 public:
  using stream_type = any_stream;
  static constexpr MemoryReach memory_reach = MemoryReach::run_time;

  /// Empty.
  any_communicator() = default;

  /// Owns `comm`, which is moved in. Local.
  template <class C>
    requires(!std::is_lvalue_reference_v<C> && !std::is_const_v<C> && !std::same_as<C, any_communicator> && communicator<C>)
  any_communicator(C&& comm) : backend_(std::make_shared<detail::backend_model<C>>(std::make_shared<C>(std::move(comm)))) {}

  /// Refers to `comm`, which must outlive every copy of the handle. Local.
  template <communicator C>
  [[nodiscard]] static any_communicator borrow(C& comm) {
    if constexpr (std::same_as<C, any_communicator>) {
      return comm;
    } else {
      return any_communicator(
          std::make_shared<detail::backend_model<C>>(std::shared_ptr<C>(std::shared_ptr<void>(), &comm)));
    }
  }

  /// False when empty.
  [[nodiscard]] explicit operator bool() const noexcept { return backend_ != nullptr; }

  [[nodiscard]] int rank() const { return backend().rank(); }
  [[nodiscard]] int size() const { return backend().size(); }
  /// Valid as long as a handle of this communicator exists.
  [[nodiscard]] std::string_view name() const { return backend().name(); }
  [[nodiscard]] bool is_member() const { return backend().is_member(); }
  /// The rank's number in the world that the communicator was derived from; `rank` itself where the backend does not know.
  [[nodiscard]] int world_rank(int rank) const { return backend().world_rank(rank); }
  [[nodiscard]] bool reaches(MemorySpace space) const { return backend().reaches(space); }
  [[nodiscard]] bool supports(Verb verb) const { return backend().supports(verb); }

  /// A handle whose verbs are ordered on `stream`; on a backend without streams this communicator. Local.
  /// `on(0)` is the default stream; a stream type that is no pointer and gives none out does not compile.
  [[nodiscard]] any_communicator on(any_stream stream) {
    auto ordered = backend().on(stream);
    return ordered ? any_communicator(std::move(ordered)) : *this;
  }
  void synchronize() { backend().synchronize(); }

  [[nodiscard]] std::chrono::nanoseconds deadline() const { return backend().deadline(); }
  void set_deadline(std::chrono::nanoseconds time) { backend().set_deadline(time); }
  /// Makes every pending and later verb of every member throw PeerFailed with this cause. Local, does not wait.
  void abort(std::string_view cause) { backend().abort(cause); }

  /// Collective over this communicator; see the backend. `no_color` gives a handle with `is_member() == false`.
  [[nodiscard]] any_communicator split(int color, int key) { return any_communicator(backend().split(color, key)); }
  /// Collective over `members` alone, ranks of this communicator in the order of the new one.
  [[nodiscard]] any_communicator create_group(std::span<const int> members, std::string_view name) {
    return any_communicator(backend().create_group(members, name));
  }
  /// Collective over this communicator.
  [[nodiscard]] any_communicator duplicate() { return any_communicator(backend().duplicate()); }

  // The backend interface of comm/concepts.hpp.
  void do_barrier() { backend().barrier(); }
  void do_broadcast(const buffer& data, int root) { backend().broadcast(data, root); }
  void do_all_reduce(const const_buffer& in, const buffer& out, ReduceOp op) { backend().all_reduce(in, out, op); }
  void do_all_gather(const const_buffer& in, const buffer& out) { backend().all_gather(in, out); }
  void do_all_gather_v(const const_buffer& in, const buffer& out, std::span<const std::size_t> counts) {
    backend().all_gather_v(in, out, counts);
  }
  void do_all_to_all_v(const const_buffer& in, std::span<const std::size_t> send_counts, const buffer& out,
                       std::span<const std::size_t> recv_counts) {
    backend().all_to_all_v(in, send_counts, out, recv_counts);
  }
  void do_send(const const_buffer& data, int destination) { backend().send(data, destination); }
  void do_recv(const buffer& data, int source) { backend().recv(data, source); }

 private:
  explicit any_communicator(std::shared_ptr<detail::any_backend> backend) : backend_(std::move(backend)) {}

  [[nodiscard]] detail::any_backend& backend() const {
    if (!backend_) {
      throw InvalidArgument("this any_communicator is empty; construct it from a communicator, or assign one to it");
    }
    return *backend_;
  }

  std::shared_ptr<detail::any_backend> backend_;
};

MGROUPS_END_NAMESPACE
