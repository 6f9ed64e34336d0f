// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/group/group.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/comm/solo.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/group/context.hpp>
#include <mgroups/group/make_group.hpp>
#include <mgroups/topology/grid.hpp>

#include "support/sentences.hpp"

namespace mg = mgroups;

namespace {

struct FirstStageTag {};
struct RackTag : mg::axes<"rack"> {};

// What an ordinary function takes.
int sum_of_world_ranks(mg::Group<mg::DPTag> dp, int world_rank) {
  std::vector<int> value{world_rank};
  dp.all_reduce(value, mg::sum);
  return value[0];
}

}  // namespace

template <>
struct mgroups::group_traits<FirstStageTag> {
  static mg::Members members(const mg::ProcessGrid& grid, int rank) {
    return grid.members<mg::TPDPTag>(grid.members<mg::PPTag>(rank)[0]);
  }
};

TEST_CASE("size, rank and members are arithmetic and make no communicator") {
  for (const int n : {1, 2, 3, 4, 7, 8}) {
    mg::run_threads(n, [n](auto& world) {
      const int tp_size = n % 2 == 0 ? 2 : 1;
      const mg::ProcessGrid grid{"tp-cp-ep-dp-pp", {.tp = tp_size}, n};
      auto tp = mg::make_group<mg::TPTag>(world, grid);
      auto dp = mg::make_group<mg::DPTag>(world, grid);
      REQUIRE(tp.size() == tp_size);
      REQUIRE(dp.size() == n / tp_size);
      REQUIRE(tp.rank() == world.rank() % tp_size);
      REQUIRE(dp.rank() == world.rank() / tp_size);
      REQUIRE(dp.members()[dp.rank()] == world.rank());
      REQUIRE(dp.name() == "DPTag");
      REQUIRE_FALSE(tp.communicator_made());
      REQUIRE_FALSE(dp.communicator_made());
    });
  }
}

TEST_CASE("verbs run over the members, in group order") {
  for (const int n : {1, 2, 3, 4, 7, 8}) {
    mg::run_threads(n, [n](auto& world) {
      const int tp_size = n % 2 == 0 ? 2 : 1;
      const mg::ProcessGrid grid{"tp-cp-ep-dp-pp", {.tp = tp_size}, n};
      auto dp = mg::make_group<mg::DPTag>(world, grid);
      const std::vector<int> mine{world.rank()};
      std::vector<int> all(static_cast<std::size_t>(dp.size()));
      dp.all_gather(mine, all);
      REQUIRE(all == list(dp.members()));
      REQUIRE(dp.communicator_made());
      int total = 0;
      for (const int rank : dp.members()) total += rank;
      REQUIRE(sum_of_world_ranks(dp, world.rank()) == total);
      // Both handles are one communicator.
      const mg::Group<mg::DPTag> erased = dp;
      REQUIRE(erased.communicator_made());
      dp.synchronize();
      dp.on(nullptr).barrier();
    });
  }
}

TEST_CASE("the first verb is collective over the members alone") {
  // Ranks 0 and 2 never touch their groups.
  mg::run_threads(4, [](auto& world) {
    const mg::ProcessGrid grid{"tp-dp", {.tp = 2}, 4};
    auto dp = mg::make_group<mg::DPTag>(world, grid);
    if (dp.members()[0] == 0) return;
    REQUIRE(sum_of_world_ranks(dp, world.rank()) == 1 + 3);
  });
}

// The case api-root-is-a-rank-within-the-group of shared/cases.
TEST_CASE("a root is a rank within the group") {
  mg::run_threads(4, [](auto& world) {
    const auto broadcast = [&](std::vector<int> ranks, int root) {
      auto group = mg::make_group<RackTag>(world, ranks);
      if (!group.is_member()) return -1;
      std::vector<int> value{10 * world.rank()};
      group.broadcast(value, root);
      return value[0];
    };
    const bool upper = world.rank() >= 2;
    REQUIRE(broadcast({2, 3}, 0) == (upper ? 20 : -1));
    REQUIRE(broadcast({2, 3}, 1) == (upper ? 30 : -1));
    REQUIRE(broadcast({3, 1}, 0) == (world.rank() % 2 == 1 ? 30 : -1));
    if (upper) {
      const std::string text = error_text<mg::InvalidArgument>([&] { broadcast({2, 3}, 2); });
      REQUIRE(contains(text, "root 2"));
      REQUIRE(contains(text, "RackTag"));
    }
  });
}

TEST_CASE("a rank outside is told so by name") {
  mg::run_threads(4, [](auto& world) {
    const mg::ProcessGrid grid{"tp-dp-pp", {.tp = 2, .pp = 2}, 4};
    auto first = mg::make_group<FirstStageTag>(world, grid);
    const mg::Group<FirstStageTag> erased = first;
    REQUIRE(first.size() == 2);
    if (world.rank() < 2) {
      REQUIRE(first.relation() == mg::Relation::member);
      std::vector<int> value{1};
      first.all_reduce(value, mg::sum);
      REQUIRE(value[0] == 2);
    } else {
      REQUIRE(first.relation() == mg::Relation::not_member);
      REQUIRE_FALSE(erased.is_member());
      const std::string expected =
          mg::concat("world rank ", world.rank(), " is not a member of its FirstStageTag group, which is [0, 1]");
      REQUIRE(contains(error_text<mg::NotAMember>([&] { (void)erased.rank(); }), expected));
      REQUIRE(contains(error_text<mg::NotAMember>([&] { first.barrier(); }), expected));
      std::vector<int> value{1};
      REQUIRE(contains(error_text<mg::NotAMember>([&] { first.all_reduce(value, mg::sum); }), expected));
      REQUIRE(contains(error_text<mg::NotAMember>([&] { first.send(value, 0); }), expected));
    }
  });
}

TEST_CASE("an absent axis: alone, and verbs are done at once") {
  mg::run_threads(3, [](auto& world) {
    const mg::ProcessGrid grid{"tp-dp", {}, 3};
    auto node = mg::make_group<RackTag>(world, grid);
    REQUIRE(node.relation() == mg::Relation::absent);
    REQUIRE(node.is_member());
    REQUIRE(node.size() == 1);
    REQUIRE(node.rank() == 0);
    REQUIRE(list(node.members()) == std::vector{world.rank()});
    std::vector<double> value{2.5, 1.0};
    node.all_reduce(value, mg::sum);
    REQUIRE(value == std::vector{2.5, 1.0});
    std::vector<double> out(2);
    node.all_gather(value, out);
    REQUIRE(out == value);
    node.barrier();
    auto declared = mg::absent_group<mg::CPTag>(world);
    REQUIRE(declared.size() == 1);
    declared.barrier();
  });
}

TEST_CASE("no_group says that a group is not given") {
  const auto given = [](mg::Group<mg::TPTag> tp) { return tp.given(); };
  CHECK_FALSE(given(mg::no_group));
  mg::solo_comm world;
  CHECK(given(mg::absent_group<mg::TPTag>(world)));
  mg::Group<mg::TPTag> nothing;
  CHECK_FALSE(static_cast<bool>(nothing));
  CHECK(contains(error_text<mg::InvalidArgument>([&] { (void)nothing.size(); }), "no TPTag group was given"));
  CHECK(contains(error_text<mg::InvalidArgument>([&] { nothing.barrier(); }), "no TPTag group was given"));
}

TEST_CASE("retag checks that the members are those that the new tag means") {
  mg::run_threads(4, [](auto& world) {
    const mg::ProcessGrid plain{"tp-cp-dp", {.tp = 2}, 4};
    auto dp = mg::make_group<mg::DPTag>(world, plain);
    mg::Group<mg::DPCPTag> dp_cp = mg::retag<mg::DPCPTag>(dp);
    REQUIRE(dp_cp.members() == dp.members());
    std::vector<int> value{1};
    dp_cp.all_reduce(value, mg::sum);
    REQUIRE(value[0] == 2);
    REQUIRE(dp.communicator_made());
    REQUIRE(contains(error_text<mg::TopologyError>([&] { (void)mg::retag<mg::TPTag>(dp); }), "the DPTag group is ["));

    const mg::ProcessGrid context{"cp-dp", {.cp = 2}, 4};
    const std::string text =
        error_text<mg::TopologyError>([&] { (void)mg::retag<mg::DPCPTag>(mg::make_group<mg::DPTag>(world, context)); });
    REQUIRE(contains(text, "DPCPTag means [0, 1, 2, 3]"));
    REQUIRE(contains(text, "cp 2 x dp 2"));

    auto listed = mg::make_group<mg::DPTag>(world, std::vector{0, 1, 2, 3});
    REQUIRE(contains(error_text<mg::TopologyError>([&] { (void)mg::retag<mg::DPCPTag>(listed); }),
                "was not made from a ProcessGrid"));
    REQUIRE_FALSE(mg::retag<mg::DPCPTag>(mg::Group<mg::DPTag>(mg::no_group)).given());
  });
}

TEST_CASE("groups of lists, and of communicators that exist") {
  mg::run_threads(4, [](auto& world) {
    auto part = world.split(world.rank() % 2, -world.rank());
    auto adopted = mg::adopt_group<RackTag>(world, std::move(part));
    REQUIRE(list(adopted.members()) == (world.rank() % 2 == 0 ? std::vector{2, 0} : std::vector{3, 1}));
    REQUIRE(adopted.rank() == (world.rank() < 2 ? 1 : 0));
    REQUIRE(adopted.communicator_made());
    adopted.barrier();
    for (const std::vector<int>& bad : {std::vector<int>{}, {0, 0}, {4}, {-1, 2}}) {
      REQUIRE(contains(error_text<mg::InvalidArgument>([&] { (void)mg::make_group<RackTag>(world, bad); }),
                  "cannot be a RackTag group"));
    }
    const mg::ProcessGrid larger{"tp-dp", {}, 8};
    REQUIRE(contains(error_text<mg::TopologyError>([&] { (void)mg::make_group<mg::TPTag>(world, larger); }),
                "the world has 4 ranks"));
  });
}

TEST_CASE("a group is a communicator itself, and any backend will do") {
  mg::run_threads(2, [](auto& world) {
    const mg::ProcessGrid grid{"tp-dp", {.tp = 2}, 2};
    mg::any_communicator erased_world = mg::any_communicator::borrow(world);
    mg::Group<mg::TPTag> tp = mg::make_group<mg::TPTag>(erased_world, grid);
    auto any = mg::any_communicator::borrow(tp);
    std::vector<int> value{5};
    any.all_reduce(value, mg::sum);
    REQUIRE(value[0] == 10);
    REQUIRE(any.name() == "TPTag");
    REQUIRE(any.world_rank(1) == 1);
    const std::string text = error_text<mg::InvalidArgument>([&] { tp.broadcast(value, 2); });
    REQUIRE(contains(text, "TPTag"));
  });
}
