// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/core/slabs.hpp>

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

namespace mg = mgroups;

TEST_CASE("slabs visit every element in row-major order, within the limit") {
  for (const mg::Dims& shape :
       {mg::Dims{}, mg::Dims{7}, mg::Dims{3, 5}, mg::Dims{2, 1, 4}, mg::Dims{1, 1}, mg::Dims{3, 2, 2, 3}}) {
    const mg::Dims strides = mg::row_major_strides(shape);
    for (std::int64_t limit = 1; limit <= 40; ++limit) {
      std::int64_t next = 0;
      mg::for_each_slab(mg::whole(shape), limit, [&](const mg::Box& part) {
        REQUIRE(part.volume() <= limit);
        REQUIRE_FALSE(mg::box_fault(part, shape));
        for (std::int64_t i = 0; i < part.volume(); ++i) {
          std::int64_t rest = i, at = 0;
          for (int axis = part.rank() - 1; axis >= 0; --axis) {
            at += (part.offsets[axis] + rest % part.sizes[axis]) * strides[axis];
            rest /= part.sizes[axis];
          }
          REQUIRE(at == next++);
        }
      });
      CHECK(next == mg::numel(shape));
    }
  }
}

TEST_CASE("slabs of a box that does not begin at zero stay in it") {
  const mg::Box box{{2, 3}, {2, 4}};
  std::int64_t elements = 0;
  mg::for_each_slab(box, 3, [&](const mg::Box& part) {
    REQUIRE(mg::intersection(part, box) == part);
    elements += part.volume();
  });
  CHECK(elements == 8);
}

TEST_CASE("an empty box has no slab") {
  mg::for_each_slab(mg::whole({3, 0}), 4, [](const mg::Box&) { FAIL("called"); });
}
