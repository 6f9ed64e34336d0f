// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/topology/tags.hpp>

#include <string_view>

#include <doctest/doctest.h>

namespace mg = mgroups;

namespace my {
struct NodeTag : mg::axes<"tp", "cp"> {};
template <class T>
struct TaggedTag : mg::axes<"shard"> {};
}  // namespace my

namespace {
struct HiddenTag : mg::axes<"x"> {};
}  // namespace

TEST_CASE("a tag's name is its own, without namespaces") {
  struct LocalTag : mg::axes<"y"> {};
  CHECK(mg::tag_name<mg::TPTag> == "TPTag");
  CHECK(mg::tag_name<mg::TPEPPPTag> == "TPEPPPTag");
  CHECK(mg::tag_name<my::NodeTag> == "NodeTag");
  CHECK(mg::tag_name<HiddenTag> == "HiddenTag");
  CHECK(mg::tag_name<LocalTag> == "LocalTag");
  CHECK(mg::tag_name<my::TaggedTag<int>> == "TaggedTag<int>");
  CHECK(mg::tag_name<my::TaggedTag<mg::TPTag>>.substr(0, 9) == "TaggedTag");
}

TEST_CASE("the axes of a tag can be read at run time too") {
  std::string_view joined[2];
  int n = 0;
  for (const std::string_view axis : mg::group_traits<my::NodeTag>::axes) joined[n++] = axis;
  CHECK(n == 2);
  CHECK(joined[0] == "tp");
  CHECK(joined[1] == "cp");
}
