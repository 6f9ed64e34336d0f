// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/comm/buffer.hpp>
#include <mgroups/comm/concepts.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/half.hpp>
#include <mgroups/core/memory.hpp>

#include "expect.hpp"

// One suite for every backend. A `Backend` runs a function on ranks:
//   static std::vector<int> sizes();                        the numbers of ranks to test (under mpirun: the one there is)
//   template <class F> static void run(int ranks, F f); f(world) on each, `world` being a communicator; rethrows failures
// Element values carry their global index, and results are compared with what a sequential program would have computed.

namespace conformance {

namespace mg = mgroups;

/// The backend, seen through any_communicator.
template <class Backend>
struct Erased {
  static std::vector<int> sizes() { return Backend::sizes(); }
  template <class F>
  static void run(int ranks, F f) {
    Backend::run(ranks, [&](auto& world) {
      auto any = mg::any_communicator::borrow(world);
      f(any);
    });
  }
};

/// All ranks but world rank 0, in reverse order, as a group of its own.
template <class Backend>
struct Subgroup {
  static std::vector<int> sizes() { return Backend::sizes(); }
  template <class F>
  static void run(int ranks, F f) {
    Backend::run(ranks, [&](auto& world) {
      std::vector<int> members;
      for (int r = world.size() - 1; r > 0; --r) members.push_back(r);
      if (world.rank() == 0) return;
      auto group = world.create_group(members, "all but 0");
      expect(group.rank() == world.size() - 1 - world.rank() && group.size() == world.size() - 1, "order of create_group");
      f(group);
    });
  }
};

inline std::int64_t value(int rank, std::size_t i) {
  return std::int64_t{1'000'003} * (rank + 1) + static_cast<std::int64_t>(i);
}

template <class T = std::int64_t>
std::vector<T> values(int rank, std::size_t n) {
  std::vector<T> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<T>(value(rank, i));
  return v;
}

// 0, 1, odd, what fits a slot and just does not, over 1 MiB.
inline constexpr std::size_t counts[] = {0, 1, 7, 128, 129, 150'001};

template <class Comm>
void check_broadcast(Comm& world) {
  for (const std::size_t n : counts) {
    const int step = n > 1000 ? 3 : 1;
    for (int root = 0; root < world.size(); root += step) {
      auto data = values(world.rank(), n);
      world.broadcast(std::span(data), root);
      expect_elements<std::int64_t>(
          data, [&](std::size_t i) { return value(root, i); }, "broadcast", world.rank());
    }
  }
  // What is no tensor element travels too.
  struct Pair {
    std::int16_t a;
    double b;
  };
  std::array<Pair, 3> pairs{};
  if (world.rank() == 0) pairs = {{{1, 1.5}, {2, 2.5}, {3, 3.5}}};
  world.broadcast(pairs, 0);
  expect(pairs[2].a == 3 && pairs[2].b == 3.5, "broadcast of a struct");
}

template <class Comm>
void check_all_reduce(Comm& world) {
  const int ranks = world.size();
  for (const std::size_t n : counts) {
    const auto in = values(world.rank(), n);
    std::vector<std::int64_t> out(n);
    const auto check = [&](mg::ReduceOp op, auto want, std::string_view what) {
      world.all_reduce(in, out, op);
      expect_elements<std::int64_t>(out, want, what, world.rank());
      auto data = in;
      world.all_reduce(std::span{data}, op);
      expect_elements<std::int64_t>(data, want, what, world.rank());
    };
    const auto total = [&](std::size_t i) {
      std::int64_t s = 0;
      for (int r = 0; r < ranks; ++r) s += value(r, i);
      return s;
    };
    check(mg::sum, total, "all_reduce sum");
    check(
        mg::min, [&](std::size_t i) { return value(0, i); }, "all_reduce min");
    check(
        mg::max, [&](std::size_t i) { return value(ranks - 1, i); }, "all_reduce max");
    check(
        mg::avg, [&](std::size_t i) { return total(i) / ranks; }, "all_reduce avg");
  }
  std::vector<float> product(1001, static_cast<float>(world.rank() + 2));
  world.all_reduce(std::span{product}, mg::product);
  float want = 1;
  for (int r = 0; r < ranks; ++r) want *= static_cast<float>(r + 2);
  expect_elements<float>(
      product, [&](std::size_t) { return want; }, "all_reduce product", world.rank());

  std::vector<mg::bfloat16> halves(513, mg::bfloat16(static_cast<float>(world.rank())));
  world.all_reduce(std::span{halves}, mg::sum);
  for (const auto h : halves)
    expect(static_cast<float>(h) == static_cast<float>(ranks * (ranks - 1) / 2), "all_reduce of bfloat16");
}

// Floating sums depend on their order; all ranks hold the same bits all the same.
template <class Comm>
void check_same_bits(Comm& world) {
  for (const std::size_t n : {std::size_t{5}, std::size_t{4099}}) {
    std::vector<float> data(n);
    for (std::size_t i = 0; i < n; ++i) data[i] = 0.1f * static_cast<float>(value(world.rank() * 7, i * i % 9973));
    world.all_reduce(std::span{data}, mg::sum);
    auto first = data;
    world.broadcast(std::span{first}, 0);
    expect(first == data, "all_reduce gives every rank the same bits");
  }
}

template <class Comm>
void check_all_gather(Comm& world) {
  for (const std::size_t n : counts) {
    const auto in = values(world.rank(), n);
    std::vector<std::int64_t> out(n * static_cast<std::size_t>(world.size()), -1);
    const auto want = [&](std::size_t i) { return value(static_cast<int>(i / n), i % n); };
    world.all_gather(in, out);
    expect_elements<std::int64_t>(out, want, "all_gather", world.rank());
    std::vector<std::int64_t> placed(out.size(), -1);
    const auto own = std::span(placed).subspan(static_cast<std::size_t>(world.rank()) * n, n);
    std::copy(in.begin(), in.end(), own.begin());
    world.all_gather(own, placed);
    expect_elements<std::int64_t>(placed, want, "all_gather in place", world.rank());
  }
}

template <class Comm>
void check_all_gather_v(Comm& world) {
  for (const std::size_t scale : {std::size_t{0}, std::size_t{1}, std::size_t{9'001}}) {
    std::vector<std::size_t> parts;
    std::vector<std::int64_t> want;
    for (int r = 0; r < world.size(); ++r) {
      parts.push_back(r % 3 == 1 ? 0 : scale * static_cast<std::size_t>(world.size() - r) + static_cast<std::size_t>(r % 2));
      for (std::size_t i = 0; i < parts.back(); ++i) want.push_back(value(r, i));
    }
    const auto in = values(world.rank(), parts[static_cast<std::size_t>(world.rank())]);
    std::vector<std::int64_t> out(want.size(), -1);
    world.all_gather_v(in, out, parts);
    expect(out == want, "all_gather_v");
  }
}

template <class Comm>
void check_all_to_all_v(Comm& world) {
  const int ranks = world.size(), me = world.rank();
  // Rank s sends (3 s + d) % 5 x scale elements to d: some none, some to oneself.
  const auto amount = [](int s, int d, std::size_t scale) { return static_cast<std::size_t>((3 * s + d) % 5) * scale; };
  const auto message = [](int s, int d, std::size_t i) { return value(s * 100 + d, i); };
  for (const std::size_t scale : {std::size_t{0}, std::size_t{1}, std::size_t{20'011}}) {
    std::vector<std::size_t> sends, receives;
    std::vector<std::int64_t> in, want;
    for (int r = 0; r < ranks; ++r) {
      sends.push_back(amount(me, r, scale));
      receives.push_back(amount(r, me, scale));
      for (std::size_t i = 0; i < sends.back(); ++i) in.push_back(message(me, r, i));
      for (std::size_t i = 0; i < receives.back(); ++i) want.push_back(message(r, me, i));
    }
    std::vector<std::int64_t> out(want.size(), -1);
    world.all_to_all_v(in, sends, out, receives);
    expect(out == want, "all_to_all_v");
  }
}

template <class Comm>
void check_send_recv(Comm& world) {
  const int ranks = world.size(), me = world.rank();
  if (ranks == 1) return;
  const int next = (me + 1) % ranks, previous = (me + ranks - 1) % ranks;
  for (const std::size_t n : counts) {
    // A ring; rank 0 sends first so that it does not matter whether a send waits for its receiver.
    const auto out = values(me, n);
    std::vector<std::int64_t> in(n, -1);
    if (me == 0) world.send(out, next);
    world.recv(std::span(in), previous);
    if (me != 0) world.send(out, next);
    expect_elements<std::int64_t>(
        in, [&](std::size_t i) { return value(previous, i); }, "recv", me);
  }
  // In order per pair.
  for (int k = 0; k < 20; ++k) {
    std::int64_t x = k;
    if (me == 0) world.send(std::span(&x, 1), ranks - 1);
    if (me != ranks - 1) continue;
    x = -1;
    world.recv(std::span(&x, 1), 0);
    expect(x == k, "messages arrive in order");
  }
}

template <class Comm>
void check_split(Comm& world) {
  // Keys that are no ranks: larger, negative, equal.
  const int color = world.rank() % 3 == 2 ? mg::no_color : world.rank() % 3;
  auto part = world.split(color, 1000 - 7 * world.rank());
  expect(part.is_member() == (color >= 0), "a negative colour joins no group");
  if (!part.is_member()) {
    expect_throws<mg::NotAMember>([&] { (void)part.rank(); }, "not a member", "rank of a handle outside");
    expect_throws<mg::NotAMember>([&] { part.barrier(); }, "not a member", "verb of a handle outside");
  } else {
    std::vector<int> want;
    for (int r = world.size() - 1; r >= 0; --r) {
      if (r % 3 == color) want.push_back(r);
    }
    std::vector<int> got(static_cast<std::size_t>(part.size()), -1);
    const int me = world.rank();
    part.all_gather(std::span(&me, 1), got);
    expect(got == want, "split orders by key");
  }
  auto same = world.split(5, 0);
  expect(same.size() == world.size() && same.rank() == world.rank(), "equal keys keep the order");
  auto copy = world.duplicate();
  expect(copy.size() == world.size() && copy.rank() == world.rank(), "duplicate keeps the order");
  copy.barrier();
}

template <class Comm>
void check_create_group(Comm& world) {
  const int ranks = world.size(), me = world.rank();
  for (int round = 0; round < 3; ++round) {
    // Disjoint pairs at once, then the same members again in the other order.
    const int base = me / 2 * 2;
    std::vector<int> members{base};
    if (base + 1 < ranks) members.insert(members.begin() + round % 2, base + 1);
    auto pair = world.create_group(members, "pair");
    expect(members[static_cast<std::size_t>(pair.rank())] == me, "create_group keeps the given order");
    std::int64_t x = me;
    pair.all_reduce(std::span(&x, 1), mg::sum);
    expect(x == (members.size() == 2 ? 2 * base + 1 : base), "a verb of a group concerns its members alone");
  }
  // Overlapping groups, each made by its members while the others do something else.
  for (int first = 0; first + 2 < ranks; ++first) {
    if (me < first || me > first + 2) continue;
    const std::vector<int> members{first + 1, first + 2, first};
    auto group = world.create_group(members, "triple");
    std::vector<int> got(3);
    group.all_gather(std::span(&me, 1), got);
    expect(got == members, "all_gather in a group");
  }
  world.barrier();
  expect_throws<mg::InvalidArgument>(
      [&] {
        (void)world.create_group(std::vector<int>{me, me}, "twice");
      },
      "listed twice", "a member given twice");
  expect_throws<mg::InvalidArgument>(
      [&] {
        (void)world.create_group(std::vector<int>{me, ranks}, "outside");
      },
      "does not exist", "a member out of range");
  expect_throws<mg::InvalidArgument>([&] { (void)world.create_group(std::vector<int>{}, "empty"); }, "no members",
                                     "a group of nobody");
  if (ranks > 1) {
    expect_throws<mg::NotAMember>([&] { (void)world.create_group(std::vector<int>{(me + 1) % ranks}, "others"); },
                                  "not among the members", "a group of others");
  }
}

// Refused by each rank alone, before anything is sent.
template <class Comm>
void check_arguments(Comm& world) {
  const int ranks = world.size(), me = world.rank();
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<float> a(4), b(4), wide(4 * n + 1);
  std::vector<std::size_t> ones(n, 1), short_counts(n + 1, 1);
  using Bad = mg::InvalidArgument;
  expect_throws<Bad>([&] { world.broadcast(a, ranks); }, "root", "root too high");
  expect_throws<Bad>([&] { world.broadcast(a, -1); }, "root -1 does not exist", "negative root");
  expect_throws<Bad>([&] { world.all_reduce(std::span(a).first(3), b, mg::sum); }, "the output holds 4", "unequal sizes");
  expect_throws<Bad>([&] { world.all_reduce(std::span(a).first(3), std::span(a).last(3), mg::sum); }, "overlap", "overlap");
  expect_throws<Bad>([&] { world.all_gather(a, wide); }, "the output holds", "output of the wrong size");
  expect_throws<Bad>(
      [&] {
        world.all_gather(std::span(wide).subspan(1 + 4 * static_cast<std::size_t>(me), 4), std::span(wide).first(4 * n));
      },
      "overlap", "all_gather out of place");
  expect_throws<Bad>([&] { world.all_gather_v(std::span(a).first(1), std::span(wide).first(n), short_counts); },
                     "one per rank", "too many counts");
  expect_throws<Bad>([&] { world.all_gather_v(a, std::span(wide).first(n), ones); }, "gives 4 elements", "own count");
  expect_throws<Bad>([&] { world.all_to_all_v(wide, ones, std::span(b).first(0), ones); }, "add up to", "counts and buffer");
  expect_throws<Bad>([&] { world.send(a, me); }, "cannot be its own destination", "a message to oneself");
  expect_throws<Bad>([&] { world.recv(a, ranks); }, "source", "source out of range");
  expect_throws<Bad>([&] { world.broadcast(std::span(static_cast<float*>(nullptr), 3), 0); }, "null pointer", "null buffer");
  bool flag = true;
  expect_throws<mg::UnsupportedError>([&] { world.all_reduce(std::span(&flag, 1), mg::avg); }, "bool has no avg",
                                      "avg of bool");
  world.barrier();
}

template <class Comm>
void check_host_rules(Comm& world) {
  static_assert(mg::communicator<Comm>);
  expect(world.reaches(mg::MemorySpace::host), "host memory is reached");
  auto&& ordered = world.on(nullptr);
  ordered.barrier();
  world.synchronize();
  expect(!std::string(world.name()).empty(), "it has a name");
}

/// Everything, on every number of ranks.
template <class Backend>
void run_conformance() {
  for (const int ranks : Backend::sizes()) {
    Backend::run(ranks, [](auto& world) {
      check_host_rules(world);
      world.barrier();
      check_broadcast(world);
      check_all_reduce(world);
      check_same_bits(world);
      check_all_gather(world);
      check_all_gather_v(world);
      check_all_to_all_v(world);
      check_send_recv(world);
      check_split(world);
      check_create_group(world);
      check_arguments(world);
    });
  }
}

}  // namespace conformance
