// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/comm/verbs.hpp>

namespace mg = mgroups;

namespace {

// Rank 1 of 3, which notes what gets through the entry checks.
class Probe : public mg::verbs<Probe>, public mg::host_memory_only<Probe> {
 public:
  [[nodiscard]] int rank() const { return 1; }
  [[nodiscard]] int size() const { return 3; }
  [[nodiscard]] std::string_view name() const { return "tp"; }
  [[nodiscard]] bool is_member() const { return true; }
  [[nodiscard]] int world_rank(int rank) const { return 10 + rank; }

  void do_barrier() { ++calls; }
  void do_broadcast(const mg::buffer& data, int) { note(data, data); }
  void do_all_reduce(const mg::const_buffer& from, const mg::buffer& to, mg::ReduceOp) { note(from, to); }
  void do_all_gather(const mg::const_buffer& from, const mg::buffer& to) { note(from, to); }
  void do_send(const mg::const_buffer& from, int) { note(from, {}); }
  void do_recv(const mg::buffer& to, int) { note({}, to); }

  int calls = 0;
  mg::const_buffer in;
  mg::buffer out;

 private:
  void note(const mg::const_buffer& from, const mg::buffer& to) {
    ++calls;
    in = from;
    out = to;
  }
};

}  // namespace

TEST_CASE("spans, containers and arrays become buffers of elements") {
  Probe probe;
  std::vector<float> values(5);
  probe.all_reduce(std::span{values}, mg::sum);
  CHECK(probe.in.data == values.data());
  CHECK(probe.out.data == values.data());
  CHECK(probe.out.count == 5);
  CHECK(probe.out.type == mg::ElementType(mg::DType::float32));
  probe.broadcast(values, 2);
  CHECK(probe.out.count == 5);
  std::array<std::byte, 3> bytes{};
  probe.send(bytes, 0);
  CHECK(probe.in.count == 3);
  CHECK(probe.in.type == mg::ElementType::opaque(1));
  int plain[4] = {};
  probe.recv(plain, 2);
  CHECK(probe.out.count == 4);
  const std::vector<float> in(2);
  std::vector<float> all(6);
  probe.all_gather(in, std::span(all));
  CHECK(probe.in.data == in.data());
  probe.all_gather(std::span(all).subspan(2, 2), all);  // in place
  CHECK(probe.calls == 6);
}

TEST_CASE("a refused call says what, where and why, and sends nothing") {
  Probe probe;
  std::vector<float> values(5), all(6);
  try {
    probe.broadcast(values, 3);
    FAIL("not refused");
  } catch (const mg::InvalidArgument& e) {
    CHECK(std::string(e.what()) == "broadcast on group tp: root 3 does not exist; its ranks are 0 to 2");
    CHECK(e.context().verb == "broadcast");
    CHECK(e.context().group == "tp");
    CHECK(e.context().rank == 11);
  }
  CHECK_THROWS_WITH_AS(probe.all_gather(values, all),
                       "all_gather on group tp: the output holds 6 elements; 3 ranks x 5 elements of input need 3 x 5",
                       mg::InvalidArgument);
  CHECK_THROWS_WITH_AS(
      probe.all_gather(std::span(all).first(2), all),
      "all_gather on group tp: input and output overlap without being in place; in place means that the input "
      "starts at element 2 of the output",
      mg::InvalidArgument);
  CHECK_THROWS_WITH_AS(
      probe.send(values, 1),
      "send on group tp: rank 1 cannot be its own destination, since a send waits for its receiver; copy the "
      "elements instead",
      mg::InvalidArgument);
  CHECK(probe.calls == 0);
}

TEST_CASE("element counts near the limit of size_t are no small counts") {
  // 3 x (2^64 / 3 + 1) wraps around to a small number.
  const mg::const_buffer huge(nullptr, static_cast<std::size_t>(-1) / 3 + 1, mg::ElementType());
  const mg::buffer small(nullptr, 2, mg::ElementType());
  CHECK(mg::detail::gathered_count_fault(huge, small, 3));
  const std::size_t wrapping[] = {static_cast<std::size_t>(-1), 3};
  CHECK(mg::detail::counts_fault("send", wrapping, 2, 2));
}
