// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/core/tiling.hpp>

#include <cstdint>
#include <random>
#include <vector>

#include <doctest/doctest.h>

namespace mg = mgroups;

namespace {

mg::BoxList list_of(int rank, const std::vector<mg::Box>& boxes) {
  mg::BoxList list(rank);
  for (const mg::Box& box : boxes) list.push_back(box);
  return list;
}

// Cuts a box in two at random until `pieces` are there: any tiling that straight cuts can make.
std::vector<mg::Box> random_cuts(const mg::Dims& shape, int pieces, std::mt19937& random) {
  std::vector<mg::Box> boxes{mg::whole(shape)};
  for (int tries = 0; static_cast<int>(boxes.size()) < pieces && tries < 1000; ++tries) {
    mg::Box& victim = boxes[random() % boxes.size()];
    const int axis = static_cast<int>(random() % static_cast<unsigned>(shape.rank()));
    if (victim.sizes[axis] < 2) continue;
    const std::int64_t cut = 1 + static_cast<std::int64_t>(random()) % (victim.sizes[axis] - 1);
    mg::Box rest = victim;
    rest.offsets[axis] += cut;
    rest.sizes[axis] -= cut;
    victim.sizes[axis] = cut;
    boxes.push_back(rest);
  }
  return boxes;
}

// Counts coverage element by element.
bool covers_once(const std::vector<mg::Box>& boxes, const mg::Dims& shape) {
  std::vector<int> count(static_cast<std::size_t>(mg::numel(shape)), 0);
  const mg::Dims strides = mg::row_major_strides(shape);
  for (const mg::Box& box : boxes) {
    for (std::int64_t i = 0; i < box.volume(); ++i) {
      std::int64_t rest = i, at = 0;
      for (int axis = box.rank() - 1; axis >= 0; --axis) {
        at += (box.offsets[axis] + rest % box.sizes[axis]) * strides[axis];
        rest /= box.sizes[axis];
      }
      ++count[static_cast<std::size_t>(at)];
    }
  }
  for (const int n : count) {
    if (n != 1) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("a zero-dimensional tensor is covered by exactly one box") {
  CHECK_FALSE(mg::find_tiling_fault(list_of(0, {mg::Box{}}), {}));
  const auto none = mg::find_tiling_fault(list_of(0, {}), {});
  REQUIRE(none);
  CHECK_FALSE(none->overlap);
  const auto two = mg::find_tiling_fault(list_of(0, {mg::Box{}, mg::Box{}}), {});
  REQUIRE(two);
  CHECK(two->overlap);
}

TEST_CASE("boxes without elements cover nothing and disturb nothing") {
  CHECK_FALSE(mg::find_tiling_fault(list_of(2, {{{0, 0}, {2, 3}}, {{1, 3}, {1, 0}}, {{2, 0}, {0, 3}}}), {2, 3}));
  CHECK_FALSE(mg::find_tiling_fault(list_of(2, {}), {0, 3}));
}

TEST_CASE("holes and overlaps are named") {
  const auto hole = mg::find_tiling_fault(list_of(2, {{{0, 0}, {1, 128}}}), {2, 128});
  REQUIRE(hole);
  CHECK_FALSE(hole->overlap);
  CHECK(hole->where == mg::Box{{1, 0}, {1, 128}});

  const auto overlap = mg::find_tiling_fault(list_of(1, {{{5}, {5}}, {{0}, {4}}, {{3}, {2}}}), {10});
  REQUIRE(overlap);
  CHECK(overlap->overlap);
  CHECK(overlap->first == 1);
  CHECK(overlap->second == 2);
  CHECK(overlap->where == mg::Box{{3}, {1}});
}

TEST_CASE("a pinwheel, which no straight cut divides, is a tiling") {
  const std::vector<mg::Box> pinwheel{
      {{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}};
  CHECK_FALSE(mg::find_tiling_fault(list_of(2, pinwheel), {3, 3}));
  auto shifted = pinwheel;
  shifted[4] = {{1, 2}, {1, 1}};
  const auto fault = mg::find_tiling_fault(list_of(2, shifted), {3, 3});
  REQUIRE(fault);
  CHECK(fault->overlap);
}

TEST_CASE("random tilings: the verdict equals counting every element") {
  std::mt19937 random(7);
  int faulty = 0;
  for (int round = 0; round < 2000; ++round) {
    mg::Dims shape;
    const int rank = 1 + static_cast<int>(random() % 4);
    for (int axis = 0; axis < rank; ++axis) shape.push_back(1 + static_cast<std::int64_t>(random() % 7));
    auto boxes = random_cuts(shape, 1 + static_cast<int>(random() % 12), random);
    std::shuffle(boxes.begin(), boxes.end(), random);
    if (round % 2 == 1) {
      mg::Box& box = boxes[random() % boxes.size()];
      const int axis = static_cast<int>(random() % static_cast<unsigned>(rank));
      switch (random() % 3) {
        case 0: boxes.push_back(box); break;
        case 1: box.sizes[axis] -= 1; break;
        default: box.offsets[axis] = 0; box.sizes[axis] = shape[axis];
      }
    }
    const bool sound = covers_once(boxes, shape);
    faulty += sound ? 0 : 1;
    const auto fault = mg::find_tiling_fault(list_of(rank, boxes), shape);
    REQUIRE(fault.has_value() != sound);
    if (fault && fault->overlap) {
      REQUIRE(mg::intersection(boxes[fault->first], boxes[fault->second]) == fault->where);
    } else if (fault) {
      REQUIRE_FALSE(fault->where.empty());
      for (const mg::Box& box : boxes) REQUIRE_FALSE(mg::intersection(box, fault->where));
    }
  }
  CHECK(faulty > 500);
}
