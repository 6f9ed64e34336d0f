// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>

#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/comm/concepts.hpp>
#include <mgroups/comm/solo.hpp>
#include <mgroups/comm/threads.hpp>

// A communicator that lacks exactly one member models everything but what needs that member.

namespace {

namespace mg = mgroups;

enum class Lacks {
  nothing,
  rank,
  size,
  name,
  is_member,
  reaches,
  on,
  synchronize,
  barrier,
  broadcast,
  all_reduce,
  all_gather,
  all_gather_v,
  all_to_all_v,
  send,
  recv,
  split,
  create_group,
  duplicate,
  deadline,
  set_deadline,
  abort,
};

template <Lacks L>
struct Archetype {
  using stream_type = mg::no_stream;
  static constexpr mg::MemoryReach memory_reach = mg::MemoryReach::host;

  int rank() const requires(L != Lacks::rank);
  int size() const requires(L != Lacks::size);
  std::string_view name() const requires(L != Lacks::name);
  bool is_member() const requires(L != Lacks::is_member);
  bool reaches(mg::MemorySpace) const requires(L != Lacks::reaches);
  Archetype& on(stream_type) requires(L != Lacks::on);
  void synchronize() requires(L != Lacks::synchronize);

  void do_barrier() requires(L != Lacks::barrier);
  void do_broadcast(mg::buffer, int) requires(L != Lacks::broadcast);
  void do_all_reduce(mg::const_buffer, mg::buffer, mg::ReduceOp) requires(L != Lacks::all_reduce);
  void do_all_gather(mg::const_buffer, mg::buffer) requires(L != Lacks::all_gather);
  void do_all_gather_v(mg::const_buffer, mg::buffer, std::span<const std::size_t>) requires(L != Lacks::all_gather_v);
  void do_all_to_all_v(mg::const_buffer, std::span<const std::size_t>, mg::buffer,
                       std::span<const std::size_t>) requires(L != Lacks::all_to_all_v);
  void do_send(mg::const_buffer, int) requires(L != Lacks::send);
  void do_recv(mg::buffer, int) requires(L != Lacks::recv);
  Archetype split(int, int) requires(L != Lacks::split);
  Archetype create_group(std::span<const int>, std::string_view) requires(L != Lacks::create_group);
  Archetype duplicate() requires(L != Lacks::duplicate);
  std::chrono::nanoseconds deadline() const requires(L != Lacks::deadline);
  void set_deadline(std::chrono::nanoseconds) requires(L != Lacks::set_deadline);
  void abort(std::string_view) requires(L != Lacks::abort);
};

template <class C>
constexpr bool has_verbs = mg::has_barrier<C>&& mg::has_broadcast<C>&& mg::has_all_reduce<C>&& mg::has_all_gather<C>&&
    mg::has_all_gather_v<C>&& mg::has_all_to_all_v<C>&& mg::has_send_recv<C>;

using Full = Archetype<Lacks::nothing>;
static_assert(mg::communicator<Full> && has_verbs<Full> && mg::has_split<Full> && mg::has_create_group<Full> &&
              mg::has_duplicate<Full> && mg::has_deadline<Full> && mg::has_abort<Full> && !mg::has_streams<Full>);

static_assert(!mg::communicator<Archetype<Lacks::rank>>);
static_assert(!mg::communicator<Archetype<Lacks::size>>);
static_assert(!mg::communicator<Archetype<Lacks::name>>);
static_assert(!mg::communicator<Archetype<Lacks::is_member>>);
static_assert(!mg::communicator<Archetype<Lacks::reaches>>);
static_assert(!mg::communicator<Archetype<Lacks::on>>);
static_assert(!mg::communicator<Archetype<Lacks::synchronize>>);
static_assert(has_verbs<Archetype<Lacks::rank>>);

static_assert(!mg::has_barrier<Archetype<Lacks::barrier>> && mg::communicator<Archetype<Lacks::barrier>>);
static_assert(!mg::has_broadcast<Archetype<Lacks::broadcast>> && mg::communicator<Archetype<Lacks::broadcast>>);
static_assert(!mg::has_all_reduce<Archetype<Lacks::all_reduce>> && mg::communicator<Archetype<Lacks::all_reduce>>);
static_assert(!mg::has_all_gather<Archetype<Lacks::all_gather>> && mg::has_all_gather_v<Archetype<Lacks::all_gather>>);
static_assert(!mg::has_all_gather_v<Archetype<Lacks::all_gather_v>> && mg::has_all_gather<Archetype<Lacks::all_gather_v>>);
static_assert(!mg::has_all_to_all_v<Archetype<Lacks::all_to_all_v>> && mg::communicator<Archetype<Lacks::all_to_all_v>>);
static_assert(!mg::has_send_recv<Archetype<Lacks::send>> && !mg::has_send_recv<Archetype<Lacks::recv>>);
static_assert(!mg::has_split<Archetype<Lacks::split>> && mg::has_duplicate<Archetype<Lacks::split>>);
static_assert(!mg::has_create_group<Archetype<Lacks::create_group>> && mg::has_split<Archetype<Lacks::create_group>>);
static_assert(!mg::has_duplicate<Archetype<Lacks::duplicate>> && mg::has_split<Archetype<Lacks::duplicate>>);
static_assert(!mg::has_deadline<Archetype<Lacks::deadline>> && !mg::has_deadline<Archetype<Lacks::set_deadline>>);
static_assert(!mg::has_abort<Archetype<Lacks::abort>> && mg::communicator<Archetype<Lacks::abort>>);
// A group of something that is no communicator is none.
static_assert(!mg::has_split<Archetype<Lacks::rank>> && !mg::has_create_group<Archetype<Lacks::rank>>);

template <class C>
constexpr bool is_whole =
    mg::communicator<C>&& has_verbs<C>&& mg::has_split<C>&& mg::has_create_group<C>&& mg::has_duplicate<C>;
static_assert(is_whole<mg::solo_comm> && is_whole<mg::thread_comm> && is_whole<mg::any_communicator>);
static_assert(mg::has_deadline<mg::thread_comm> && mg::has_abort<mg::thread_comm> && !mg::has_streams<mg::thread_comm>);
static_assert(mg::has_streams<mg::any_communicator>);

static_assert(mg::may_reach(mg::MemoryReach::host, mg::MemorySpace::host) &&
              !mg::may_reach(mg::MemoryReach::host, mg::MemorySpace::device) &&
              mg::may_reach(mg::MemoryReach::host_and_device, mg::MemorySpace::device) &&
              mg::may_reach(mg::MemoryReach::run_time, mg::MemorySpace::device) &&
              !mg::may_reach(mg::MemoryReach::device, mg::MemorySpace::host));

}  // namespace

TEST_CASE("hosts take any stream and order nothing by it") {
  mg::solo_comm solo;
  int anything = 0;
  CHECK(&solo.on(nullptr) == &solo);
  CHECK(&solo.on(&anything) == &solo);
  CHECK(&solo.on(mg::any_stream(&anything)) == &solo);
  const mg::no_stream converted = 7;
  CHECK(&solo.on(converted) == &solo);
  solo.synchronize();
}
