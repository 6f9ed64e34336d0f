// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/topology/grid.hpp>

#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "support/sentences.hpp"

namespace mg = mgroups;

namespace {

struct ReplicaTag : mg::axes<"replica"> {};
struct ShardTag : mg::axes<"shard"> {};
struct BothTag : mg::axes<"shard", "replica"> {};
struct MixedTag : mg::axes<"tp", "ep"> {};
struct StageTag : mg::axes<"pp", "shard"> {};
struct FirstStageTag {};
struct NamedTag {};

}  // namespace

// Only the first pipeline stage has this group.
template <>
struct mgroups::group_traits<FirstStageTag> {
  static mg::Members members(const mg::ProcessGrid& grid, int rank) {
    const mg::Members pipeline = grid.members<mg::PPTag>(rank);
    const mg::Members stage = grid.members<mg::TPDPCPTag>(pipeline[0]);
    return stage;
  }
};
template <>
struct mgroups::group_traits<NamedTag> {
  static constexpr std::array<std::string_view, 2> axes{"dp", "cp"};
};

TEST_CASE("the leftmost axis varies fastest and dp is inferred") {
  const mg::ProcessGrid grid{"tp-cp-ep-dp-pp", {.tp = 2, .pp = 2}, 8};
  CHECK(grid.world_size() == 8);
  CHECK(grid.size<mg::DPTag>() == 2);
  CHECK(grid.axis_size("dp") == 2);
  CHECK(grid.axis_size("shard") == 1);
  CHECK(list(grid.members<mg::TPTag>(5)) == std::vector{4, 5});
  CHECK(list(grid.members<mg::DPTag>(5)) == std::vector{5, 7});
  CHECK(list(grid.members<mg::PPTag>(5)) == std::vector{1, 5});
  CHECK(list(grid.members<mg::TPPPTag>(6)) == std::vector{2, 3, 6, 7});
  CHECK(grid.rank<mg::TPPPTag>(6) == 2);
  CHECK(grid.key<mg::DPTag>(7) == 1);
  CHECK(to_string(grid) == "tp 2 x cp 1 x dp 2 x pp 2 = 8 ranks");
}

TEST_CASE("any one size may be inferred, in either view") {
  CHECK(mg::ProcessGrid{"tp-cp-ep-dp-pp", {.tp = mg::infer, .dp = 3}, 12}.size<mg::TPTag>() == 4);
  CHECK(mg::ProcessGrid{"tp-cp-ep-dp-pp", {.tp = mg::infer}, 12}.size<mg::DPTag>() == 1);
  CHECK(mg::ProcessGrid{"tp-cp-ep-dp-pp", {.tp = 2, .pp = mg::infer}, 6}.size<mg::PPTag>() == 3);
  CHECK(mg::ProcessGrid{"tp-cp-ep-dp-pp", {.cp = mg::infer, .dp = 7}, 7}.size<mg::CPTag>() == 1);
  const mg::ProcessGrid experts{"tp-cp-ep-dp-pp", {.tp = 2, .etp = 1, .ep = mg::infer}, 6};
  CHECK(experts.size<mg::EPTag>() == 6);
  CHECK(experts.size<mg::EDPTag>() == 1);
  CHECK(mg::ProcessGrid{{{"replica", mg::infer}, {"shard", 2}}, 6}.size<ReplicaTag>() == 3);
}

TEST_CASE("experts have a view of their own over the same ranks") {
  const mg::ProcessGrid grid{"tp-cp-ep-dp-pp", {.tp = 4, .etp = 1, .ep = 4}, 8};
  CHECK(grid.size<mg::ETPTag>() == 1);
  CHECK(grid.size<mg::EDPTag>() == 2);
  CHECK(list(grid.members<mg::EPTag>(6)) == std::vector{4, 5, 6, 7});
  CHECK(list(grid.members<mg::EDPTag>(6)) == std::vector{2, 6});
  CHECK(list(grid.members<mg::TPEPTag>(1)) == std::vector{0, 1, 2, 3});
  CHECK(mg::ProcessGrid{"tp-cp-ep-dp-pp", {.tp = 4}, 8}.size<mg::ETPTag>() == 4);
}

TEST_CASE("axes of one's own") {
  const mg::ProcessGrid grid{{{"replica", 2}, {"shard", 3}}, 6};
  CHECK(list(grid.members<ShardTag>(3)) == std::vector{1, 3, 5});
  CHECK(list(grid.members<BothTag>(3)) == std::vector{0, 1, 2, 3, 4, 5});
  CHECK(list(grid.members<NamedTag>(4)) == std::vector{4});
  CHECK(grid.size<mg::TPTag>() == 1);
  CHECK_FALSE(grid.has<mg::TPTag>());
  CHECK(grid.has<ShardTag>());
  CHECK_FALSE(grid.has<StageTag>());
  const mg::ProcessGrid one_view{{{"tp", 2}, {"ep", 2}, {"dp", 2}}, 8};
  CHECK(list(one_view.members<MixedTag>(5)) == std::vector{4, 5, 6, 7});
  CHECK(list(one_view.members<mg::EPTag>(5)) == std::vector{5, 7});
  CHECK(mg::ProcessGrid{"tp-dp", {.tp = 2}, 6}.members<StageTag>(3).size() == 1);
  CHECK(list(mg::ProcessGrid{std::initializer_list<mg::AxisSize>{}, 1}.members<mg::WorldTag>(0)) == std::vector{0});
}

TEST_CASE("a tag may have a rule of its own, and ranks that are not members") {
  const mg::ProcessGrid grid{"tp-cp-ep-dp-pp", {.tp = 2, .pp = 2}, 8};
  const mg::GridGroup inside = grid.group_of<FirstStageTag>(3);
  CHECK(inside.is_member());
  CHECK(inside.rank == 3);
  CHECK(inside.color == 0);
  const mg::GridGroup outside = grid.group_of<FirstStageTag>(5);
  CHECK_FALSE(outside.is_member());
  CHECK(outside.color == -1);
  CHECK(grid.key<FirstStageTag>(5) == -1);
  CHECK(list(grid.members<NamedTag>(5)) == list(grid.members<mg::DPCPTag>(5)));
  CHECK(grid.members<mg::WorldTag>(5).size() == 8);
}

TEST_CASE("a grid may start behind rank 0") {
  const mg::ProcessGrid grid{"tp-dp", {.tp = 2}, 4, 3};
  CHECK(grid.first_rank() == 3);
  CHECK(list(grid.members<mg::DPTag>(6)) == std::vector{4, 6});
  CHECK(list(grid.members<mg::WorldTag>(6)) == std::vector{3, 4, 5, 6});
  CHECK(grid.contains(3));
  CHECK_FALSE(grid.contains(7));
  CHECK(contains(error_text<mg::TopologyError>([&] { (void)grid.members<mg::TPTag>(2); }),
                 "rank 2 is not in the grid, which has ranks 3 to 6"));
}

TEST_CASE("groups cost the same at any scale") {
  const mg::ProcessGrid grid{"tp-cp-ep-dp-pp", {.tp = 8, .cp = 2, .ep = 8, .pp = 16}, 131072};
  const int rank = 98765;
  // 98765 = 5 + 8 * (1 + 2 * (2 + 512 * 12)) + ...: by hand from tp 8, cp 2, dp 512, pp 16.
  CHECK(grid.rank<mg::TPTag>(rank) == rank % 8);
  CHECK(grid.rank<mg::CPTag>(rank) == rank / 8 % 2);
  CHECK(grid.rank<mg::DPTag>(rank) == rank / 16 % 512);
  CHECK(grid.rank<mg::PPTag>(rank) == rank / 8192);
  CHECK(grid.members<mg::DPCPTag>(rank).size() == 1024);
  CHECK(grid.members<mg::DPCPTag>(rank).index_of(rank) == grid.rank<mg::DPCPTag>(rank));
  CHECK(sizeof(mg::ProcessGrid) + 16 * sizeof(mg::Members) < 16 * 1024);
}

// The case grid-expert-sizes-that-do-not-fit of shared/cases.
TEST_CASE("expert sizes that do not fit are shown with their product and what would fit") {
  const std::string first = error_text<mg::TopologyError>([] {
    mg::ProcessGrid{"tp-cp-ep-dp-pp", {.tp = 2, .etp = 1, .ep = 8, .pp = 2}, 8};
  });
  CHECK(contains(first, "etp 1 x ep 8 x pp 2 = 16 is more than the world of 8 ranks"));
  CHECK(contains(first, "ep 1, 2 or 4"));
  const std::string second = error_text<mg::TopologyError>([] { mg::ProcessGrid{"tp-cp-ep-dp-pp", {.tp = 4, .ep = 4}, 4}; });
  CHECK(contains(second, "etp 4 x ep 4 x pp 1 = 16"));
  CHECK(contains(second, "etp was not given and is therefore tp = 4"));
  CHECK(contains(second, "etp 1"));
  const mg::ProcessGrid fits{"tp-cp-ep-dp-pp", {.tp = 4, .etp = 1, .ep = 4}, 4};
  CHECK(fits.size<mg::ETPTag>() == 1);
  CHECK(fits.size<mg::EPTag>() == 4);
  CHECK(fits.size<mg::EDPTag>() == 1);
  CHECK(fits.size<mg::PPTag>() == 1);
}

TEST_CASE("impossible sizes are errors that show the arithmetic") {
  const auto megatron = [](std::string_view order, mg::GridSizes sizes, int world) {
    return error_text<mg::TopologyError>([&] { mg::ProcessGrid{order, sizes, world}; });
  };
  std::string text = megatron("tp-cp-dp-pp", {.tp = 2, .pp = 3}, 8);
  CHECK(contains(text, "tp 2 x cp 1 x pp 3 = 6 does not divide the world of 8 ranks, so dp cannot be inferred"));
  CHECK(contains(text, "pp 1, 2 or 4"));
  text = megatron("tp-dp-pp", {.tp = 2, .dp = 2, .pp = 2}, 16);
  CHECK(contains(text, "tp 2 x dp 2 x pp 2 x cp 1 = 8 is not the world of 16 ranks"));
  CHECK(contains(text, "dp 4"));
  text = megatron("tp-dp-pp", {.tp = 4, .dp = 4}, 8);
  CHECK(contains(text, "= 16 is more than the world of 8 ranks"));
  text = megatron("tp-dp", {.tp = 2, .pp = 2}, 8);
  CHECK(contains(text, "pp has size 2, but the order \"tp-dp\" does not name pp"));
  CHECK(contains(megatron("tp-pp", {.tp = 2}, 8), "dp has size 4, but the order \"tp-pp\" does not name dp"));
  CHECK(contains(megatron("tp-dp", {.tp = 2, .ep = 2}, 8), "ep has size 2, but the order \"tp-dp\" does not name ep"));
  CHECK(contains(megatron("tp-dp", {.tp = 0}, 8), "the size of axis tp is 0"));
  CHECK(contains(megatron("tp-dp", {.tp = -3}, 8), "the size of axis tp is -3"));
  CHECK(contains(megatron("tp-dp", {.tp = mg::infer, .dp = mg::infer}, 8), "tp and dp are all to be inferred"));
  CHECK(contains(megatron("tp-cp-dp", {.tp = 1 << 20, .cp = 1 << 20}, 8), "is 2^31 or more"));
  CHECK(contains(megatron("tp-dp", {}, 0), "a grid of 0 ranks"));
  CHECK(contains(megatron("tp--dp", {}, 2), "empty name"));
  CHECK(contains(megatron("", {}, 2), "empty name"));
  CHECK(contains(megatron("tp-dp-tp", {}, 2), "name tp twice"));
  CHECK(contains(megatron("tp-TP", {}, 2), "name tp twice"));
  CHECK(contains(megatron("tp-shard", {}, 2), "\"shard\", which is none of tp, cp, ep, dp and pp"));
  CHECK(contains(megatron("etp-ep", {}, 2), "etp stands where tp is"));
  CHECK(contains(error_text<mg::TopologyError>([] {
                   mg::ProcessGrid{{{"a", 3}, {"b", mg::infer}}, 8};
                 }),
                 "a 3 = 3 does not divide the world of 8"));
  CHECK(contains(error_text<mg::TopologyError>([] {
                   mg::ProcessGrid{{{"a", 2}, {"a", 4}}, 8};
                 }),
                 "the axis a is given twice"));
  CHECK(contains(error_text<mg::TopologyError>([] { mg::ProcessGrid{{{"a-b", 8}}, 8}; }), "holds a dash"));
  CHECK(contains(error_text<mg::TopologyError>([] { mg::ProcessGrid{{{"", 8}}, 8}; }), "has 0 characters"));
}

TEST_CASE("an order that does not end in pp needs the same pipelines in both views") {
  const std::string refused = error_text<mg::TopologyError>([] {
    mg::ProcessGrid{"tp-cp-ep-pp-dp", {.tp = 2, .cp = 2, .pp = 2}, 16};
  });
  CHECK(contains(refused, "dp is 2 but edp is 4"));
  CHECK(contains(refused, "put pp last"));
  // Nothing says that there are experts: refused only when one asks.
  const mg::ProcessGrid dense{"tp-cp-pp-dp", {.tp = 2, .cp = 2, .pp = 2}, 16};
  CHECK(dense.size<mg::DPTag>() == 2);
  CHECK(contains(error_text<mg::TopologyError>([&] { (void)dense.size<mg::EDPTag>(); }), "dp is 2 but edp is 4"));
}

TEST_CASE("axes named at run time") {
  const mg::ProcessGrid grid{"tp-cp-ep-dp-pp", {.tp = 2, .pp = 2}, 8};
  CHECK(list(grid.group_of("pp-tp", 6).members) == std::vector{2, 3, 6, 7});
  CHECK(grid.group_of("tp", 5).color == 2);
  CHECK(contains(error_text<mg::TopologyError>([&] { (void)grid.group_of("tq", 0); }), "the grid has no axis \"tq\""));
  CHECK(contains(error_text<mg::TopologyError>([&] { (void)grid.group_of("tp-ep", 0); }), "belong to two views"));
  CHECK(contains(error_text<mg::TopologyError>([&] { (void)grid.members<MixedTag>(0); }), "belong to two views"));
  CHECK(contains(error_text<mg::TopologyError>([&] { (void)grid.group_of("tp", 8); }), "rank 8 is not in the grid"));
}
