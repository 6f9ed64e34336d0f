// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <mgroups/comm/any_stream.hpp>
#include <mgroups/comm/buffer.hpp>
#include <mgroups/comm/concepts.hpp>
#include <mgroups/comm/verb.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/memory.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE
namespace detail {

// A communicator behind a table of functions. What the backend lacks throws UnsupportedError.
class any_backend {
 public:
  any_backend() = default;
  any_backend(const any_backend&) = delete;
  any_backend& operator=(const any_backend&) = delete;
  virtual ~any_backend() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view name() const = 0;
  virtual bool is_member() const = 0;
  virtual int world_rank(int rank) const = 0;
  virtual bool reaches(MemorySpace space) const = 0;
  virtual bool supports(Verb verb) const = 0;
  virtual void synchronize() = 0;
  virtual std::chrono::nanoseconds deadline() const = 0;
  virtual void set_deadline(std::chrono::nanoseconds time) = 0;
  virtual void abort(std::string_view cause) = 0;

  virtual void barrier() = 0;
  virtual void broadcast(const buffer& data, int root) = 0;
  virtual void all_reduce(const const_buffer& in, const buffer& out, ReduceOp op) = 0;
  virtual void all_gather(const const_buffer& in, const buffer& out) = 0;
  virtual void all_gather_v(const const_buffer& in, const buffer& out, std::span<const std::size_t> counts) = 0;
  virtual void all_to_all_v(const const_buffer& in, std::span<const std::size_t> send_counts, const buffer& out,
                            std::span<const std::size_t> recv_counts) = 0;
  virtual void send(const const_buffer& data, int destination) = 0;
  virtual void recv(const buffer& data, int source) = 0;

  virtual std::shared_ptr<any_backend> split(int color, int key) = 0;
  virtual std::shared_ptr<any_backend> create_group(std::span<const int> members, std::string_view name) = 0;
  virtual std::shared_ptr<any_backend> duplicate() = 0;
  // Null: the backend has no streams, so the same communicator serves.
  virtual std::shared_ptr<any_backend> on(any_stream stream) = 0;
};

template <communicator C>
class backend_model final : public any_backend {
 public:
  explicit backend_model(std::shared_ptr<C> comm) : comm_(std::move(comm)) {}

  int rank() const override { return comm_->rank(); }
  int size() const override { return comm_->size(); }
  std::string_view name() const override { return comm_->name(); }
  bool is_member() const override { return comm_->is_member(); }
  int world_rank(int rank) const override {
    if constexpr (maps_to_world<C>) return comm_->world_rank(rank);
    return rank;
  }
  bool reaches(MemorySpace space) const override { return comm_->reaches(space); }
  void synchronize() override { comm_->synchronize(); }

  bool supports(Verb verb) const override {
    switch (verb) {
      case Verb::barrier: return has_barrier<C>;
      case Verb::broadcast: return has_broadcast<C>;
      case Verb::all_reduce: return has_all_reduce<C>;
      case Verb::all_gather: return has_all_gather<C>;
      case Verb::all_gather_v: return has_all_gather_v<C>;
      case Verb::all_to_all_v: return has_all_to_all_v<C>;
      case Verb::send:
      case Verb::recv: return has_send_recv<C>;
      case Verb::split: return has_split<C>;
      case Verb::create_group: return has_create_group<C>;
      case Verb::duplicate: return has_duplicate<C>;
      case Verb::set_deadline: return has_deadline<C>;
      case Verb::abort: return has_abort<C>;
    }
    return false;
  }

  std::chrono::nanoseconds deadline() const override {
    if constexpr (has_deadline<C>)
      return comm_->deadline();
    else
      missing(Verb::set_deadline);
  }
  void set_deadline(std::chrono::nanoseconds time) override {
    if constexpr (has_deadline<C>)
      comm_->set_deadline(time);
    else
      missing(Verb::set_deadline);
  }
  void abort(std::string_view cause) override {
    if constexpr (has_abort<C>)
      comm_->abort(cause);
    else
      missing(Verb::abort);
  }

  void barrier() override {
    if constexpr (has_barrier<C>)
      comm_->do_barrier();
    else
      missing(Verb::barrier);
  }
  void broadcast(const buffer& data, int root) override {
    if constexpr (has_broadcast<C>)
      comm_->do_broadcast(data, root);
    else
      missing(Verb::broadcast);
  }
  void all_reduce(const const_buffer& in, const buffer& out, ReduceOp op) override {
    if constexpr (has_all_reduce<C>)
      comm_->do_all_reduce(in, out, op);
    else
      missing(Verb::all_reduce);
  }
  void all_gather(const const_buffer& in, const buffer& out) override {
    if constexpr (has_all_gather<C>)
      comm_->do_all_gather(in, out);
    else
      missing(Verb::all_gather);
  }
  void all_gather_v(const const_buffer& in, const buffer& out, std::span<const std::size_t> counts) override {
    if constexpr (has_all_gather_v<C>)
      comm_->do_all_gather_v(in, out, counts);
    else
      missing(Verb::all_gather_v);
  }
  void all_to_all_v(const const_buffer& in, std::span<const std::size_t> send_counts, const buffer& out,
                    std::span<const std::size_t> recv_counts) override {
    if constexpr (has_all_to_all_v<C>)
      comm_->do_all_to_all_v(in, send_counts, out, recv_counts);
    else
      missing(Verb::all_to_all_v);
  }
  void send(const const_buffer& data, int destination) override {
    if constexpr (has_send_recv<C>)
      comm_->do_send(data, destination);
    else
      missing(Verb::send);
  }
  void recv(const buffer& data, int source) override {
    if constexpr (has_send_recv<C>)
      comm_->do_recv(data, source);
    else
      missing(Verb::recv);
  }

  std::shared_ptr<any_backend> split(int color, int key) override {
    if constexpr (has_split<C>)
      return own(comm_->split(color, key));
    else
      missing(Verb::split);
  }
  std::shared_ptr<any_backend> create_group(std::span<const int> members, std::string_view name) override {
    if constexpr (has_create_group<C>)
      return own(comm_->create_group(members, name));
    else
      missing(Verb::create_group);
  }
  std::shared_ptr<any_backend> duplicate() override {
    if constexpr (has_duplicate<C>)
      return own(comm_->duplicate());
    else
      missing(Verb::duplicate);
  }

  std::shared_ptr<any_backend> on(any_stream stream) override {
    if constexpr (has_streams<C>) {
      auto&& ordered = comm_->on(stream_cast<typename C::stream_type>::from(stream));
      using Ordered = std::remove_cvref_t<decltype(ordered)>;
      // The handle refers to the communicator, which therefore lives as long.
      struct Bound {
        std::shared_ptr<C> owner;
        Ordered handle;
      };
      auto bound = std::make_shared<Bound>(Bound{comm_, std::forward<decltype(ordered)>(ordered)});
      return std::make_shared<backend_model<Ordered>>(std::shared_ptr<Ordered>(bound, &bound->handle));
    } else {
      return nullptr;
    }
  }

 private:
  template <class Other>
  static std::shared_ptr<any_backend> own(Other&& comm) {
    using Kept = std::remove_cvref_t<Other>;
    return std::make_shared<backend_model<Kept>>(std::make_shared<Kept>(std::forward<Other>(comm)));
  }

  [[noreturn]] void missing(Verb verb) const {
    throw UnsupportedError(concat(mgroups::name(verb), " on group ", name(),
                                  ": the backend of this communicator does not have it; use one that does"),
                           {std::string(mgroups::name(verb)), std::string(name())});
  }

  std::shared_ptr<C> comm_;
};

}  // namespace detail
MGROUPS_END_NAMESPACE
