// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/topology/members.hpp>

#include <algorithm>
#include <ranges>
#include <vector>

#include <doctest/doctest.h>

#include "support/sentences.hpp"

namespace mg = mgroups;

namespace {

}  // namespace

TEST_CASE("members are computed from strides, the first dimension fastest") {
  CHECK(list({5, {{1, 1}}}) == std::vector{5});
  CHECK(list({3, {}}) == std::vector{3});
  CHECK(list({1, {{2, 1}, {3, 4}}}) == std::vector{1, 2, 5, 6, 9, 10});
  CHECK(list({0, {{2, 1}, {2, 2}, {2, 8}}}) == std::vector{0, 1, 2, 3, 8, 9, 10, 11});
  CHECK(list({7, {{3, 7}}}) == std::vector{7, 14, 21});
  CHECK(list({0, {{2, 1}, {0, 4}}}).empty());
  CHECK(list(mg::Members()).empty());
}

TEST_CASE("index_of inverts operator[] and refuses every other rank") {
  const mg::Members cases[] = {{1, {{2, 1}, {3, 4}}}, {0, {{2, 3}, {2, 7}, {2, 20}}}, {4, {}}, mg::Members()};
  for (const mg::Members& members : cases) {
    const std::vector<int> ranks = list(members);
    for (int rank = -2; rank < 50; ++rank) {
      const auto found = std::find(ranks.begin(), ranks.end(), rank);
      CHECK(members.index_of(rank) == (found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin())));
      CHECK(members.contains(rank) == (found != ranks.end()));
    }
  }
}

TEST_CASE("a listed group keeps the order of its list") {
  const std::vector<int> ranks{3, 1, 7};
  const mg::Members members = mg::Members::listed(ranks);
  CHECK(list(members) == ranks);
  CHECK(members.index_of(3) == 0);
  CHECK(members.index_of(7) == 2);
  CHECK(members.index_of(2) == -1);
  CHECK_FALSE(members == mg::Members(1, {{3, 2}}));
}

TEST_CASE("equality is that of the ranks, not of how they are described") {
  CHECK(mg::Members(0, {{4, 1}}) == mg::Members(0, {{2, 1}, {2, 2}}));
  CHECK(mg::Members(0, {{2, 1}, {1, 9}}) == mg::Members(0, {{2, 1}}));
  CHECK_FALSE(mg::Members(0, {{4, 1}}) == mg::Members(0, {{2, 1}, {2, 4}}));
  const std::vector<int> ranks{0, 1, 2, 3};
  CHECK(mg::Members::listed(ranks) == mg::Members(0, {{4, 1}}));
}

TEST_CASE("it is a random-access range") {
  static_assert(std::ranges::random_access_range<mg::Members> && std::ranges::sized_range<mg::Members>);
  const mg::Members members(10, {{3, 2}, {2, 10}});
  const auto it = members.begin();
  CHECK(it[4] == 22);
  CHECK(*(it + 5) == 24);
  CHECK(members.end() - it == 6);
  CHECK(*std::ranges::lower_bound(members, 13) == 14);
  std::vector<int> backwards;
  for (const int rank : members | std::views::reverse) backwards.push_back(rank);
  CHECK(backwards == std::vector{24, 22, 20, 14, 12, 10});
}

TEST_CASE("strides that would make members overlap or descend are refused") {
  CHECK_THROWS_AS(mg::Members(0, {{2, 4}, {2, 1}}), mg::InvalidArgument);
  CHECK_THROWS_AS(mg::Members(0, {{3, 1}, {2, 2}}), mg::InvalidArgument);
  CHECK_THROWS_AS(mg::Members(0, {{2, 0}}), mg::InvalidArgument);
}
