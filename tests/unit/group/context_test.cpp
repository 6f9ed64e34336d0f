// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/group/context.hpp>

#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/comm/solo.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/group/make_group.hpp>
#include <mgroups/topology/grid.hpp>

#include "support/sentences.hpp"

namespace mg = mgroups;

namespace {

struct NodeTag : mg::axes<"node"> {};
struct RuleTag {};

// The two kinds of function that take a context.
int tp_size_of(const mg::GroupContext<>& context) { return mg::get_pg_size<mg::TPTag>(context); }
int product_of_sizes(const mg::group_context auto& context) {
  return mg::get_pg_size<mg::TPTag>(context) * mg::get_pg_size<mg::DPCPTag>(context) * mg::get_pg_size<mg::PPTag>(context);
}

}  // namespace

template <>
struct mgroups::group_traits<RuleTag> {
  static mg::Members members(const mg::ProcessGrid& grid, int rank) { return grid.members<mg::TPTag>(rank); }
};

TEST_CASE("a grid context resolves every tag, each by itself") {
  for (const int n : {1, 2, 3, 4, 7, 8}) {
    mg::run_threads(n, [n](auto& world) {
      const int pp = n % 4 == 0 ? 2 : 1;
      const mg::ProcessGrid grid{"tp-cp-ep-dp-pp", {.tp = n % 2 == 0 ? 2 : 1, .pp = pp}, n};
      auto ctx = mg::make_context(world, grid);
      REQUIRE(ctx.world_size() == n);
      REQUIRE(ctx.world_rank() == world.rank());
      REQUIRE(&ctx.world() == &world);
      REQUIRE(product_of_sizes(ctx) == n);
      REQUIRE(tp_size_of(ctx) == (n % 2 == 0 ? 2 : 1));
      REQUIRE(mg::get_pg_size<mg::EPTag>(ctx) == 1);
      REQUIRE(mg::get_pg_size<NodeTag>(ctx) == 1);
      REQUIRE(mg::get_pg_rank<NodeTag>(ctx) == 0);
      REQUIRE(mg::get_pg_size<mg::WorldTag>(ctx) == n);
      REQUIRE(mg::get_pg_rank<mg::WorldTag>(ctx) == world.rank());
      REQUIRE(mg::get_pg_rank<mg::PPTag>(ctx) == world.rank() / (n / pp));
      REQUIRE(mg::get_pg_size(mg::group<mg::PPTag>(ctx)) == pp);
      REQUIRE(mg::get_pg_rank(mg::group<mg::PPTag>(ctx)) == mg::get_pg_rank<mg::PPTag>(ctx));
    });
  }
}

TEST_CASE("copies and conversions of a context share groups and communicators") {
  mg::run_threads(4, [](auto& world) {
    const mg::ProcessGrid grid{"tp-dp", {.tp = 2}, 4};
    const auto ctx = mg::make_context(world, grid);
    const auto copy = ctx;
    const mg::GroupContext<> erased = ctx;
    REQUIRE_FALSE(mg::group<mg::TPTag>(ctx).communicator_made());
    std::vector<int> value{1};
    mg::group<mg::TPTag>(erased).all_reduce(value, mg::sum);
    REQUIRE(value[0] == 2);
    REQUIRE(mg::group<mg::TPTag>(ctx).communicator_made());
    REQUIRE(mg::group<mg::TPTag>(copy).communicator_made());
    REQUIRE(&mg::group<mg::TPTag>(ctx).communicator() == &mg::group<mg::TPTag>(copy).communicator());
    REQUIRE(erased.world().size() == 4);
  });
}

TEST_CASE("create_all makes communicators at once, for members") {
  mg::run_threads(8, [](auto& world) {
    const mg::ProcessGrid grid{"tp-cp-ep-dp-pp", {.tp = 2, .ep = 2, .pp = 2}, 8};
    const auto ctx = mg::make_context(world, grid);
    ctx.template create_all<mg::TPTag, mg::DPCPTag, mg::PPTag, mg::EDPTag, mg::WorldTag>();
    REQUIRE(mg::group<mg::TPTag>(ctx).communicator_made());
    REQUIRE(mg::group<mg::WorldTag>(ctx).communicator_made());
    REQUIRE_FALSE(mg::group<mg::DPTag>(ctx).communicator_made());
    REQUIRE(mg::group<mg::PPTag>(ctx).communicator().size() == 2);
    const auto listed = mg::make_context<mg::fallback::strict, mg::TPTag, mg::PPTag>(world, grid);
    listed.create_all();
    REQUIRE(mg::group<mg::PPTag>(listed).communicator_made());
    std::vector<int> value{world.rank()};
    mg::group<mg::WorldTag>(ctx).all_reduce(value, mg::max);
    REQUIRE(value[0] == 7);
  });
}

TEST_CASE("a context of groups that exist") {
  mg::run_threads(8, [](auto& world) {
    const mg::ProcessGrid grid{"tp-cp-ep-dp-pp", {.tp = 2, .pp = 2}, 8};
    auto tp = mg::make_group<mg::TPTag>(world, grid);
    mg::Group<mg::PPTag> pp = mg::make_group<mg::PPTag>(world, grid);
    auto dp_cp = mg::make_group<mg::DPCPTag>(world, grid);
    mg::GroupContext strict{mg::fallback::strict{}, world, tp, pp, dp_cp};
    mg::GroupContext solo{mg::fallback::solo{}, world, tp, pp, dp_cp};
    REQUIRE(product_of_sizes(strict) == 8);
    REQUIRE(product_of_sizes(solo) == 8);
    REQUIRE(mg::get_pg_size<mg::EPTag>(solo) == 1);
    REQUIRE(mg::get_pg_size<mg::WorldTag>(strict) == 8);
    std::vector<int> value{1};
    mg::group<mg::DPCPTag>(solo).all_reduce(value, mg::sum);
    REQUIRE(value[0] == 2);
    REQUIRE(dp_cp.communicator_made());
    mg::group<mg::EPTag>(solo).barrier();
  });
}

TEST_CASE("solo that contradicts the world is an error when the context is made") {
  mg::run_threads(8, [](auto& world) {
    const mg::ProcessGrid grid{"tp-cp-ep-dp-pp", {.tp = 2, .cp = 2, .pp = 2}, 8};
    const mg::ProcessGrid wide{"tp-cp-ep-dp-pp", {.tp = 2, .etp = 1, .ep = 2, .pp = 2}, 8};
    auto tp = mg::make_group<mg::TPTag>(world, grid);
    auto pp = mg::make_group<mg::PPTag>(world, grid);
    auto cp = mg::make_group<mg::CPTag>(world, grid);
    auto tp_cp = mg::make_group<mg::TPCPTag>(world, grid);
    auto dp_cp = mg::make_group<mg::DPCPTag>(world, grid);
    using solo = mg::fallback::solo;

    const std::string text = error_text<mg::TopologyError>([&] { mg::GroupContext ctx{solo{}, world, tp, pp}; });
    REQUIRE(contains(text, "account for TPTag 2 x PPTag 2 = 4 of the world's 8 ranks"));
    REQUIRE(contains(text, "fallback::strict"));
    REQUIRE(contains(error_text<mg::TopologyError>([&] {
                       mg::GroupContext ctx{solo{}, world};
                     }),
                     "account for 1 of the world's 8"));
    REQUIRE(contains(error_text<mg::TopologyError>([&] { (void)mg::make_context<solo, mg::TPTag, mg::PPTag>(world, grid); }),
                     "TPTag 2 x PPTag 2 = 4"));
    // Groups that overlap are no contradiction.
    mg::GroupContext overlapping{solo{}, world, tp_cp, dp_cp, cp, pp};
    mg::GroupContext fine{solo{}, world, tp, cp, pp};
    REQUIRE(mg::get_pg_size<mg::CPTag>(overlapping) == 2);
    REQUIRE(mg::get_pg_size<mg::DPTag>(fine) == 1);
    mg::GroupContext strict{mg::fallback::strict{}, world, tp, pp};
    REQUIRE(mg::get_pg_size<mg::TPTag>(strict) == 2);

    // Too many ranks: groups of two grids.
    const mg::ProcessGrid other{"tp-dp", {.tp = 8}, 8};
    auto tp8 = mg::make_group<mg::TPTag>(world, other);
    REQUIRE(contains(error_text<mg::TopologyError>([&] {
                       mg::GroupContext ctx{mg::fallback::strict{}, world, tp8, pp};
                     }),
                     "TPTag 8 x PPTag 2 = 16 ranks, but its world has 8"));

    // The experts' view is checked once one of its groups is there.
    auto ep = mg::make_group<mg::EPTag>(world, wide);
    auto edp = mg::make_group<mg::EDPTag>(world, wide);
    auto dp = mg::make_group<mg::DPTag>(world, wide);
    REQUIRE(
        contains(error_text<mg::TopologyError>([&] { mg::GroupContext ctx{solo{}, world, tp, pp, dp, ep}; }), "EPTag 2"));
    mg::GroupContext both{solo{}, world, tp, pp, dp, ep, edp};
    mg::GroupContext experts{solo{}, world, pp, ep, edp};
    REQUIRE(mg::get_pg_size<mg::ETPTag>(both) == 1);
    REQUIRE(mg::get_pg_size<mg::TPTag>(experts) == 1);
    REQUIRE(contains(error_text<mg::TopologyError>([&] { (void)mg::get_pg_size<mg::DPTag>(experts); }), "DPTag"));
  });
}

TEST_CASE("solo never answers 1 for an axis that a given group has") {
  mg::run_threads(4, [](auto& world) {
    const mg::ProcessGrid grid{"tp-cp-ep-dp-pp", {.tp = 2}, 4};
    using solo = mg::fallback::solo;
    auto ctx = mg::make_context<solo, mg::TPTag, mg::PPTag, mg::DPCPTag>(world, grid);
    const std::string text = error_text<mg::TopologyError>([&] { (void)mg::group<mg::DPTag>(ctx); });
    REQUIRE(contains(text, "DPTag"));
    REQUIRE(contains(text, "DPCPTag, which was given, has it and 2 ranks"));
    REQUIRE(contains(error_text<mg::TopologyError>([&] { (void)mg::group<mg::EDPTag>(ctx); }), "4 of the world's 4 ranks"));
    REQUIRE(contains(error_text<mg::TopologyError>([&] { (void)mg::group<RuleTag>(ctx); }), "absent_group<RuleTag>"));
    REQUIRE(mg::get_pg_size<mg::EPTag>(ctx) == 1);
    // A group of one rank says that each of its axes has size 1.
    auto tensor = mg::make_context<solo, mg::TPTag, mg::DPCPTag>(world, mg::ProcessGrid{"tp-dp", {.tp = 4}, 4});
    REQUIRE(mg::get_pg_size<mg::DPTag>(tensor) == 1);
    REQUIRE(mg::get_pg_size<mg::CPTag>(tensor) == 1);
  });
}

TEST_CASE("no_group in a context") {
  mg::run_threads(2, [](auto& world) {
    const mg::ProcessGrid grid{"tp-dp", {.tp = 2}, 2};
    mg::Group<mg::TPTag> tp = mg::make_group<mg::TPTag>(world, grid);
    mg::Group<mg::PPTag> nothing = mg::no_group;
    mg::GroupContext ctx{mg::fallback::solo{}, world, tp, nothing};
    REQUIRE(mg::get_pg_size<mg::PPTag>(ctx) == 1);
    REQUIRE(contains(error_text<mg::InvalidArgument>([&] {
                       mg::GroupContext strict{mg::fallback::strict{}, world, tp, nothing};
                     }),
                     "the PPTag group of this context is no_group"));
    mg::Group<mg::TPTag> no_tp = mg::no_group;
    REQUIRE(contains(error_text<mg::TopologyError>([&] {
                       mg::GroupContext bad{mg::fallback::solo{}, world, no_tp};
                     }),
                     "account for TPTag 1 = 1 of the world's 2 ranks"));
  });
}

TEST_CASE("strict over a grid refuses axes that the grid does not have") {
  mg::run_threads(2, [](auto& world) {
    const mg::ProcessGrid grid{"tp-dp", {.tp = 2}, 2};
    const auto ctx = mg::make_context<mg::fallback::strict>(world, grid);
    REQUIRE(mg::get_pg_size<mg::CPTag>(ctx) == 1);
    REQUIRE(contains(error_text<mg::TopologyError>([&] { (void)mg::group<NodeTag>(ctx); }),
                     "lacks an axis of NodeTag ([node])"));
    REQUIRE(
        contains(error_text<mg::TopologyError>([&] { (void)mg::make_context<mg::fallback::strict, NodeTag>(world, grid); }),
                 "lacks an axis of NodeTag"));
  });
}

TEST_CASE("a context and its groups belong to one world") {
  mg::run_threads(4, [](auto& world) {
    const mg::ProcessGrid larger{"tp-dp", {.tp = 2}, 8};
    REQUIRE(
        contains(error_text<mg::TopologyError>([&] { (void)mg::make_context(world, larger); }), "the world has 4 ranks"));
    auto half = world.split(world.rank() / 2, 0);
    const mg::ProcessGrid small{"tp-dp", {.tp = 2}, 2};
    auto inner = mg::make_group<mg::TPTag>(half, small);
    REQUIRE(contains(error_text<mg::TopologyError>([&] {
                       mg::GroupContext ctx{mg::fallback::strict{}, world, inner};
                     }),
                     "make groups and context from one world"));
    // The part is a world of its own.
    auto ctx = mg::make_context(half, small);
    std::vector<int> value{world.rank()};
    mg::group<mg::TPTag>(ctx).all_reduce(value, mg::sum);
    REQUIRE(value[0] == (world.rank() < 2 ? 1 : 5));
  });
}

TEST_CASE("worlds that are handles are kept by copy") {
  const mg::ProcessGrid grid{"tp-cp-ep-dp-pp", {}, 1};
  const auto make = [&] {
    mg::solo_comm world;
    return mg::make_context(world, grid);
  };
  const auto ctx = make();
  CHECK(ctx.world().size() == 1);
  const mg::GroupContext<> any = mg::make_context(mg::any_communicator(mg::solo_comm()), grid);
  std::vector<int> value{3};
  mg::group<mg::TPTag>(any).all_reduce(value, mg::sum);
  CHECK(value[0] == 3);
  const auto owned = mg::make_context(mg::solo_comm(), mg::ProcessGrid{"dp", {}, 1});
  mg::group<mg::DPTag>(owned).barrier();
}
