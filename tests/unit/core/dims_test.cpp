// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/core/dims.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include <mgroups/core/error.hpp>

namespace mg = mgroups;
using mg::Dims;

static_assert(Dims{2, 3}[1] == 3 && Dims{}.empty() && Dims::filled(3, 7) == Dims{7, 7, 7});
static_assert(mg::numel(Dims{}) == 1 && mg::numel(Dims{4, 0, 3}) == 0);

namespace {
constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t root = 3037000499;  // floor of the square root of 2^63 - 1
}  // namespace

TEST_CASE("Dims is a value") {
  Dims dims{2, 3, 4};
  CHECK(dims.rank() == 3);
  CHECK(dims.size() == 3);
  dims[1] = 5;
  dims.push_back(-1);
  CHECK(dims == Dims{2, 5, 4, -1});
  CHECK(std::vector<std::int64_t>(dims.begin(), dims.end()) == std::vector<std::int64_t>{2, 5, 4, -1});
  CHECK(mg::to_string(dims) == "[2, 5, 4, -1]");
  CHECK(mg::to_string(Dims{}) == "[]");
  const std::vector<std::int64_t> values{1, 2};
  CHECK(Dims(values) == Dims{1, 2});
}

TEST_CASE("Dims are ordered lexicographically, and what lies behind the rank does not count") {
  CHECK(Dims{1, 2} < Dims{1, 3});
  CHECK(Dims{1, 2} < Dims{1, 2, 0});
  CHECK(Dims{} < Dims{0});
  CHECK(Dims{2} > Dims{1, 9});
  CHECK(Dims{1} != Dims{1, 0});
}

TEST_CASE("sixteen axes, not seventeen") {
  Dims dims = Dims::filled(mg::max_rank, 2);
  CHECK(mg::numel(dims) == 65536);
  CHECK(mg::to_string(dims) == "[2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]");
  CHECK_THROWS_WITH_AS(dims.push_back(2), "a tensor has more than 16 axes; join some of them", mg::InvalidArgument);
  CHECK(dims.rank() == 16);
  CHECK_THROWS_AS((void)Dims::filled(17, 1), mg::InvalidArgument);
}

TEST_CASE("checked arithmetic ends exactly at 2^63 - 1") {
  CHECK(mg::checked_mul(0, largest) == 0);
  CHECK(mg::checked_mul(largest, 0) == 0);
  CHECK(mg::checked_mul(1, largest) == largest);
  CHECK(mg::checked_mul(largest, 1) == largest);
  CHECK(!mg::checked_mul(2, largest / 2 + 1));
  CHECK(mg::checked_mul(2, largest / 2) == largest - 1);
  CHECK(mg::checked_mul(root, root) == root * root);
  CHECK(!mg::checked_mul(root + 1, root + 1));
  CHECK(mg::checked_mul(7, largest / 7) == largest);  // 2^63 - 1 is a multiple of 7
  CHECK(!mg::checked_mul(7, largest / 7 + 1));
  CHECK(mg::checked_add(largest, 0) == largest);
  CHECK(mg::checked_add(0, largest) == largest);
  CHECK(mg::checked_add(largest - 5, 5) == largest);
  CHECK(!mg::checked_add(largest - 5, 6));
  CHECK(!mg::checked_add(largest, largest));
}

TEST_CASE("numbers of elements") {
  CHECK(mg::checked_numel(Dims{}) == 1);
  CHECK(mg::checked_numel(Dims{7, 1, 3}) == 21);
  CHECK(mg::checked_numel(Dims{largest, largest, 0}) == 0);
  CHECK(mg::checked_numel(Dims{0, largest, largest}) == 0);
  CHECK(mg::checked_numel(Dims{largest, 1}) == largest);
  CHECK(!mg::checked_numel(Dims{largest, 2}));
  CHECK(!mg::checked_numel(Dims{std::int64_t{1} << 32, std::int64_t{1} << 31}));
  CHECK(mg::checked_numel(Dims{std::int64_t{1} << 31, std::int64_t{1} << 31}) == std::int64_t{1} << 62);
}

TEST_CASE("row-major strides and contiguity, as torch has them") {
  CHECK(mg::row_major_strides(Dims{}) == Dims{});
  CHECK(mg::row_major_strides(Dims{7}) == Dims{1});
  CHECK(mg::row_major_strides(Dims{2, 3, 4}) == Dims{12, 4, 1});
  CHECK(mg::row_major_strides(Dims{2, 0, 4}) == Dims{4, 4, 1});  // torch.empty(2, 0, 4).stride()
  CHECK(mg::row_major_strides(Dims{1, 3, 1, 5}) == Dims{15, 5, 5, 1});
  for (const Dims& shape : {Dims{}, Dims{1}, Dims{5}, Dims{3, 1, 2}, Dims{0, 4}, Dims{2, 3, 5, 1, 7, 1, 2}}) {
    CHECK(mg::is_contiguous(shape, mg::row_major_strides(shape)));
  }
  CHECK(mg::is_contiguous(Dims{1, 4}, Dims{99, 1}));
  CHECK(mg::is_contiguous(Dims{4, 1}, Dims{1, -3}));
  CHECK(mg::is_contiguous(Dims{3, 0}, Dims{7, 9}));
  CHECK(!mg::is_contiguous(Dims{2, 4}, Dims{5, 1}));
  CHECK(!mg::is_contiguous(Dims{2, 4}, Dims{1, 2}));
  CHECK(!mg::is_contiguous(Dims{4}, Dims{0}));
  CHECK(!mg::is_contiguous(Dims{4}, Dims{-1}));
}
