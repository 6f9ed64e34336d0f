// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// ProcessGrid against the groups that the real Megatron-Core makes. The environment's MGROUPS_GOLDEN_DIR may name another
// folder with files of the same form.
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <mgroups/topology/grid.hpp>

#include <support/fixtures.hpp>

#include "support/sentences.hpp"

namespace mg = mgroups;
using nlohmann::json;

namespace {

struct EmbeddingTag {};
struct PositionEmbeddingTag {};

std::optional<json> golden(const std::string& name) {
  std::string folder;
  if (const char* const chosen = std::getenv("MGROUPS_GOLDEN_DIR")) folder = chosen;
  else if (const auto found = mgroups_test::fixture("mcore_golden")) folder = *found;
  std::ifstream in(folder + "/" + name);
  if (!in) {
    MESSAGE("skipped: no ", name, " in the folder with Megatron's golden values (MGROUPS_GOLDEN_DIR)");
    return std::nullopt;
  }
  return json::parse(in);
}

bool throws_topology_error(const std::function<void()>& make) {
  try {
    make();
  } catch (const mg::TopologyError&) {
    return true;
  }
  return false;
}

std::vector<mg::AxisSize> axes_of(const std::string& order, const json& sizes) {
  std::vector<mg::AxisSize> axes;
  const mg::detail::NameList names(order);
  for (const std::string_view name : names) axes.push_back({name, sizes.at(std::string(name)).get<int>()});
  return axes;
}

// Every rank of every group: its members in order, its place, and a colour that is the group's number in Megatron's list.
// One CHECK per list, as there are hundreds of thousands of ranks.
template <class GroupOf>
void check_groups(const json& groups, int world, int first, const GroupOf& group_of) {
  int wrong = 0, seen = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto expected = groups[g].get<std::vector<int>>();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const mg::GridGroup found = group_of(expected[i]);
      const bool right = list(found.members) == expected && found.rank == static_cast<int>(i) &&
                         found.color == static_cast<int>(g) && found.members.index_of(expected[i]) == static_cast<int>(i);
      wrong += right ? 0 : 1;
      seen += expected[i] >= first && expected[i] < first + world ? 1 : 0;
    }
  }
  CHECK(wrong == 0);
  CHECK(seen == world);
}

std::string expert_mask(std::string mask) {
  std::string out;
  for (const std::string_view name : mg::detail::NameList(mask)) {
    if (!out.empty()) out += '-';
    out += name == "tp" ? "etp" : (name == "dp" ? "edp" : std::string(name));
  }
  return out;
}

}  // namespace

template <>
struct mgroups::group_traits<EmbeddingTag> {
  static mg::Members members(const mg::ProcessGrid& grid, int rank) {
    const mg::Members pipeline = grid.members<mg::PPTag>(rank);
    const int last = pipeline.size() - 1;
    return {pipeline[0], {{last == 0 ? 1 : 2, pipeline[last] - pipeline[0]}}};
  }
};
template <>
struct mgroups::group_traits<PositionEmbeddingTag> {
  static mg::Members members(const mg::ProcessGrid& grid, int rank) { return {grid.members<mg::PPTag>(rank)[0], {}}; }
};

TEST_CASE("RankGenerator: every order and mask") {
  const auto file = golden("rank_generator.json");
  if (!file) return;
  int masks = 0, refusals = 0, dense = 0, experts = 0;
  for (const json& generator : file->at("generators")) {
    const std::string order = generator.at("order");
    INFO(generator.value("order", ""), " tp ", generator.at("tp").get<int>(), " cp ", generator.at("cp").get<int>(), " ep ",
         generator.at("ep").get<int>(), " dp ", generator.at("dp").get<int>(), " pp ", generator.at("pp").get<int>());
    const int tp = generator.at("tp"), cp = generator.at("cp"), ep = generator.at("ep"), dp = generator.at("dp"),
              pp = generator.at("pp");
    if (generator.contains("error")) {
      ++refusals;
      CHECK(throws_topology_error([&] {
        mg::ProcessGrid{order, {.tp = tp, .cp = cp, .ep = ep, .dp = dp, .pp = pp}, tp * cp * ep * dp * pp};
      }));
      continue;
    }
    const int world = generator.at("world"), first = generator.value("rank_offset", 0);
    const std::string resolved = generator.at("resolved_order");
    const auto axes = axes_of(resolved, generator);
    const mg::ProcessGrid grid(axes, world, first);
    for (const auto& [mask, groups] : generator.at("groups").items()) {
      ++masks;
      INFO("mask ", mask);
      check_groups(groups, world, first, [&, &names = mask](int rank) { return grid.group_of(names, rank); });
    }
    // The same through Megatron's two views.
    const bool pp_last = resolved.ends_with("pp") || order.ends_with("pp");
    if (ep == 1) {
      const auto make = [&] { return mg::ProcessGrid{order, {.tp = tp, .cp = cp, .dp = dp, .pp = pp}, world, first}; };
      const bool names_ep = order.find("ep") != std::string::npos || order.find("EP") != std::string::npos;
      CHECK(throws_topology_error([&] { (void)make(); }) == (names_ep && pp > 1 && cp > 1 && !pp_last));
      if (names_ep && pp > 1 && cp > 1 && !pp_last) continue;
      const mg::ProcessGrid two_views = make();
      for (const auto& [mask, groups] : generator.at("groups").items()) {
        if (mask.find("ep") != std::string::npos) continue;
        ++dense;
        check_groups(groups, world, first, [&, &names = mask](int rank) { return two_views.group_of(names, rank); });
      }
    } else if (pp_last) {
      const mg::ProcessGrid two_views{order, {.etp = tp, .ep = ep, .edp = dp, .pp = pp}, world, first};
      for (const auto& [mask, groups] : generator.at("groups").items()) {
        if (mask.find("cp") != std::string::npos) continue;
        ++experts;
        const std::string names = expert_mask(mask);
        check_groups(groups, world, first, [&](int rank) { return two_views.group_of(names, rank); });
      }
    }
  }
  MESSAGE(masks, " masks, ", dense, " through the dense view, ", experts, " through the experts', ", refusals, " refusals");
}

TEST_CASE("HyperCommGrid: any axes") {
  const auto file = golden("hyper_comm_grid.json");
  if (!file) return;
  for (const json& grid : file->at("grids")) {
    std::vector<mg::AxisSize> axes;
    int world = 1;
    for (std::size_t i = 0; i < grid.at("shape").size(); ++i) {
      axes.push_back(
          {std::string_view(grid.at("dim_names")[i].get_ref<const std::string&>()), grid.at("shape")[i].get<int>()});
      world *= axes.back().size;
    }
    const int first = grid.at("rank_offset");
    const mg::ProcessGrid ours(axes, world, first);
    for (const json& entry : grid.at("enums")) {
      std::string mask;
      for (const json& name : entry.at("dims")) mask += (mask.empty() ? "" : "-") + name.get<std::string>();
      INFO("mask ", mask);
      check_groups(entry.at("groups"), world, first, [&](int rank) { return ours.group_of(mask, rank); });
    }
  }
  for (const json& grid : file->at("errors")) {
    // Names and sizes come in pairs here, so that a list of another length cannot be said.
    if (grid.at("shape").size() != grid.at("dim_names").size()) continue;
    CHECK(throws_topology_error([&] {
      std::vector<mg::AxisSize> axes;
      for (std::size_t i = 0; i < grid.at("shape").size(); ++i) {
        axes.push_back(
            {std::string_view(grid.at("dim_names")[i].get_ref<const std::string&>()), grid.at("shape")[i].get<int>()});
      }
      const int first = grid.at("rank_offset");
      mg::ProcessGrid(axes, first < 0 ? 4 : grid.at("world").get<int>(), first);
    }));
  }
}

namespace {

template <class Tag>
void check_tag(const json& layout, const mg::ProcessGrid& grid, const char* kind) {
  INFO(kind, " in ", layout.at("layout").dump());
  const json& per_rank = layout.at("groups").at(kind);
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    const json& expected = per_rank[static_cast<std::size_t>(rank)];
    const mg::GridGroup found = grid.group_of<Tag>(rank);
    REQUIRE(found.is_member() == !expected.is_null());
    if (expected.is_null()) continue;
    const auto members = expected.get<std::vector<int>>();
    CHECK(list(found.members) == members);
    CHECK(members[static_cast<std::size_t>(found.rank)] == rank);
    if constexpr (mg::detail::has_axes<Tag>) CHECK(grid.size<Tag>() == static_cast<int>(members.size()));
  }
}

}  // namespace

TEST_CASE("parallel_state: every kind of group, for every rank") {
  const auto file = golden("parallel_groups.json");
  if (!file) return;
  int layouts = 0, refusals = 0;
  for (const json& layout : file->at("layouts")) {
    const json& sizes = layout.at("layout");
    const auto make = [&] {
      return mg::ProcessGrid{sizes.at("order").get_ref<const std::string&>(),
                             {.tp = sizes.at("tp"),
                              .etp = sizes.at("etp"),
                              .cp = sizes.at("cp"),
                              .ep = sizes.at("ep"),
                              .pp = sizes.at("pp")},
                             sizes.at("world").get<int>()};
    };
    if (layout.contains("error")) {
      ++refusals;
      CHECK(throws_topology_error([&] { (void)make(); }));
      continue;
    }
    ++layouts;
    const mg::ProcessGrid grid = make();
    check_tag<mg::TPTag>(layout, grid, "tp");
    check_tag<mg::PPTag>(layout, grid, "pp");
    check_tag<mg::CPTag>(layout, grid, "cp");
    check_tag<mg::DPTag>(layout, grid, "dp");
    check_tag<mg::DPCPTag>(layout, grid, "dp_cp");
    check_tag<mg::TPPPTag>(layout, grid, "mp");
    check_tag<mg::TPCPTag>(layout, grid, "tp_cp");
    check_tag<mg::TPDPTag>(layout, grid, "tp_dp");
    check_tag<mg::TPDPCPTag>(layout, grid, "tp_dp_cp");
    check_tag<mg::EPTag>(layout, grid, "ep");
    check_tag<mg::ETPTag>(layout, grid, "etp");
    check_tag<mg::TPEPTag>(layout, grid, "tp_ep");
    check_tag<mg::TPEPPPTag>(layout, grid, "tp_ep_pp");
    check_tag<mg::EDPTag>(layout, grid, "expt_dp");
    check_tag<EmbeddingTag>(layout, grid, "embd");
    check_tag<PositionEmbeddingTag>(layout, grid, "pos_embd");
  }
  MESSAGE(layouts, " layouts, ", refusals, " refusals");
}
