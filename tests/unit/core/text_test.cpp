// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/core/text.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace mg = mgroups;

TEST_CASE("concat joins texts, characters and numbers") {
  CHECK(mg::concat() == "");
  CHECK(mg::concat("rank ", 3, " of ", 4u, ':', std::string(" tp"), std::string_view("!")) == "rank 3 of 4: tp!");
  CHECK(mg::concat(std::numeric_limits<std::int64_t>::min()) == "-9223372036854775808");
  CHECK(mg::concat(std::numeric_limits<std::uint64_t>::max()) == "18446744073709551615");
  CHECK(mg::concat(0.5) == "0.500000");
}

TEST_CASE("list_text counts what is over its limit") {
  CHECK(mg::list_text(std::vector<int>{}) == "[]");
  CHECK(mg::list_text(std::vector<int>{7}) == "[7]");
  CHECK(mg::list_text(std::vector<int>{1, 2, 3}, 3) == "[1, 2, 3]");
  CHECK(mg::list_text(std::vector<int>{1, 2, 3, 4}, 3) == "[1, 2, 3, ... 1 more]");
  CHECK(mg::list_text(std::vector<std::string>{"a", "b"}) == "[a, b]");
  CHECK(mg::list_text(std::vector<int>(20, 1)) == "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ... 4 more]");
}

TEST_CASE("edit distance") {
  CHECK(mg::detail::edit_distance("", "") == 0);
  CHECK(mg::detail::edit_distance("", "abc") == 3);
  CHECK(mg::detail::edit_distance("abc", "") == 3);
  CHECK(mg::detail::edit_distance("kitten", "sitting") == 3);
  CHECK(mg::detail::edit_distance("flaw", "lawn") == 2);
  CHECK(mg::detail::edit_distance("weight", "weight") == 0);
}

TEST_CASE("the nearest name, or none that is too far") {
  const std::vector<std::string> names{"decoder.fc1.weight", "decoder.fc2.weight", "decoder.fc1.bias", "x"};
  CHECK(mg::nearest_name("decoder.fc1.wieght", names) == "decoder.fc1.weight");
  CHECK(mg::nearest_name("decoder.fc3.weight", names) == "decoder.fc1.weight");
  CHECK(mg::nearest_name("decoder.fc1.bais", names) == "decoder.fc1.bias");
  CHECK(mg::nearest_name("optimizer.state.exp_avg", names).empty());
  CHECK(mg::nearest_name("", names) == "x");
  CHECK(mg::nearest_name("y", names) == "x");
  CHECK(mg::nearest_name("weight", std::vector<std::string>{}).empty());
}
