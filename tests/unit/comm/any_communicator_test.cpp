// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/comm/solo.hpp>
#include <mgroups/comm/threads.hpp>

namespace mg = mgroups;

namespace {

// A backend with streams and device memory, and no verb but the barrier, which notes the stream that it was ordered on.
struct FakeStream;
using fake_stream_t = FakeStream*;

class OnStream : public mg::verbs<OnStream> {
 public:
  using stream_type = fake_stream_t;
  static constexpr mg::MemoryReach memory_reach = mg::MemoryReach::device;
  OnStream(std::vector<fake_stream_t>& log, fake_stream_t stream) : log_(&log), stream_(stream) {}
  int rank() const { return 0; }
  int size() const { return 1; }
  std::string_view name() const { return "streamed"; }
  bool is_member() const { return true; }
  static bool reaches(mg::MemorySpace space) { return space == mg::MemorySpace::device; }
  OnStream on(fake_stream_t stream) { return {*log_, stream}; }
  void synchronize() {}
  void do_barrier() { log_->push_back(stream_); }
  void do_broadcast(const mg::buffer&, int) { log_->push_back(stream_); }

 private:
  std::vector<fake_stream_t>* log_;
  fake_stream_t stream_;
};

fake_stream_t stream_at(std::uintptr_t address) { return reinterpret_cast<fake_stream_t>(address); }

}  // namespace

TEST_CASE("an empty handle says so") {
  mg::any_communicator none;
  CHECK_FALSE(static_cast<bool>(none));
  CHECK_THROWS_AS((void)none.rank(), mg::InvalidArgument);
  CHECK_THROWS_AS(none.barrier(), mg::InvalidArgument);
}

TEST_CASE("owning, borrowing, and copies of one communicator") {
  mg::any_communicator copy;
  {
    mg::any_communicator own = mg::solo_comm("mine");
    copy = own;
  }
  CHECK(copy.name() == "mine");
  CHECK(copy.size() == 1);
  mg::solo_comm solo("theirs");
  auto borrowed = mg::any_communicator::borrow(solo);
  CHECK(borrowed.name() == "theirs");
  CHECK(mg::any_communicator::borrow(borrowed).name() == "theirs");
  CHECK(borrowed.world_rank(0) == 0);
  static_assert(!std::is_constructible_v<mg::any_communicator, mg::solo_comm&>, "referring is spelled borrow");
}

TEST_CASE("threads behind it: derived communicators outlive the borrowed one") {
  mg::run_threads(3, [](auto& world) {
    mg::any_communicator child;
    {
      auto any = mg::any_communicator::borrow(world);
      child = any.split(0, -any.rank());
      any.set_deadline(std::chrono::seconds(7));
      if (any.deadline() != std::chrono::seconds(7)) throw std::runtime_error("deadline");
    }
    if (child.rank() != 2 - world.rank() || child.world_rank(0) != 2) throw std::runtime_error("order");
    child.duplicate().barrier();
    if (world.split(-1, 0).is_member()) throw std::runtime_error("member");
  });
}

TEST_CASE("memory out of reach is a run-time sentence") {
  mg::run_threads(1, [](auto& world) {
    auto any = mg::any_communicator::borrow(world);
    float x = 1;
    CHECK_THROWS_WITH_AS(
        any.all_reduce(mg::device(&x, 1), mg::sum),
        "all_reduce on group world: device_span given to a communicator that only reaches host memory; use a "
        "communicator of a GPU backend, or copy the elements to the host first",
        mg::UnsupportedError);
  });
}

TEST_CASE("on(stream) orders on the stream and keeps the communicator alive") {
  std::vector<fake_stream_t> log;
  mg::any_communicator handle;
  {
    mg::any_communicator any = OnStream(log, nullptr);
    any.barrier();
    handle = any.on(stream_at(64));
  }
  handle.barrier();
  handle.on(stream_at(128)).barrier();
  handle.on(0).barrier();
  const std::unique_ptr<int> wrapper = std::make_unique<int>(1);  // anything with get()
  handle.on(wrapper).barrier();
  REQUIRE(log.size() == 5);
  CHECK(log[0] == nullptr);
  CHECK(log[1] == stream_at(64));
  CHECK(log[2] == stream_at(128));
  CHECK(log[3] == nullptr);
  CHECK(log[4] == reinterpret_cast<fake_stream_t>(wrapper.get()));

  float x = 0;
  handle.broadcast(mg::device(&x, 1), 0);
  CHECK_THROWS_WITH_AS(
      handle.broadcast(std::span(&x, 1), 0),
      "broadcast on group streamed: host memory given to a communicator that only reaches device memory; pass "
      "mgroups::device(pointer, n), or use a host communicator",
      mg::UnsupportedError);
}

TEST_CASE("what the backend lacks is a run-time sentence") {
  std::vector<fake_stream_t> log;
  mg::any_communicator any = OnStream(log, nullptr);
  CHECK(any.supports(mg::Verb::barrier));
  CHECK_FALSE(any.supports(mg::Verb::all_reduce));
  CHECK_FALSE(any.supports(mg::Verb::abort));
  float x = 0;
  CHECK_THROWS_WITH_AS(any.all_reduce(mg::device(&x, 1), mg::sum),
                       "all_reduce on group streamed: the backend of this communicator does not have it; use one that does",
                       mg::UnsupportedError);
  CHECK_THROWS_AS((void)any.split(0, 0), mg::UnsupportedError);
  CHECK_THROWS_AS((void)any.duplicate(), mg::UnsupportedError);
  CHECK_THROWS_AS((void)any.deadline(), mg::UnsupportedError);
  CHECK_THROWS_AS(any.abort("no"), mg::UnsupportedError);
}
