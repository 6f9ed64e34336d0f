// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/core/box.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include <mgroups/core/error.hpp>

namespace mg = mgroups;
using mg::Box;
using mg::Dims;

namespace {
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
}

TEST_CASE("volume, order and text") {
  CHECK(Box{}.volume() == 1);
  CHECK(Box{}.rank() == 0);
  CHECK(!Box{}.empty());
  CHECK(Box{{3}, {0}}.empty());
  CHECK(Box{{1, 2}, {3, 4}}.volume() == 12);
  CHECK(Box{{0, 0}, {1, 1}} < Box{{0, 1}, {1, 1}});
  CHECK(Box{{0}, {1}} < Box{{0}, {2}});
  CHECK(mg::whole(Dims{4, 5}) == Box{{0, 0}, {4, 5}});
  CHECK(mg::whole(Dims{}) == Box{});
  CHECK(mg::to_string(Box{{0, 3}, {2, 2}}) == "[0:2, 3:5]");
  CHECK(mg::to_string(Box{}) == "[]");
}

TEST_CASE("intersection") {
  CHECK(mg::intersection(Box{{0, 0}, {4, 4}}, Box{{2, 3}, {5, 5}}) == Box{{2, 3}, {2, 1}});
  CHECK(mg::intersection(Box{{0}, {4}}, Box{{0}, {4}}) == Box{{0}, {4}});
  CHECK(!mg::intersection(Box{{0}, {4}}, Box{{4}, {2}}));
  CHECK(!mg::intersection(Box{{0, 0}, {4, 4}}, Box{{1, 4}, {1, 1}}));
  CHECK(!mg::intersection(Box{{0}, {4}}, Box{{2}, {0}}));
  CHECK(mg::intersection(Box{}, Box{}) == Box{});
}

TEST_CASE("intersection agrees with counting the common cells") {
  for (std::int64_t a = 0; a < 6; ++a) {
    for (std::int64_t b = 0; b < 6; ++b) {
      for (std::int64_t n = 0; n < 5; ++n) {
        for (std::int64_t m = 0; m < 5; ++m) {
          std::int64_t common = 0;
          for (std::int64_t cell = 0; cell < 12; ++cell) common += cell >= a && cell < a + n && cell >= b && cell < b + m;
          const auto found = mg::intersection(Box{{a}, {n}}, Box{{b}, {m}});
          REQUIRE((found ? found->volume() : 0) == common);
          if (found) REQUIRE(found->offsets[0] == std::max(a, b));
        }
      }
    }
  }
}

TEST_CASE("coordinates relative to an outer box") {
  CHECK(mg::relative_to(Box{{5, 7}, {2, 3}}, Box{{4, 7}, {9, 9}}) == Box{{1, 0}, {2, 3}});
}

TEST_CASE("a box that is no part of a shape has a fault that says why") {
  CHECK(!mg::box_fault(Box{{0, 0}, {4, 5}}, Dims{4, 5}));
  CHECK(!mg::box_fault(Box{{4, 5}, {0, 0}}, Dims{4, 5}));
  CHECK(!mg::box_fault(Box{}, Dims{}));
  CHECK(!mg::box_fault(Box{{most}, {0}}, Dims{most}));
  CHECK(mg::box_fault(Box{{0}, {4}}, Dims{4, 5}) == "offsets [0] and sizes [4] do not have the 2 axes of shape [4, 5]");
  CHECK(mg::box_fault(Box{{0, 1}, {4, 5}}, Dims{4, 5}) ==
        "axis 1 of the box at [0, 1] with sizes [4, 5] leaves shape [4, 5]");
  CHECK(mg::box_fault(Box{{-1}, {2}}, Dims{4}) == "offsets [-1] and sizes [2] hold a negative number");
  CHECK(mg::box_fault(Box{{0}, {-2}}, Dims{4}));
  CHECK(mg::box_fault(Box{{most}, {most}}, Dims{most}));
  CHECK(mg::box_fault(Box{{5}, {0}}, Dims{4}));
  CHECK(mg::box_fault(Box{{0}, {0, 0}}, Dims{4}));
}

TEST_CASE("split_range cuts evenly, in order, without gaps") {
  for (std::int64_t size = 0; size < 40; ++size) {
    for (std::int64_t parts = 1; parts < 12; ++parts) {
      std::int64_t end = 0;
      for (std::int64_t index = 0; index < parts; ++index) {
        const mg::IndexRange range = mg::split_range(size, parts, index);
        REQUIRE(range.begin == end);
        REQUIRE(range.size() == size / parts + (index < size % parts ? 1 : 0));
        if (size % parts == 0) REQUIRE(range.begin == index * (size / parts));
        end = range.end;
      }
      REQUIRE(end == size);
    }
  }
  CHECK(mg::split_range(most, 2, 1) == mg::IndexRange{most / 2 + 1, most});
  CHECK(mg::split_range(3, most, 2) == mg::IndexRange{2, 3});
  CHECK(mg::split_range(3, most, most - 1) == mg::IndexRange{3, 3});
}

TEST_CASE("split_range refuses parts that do not exist") {
  CHECK_THROWS_WITH_AS((void)mg::split_range(10, 4, 4),
                       "part 4 of 4 of 10 elements does not exist; parts are numbered from 0 and sizes are not negative",
                       mg::InvalidArgument);
  CHECK_THROWS_AS((void)mg::split_range(10, 4, -1), mg::InvalidArgument);
  CHECK_THROWS_AS((void)mg::split_range(10, 0, 0), mg::InvalidArgument);
  CHECK_THROWS_AS((void)mg::split_range(-1, 2, 0), mg::InvalidArgument);
}
