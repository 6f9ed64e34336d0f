// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <array>
#include <ranges>
#include <string_view>
#include <type_traits>

#include <mgroups/topology/grid.hpp>
#include <mgroups/topology/members.hpp>
#include <mgroups/topology/tags.hpp>

namespace mg = mgroups;

namespace my {
struct NodeTag : mg::axes<"tp", "cp"> {};
struct ShardTag : mg::axes<"shard"> {};
}  // namespace my

// Tags are empty, and distinct types with names of their own.
static_assert(std::is_empty_v<mg::TPTag> && std::is_empty_v<mg::DPCPTag> && std::is_empty_v<my::NodeTag>);
static_assert(!std::is_convertible_v<mg::TPTag, mg::DPTag>);
static_assert(mg::tag_name<mg::TPTag> == "TPTag");
static_assert(mg::tag_name<my::NodeTag> == "NodeTag");
static_assert(mg::group_traits<mg::TPEPPPTag>::axes == std::array<std::string_view, 3>{"etp", "ep", "pp"});

// A grid is arithmetic that a compiler can do.
constexpr mg::ProcessGrid grid{"tp-cp-ep-dp-pp", {.tp = 2, .etp = 1, .ep = 2, .pp = 2}, 8};
static_assert(grid.size<mg::TPTag>() == 2);
static_assert(grid.size<mg::DPTag>() == 2);
static_assert(grid.size<mg::CPTag>() == 1);
static_assert(grid.size<mg::TPPPTag>() == 4);
static_assert(grid.size<mg::TPEPTag>() == 2);
static_assert(grid.size<my::NodeTag>() == 2);
static_assert(grid.size<my::ShardTag>() == 1);
static_assert(grid.has<my::NodeTag>() && !grid.has<my::ShardTag>());
static_assert(grid.rank<mg::PPTag>(5) == 1);
static_assert(grid.color<mg::TPTag>(5) == 2);
static_assert(grid.members<mg::EDPTag>(5) == mg::Members(5, {{2, 2}}));
static_assert(grid.members<mg::WorldTag>(0).size() == 8);
static_assert(grid.group_of("tp-pp", 6).members[3] == 7);
static_assert(mg::ProcessGrid{{{"shard", 4}, {"replica", mg::infer}}, 12}.size<my::ShardTag>() == 4);
static_assert(std::is_trivially_copyable_v<mg::ProcessGrid>);

static_assert(std::ranges::random_access_range<mg::Members> && std::ranges::sized_range<mg::Members>);
static_assert(std::is_trivially_copyable_v<mg::Members>);
