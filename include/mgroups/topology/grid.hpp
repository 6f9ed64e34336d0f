// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/topology/arithmetic.hpp>
#include <mgroups/topology/members.hpp>
#include <mgroups/topology/order.hpp>
#include <mgroups/topology/sizes.hpp>
#include <mgroups/topology/tags.hpp>
#include <mgroups/topology/view.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// How the ranks of a world are numbered along axes of parallelism. The leftmost axis of the order varies fastest. A value
/// type of fixed size; every query is local arithmetic, O(axes), and nothing lists the groups of the world.
///
/// In Megatron's form the same ranks have two views, as in `megatron.core.parallel_state`: the dense one with tp, cp, dp and
/// pp, and that of the experts with etp, ep, edp and pp, in the same order with etp in the place of tp and edp in that of
/// dp. Tags on ep, etp or edp are resolved in the latter.
class ProcessGrid {
 public:
  /// `ProcessGrid{"tp-cp-ep-dp-pp", {.tp = 2, .pp = 2}, 8}`: Megatron's axes. The order may leave out axes of size 1, and
  /// its letters may be of either case; `dp` and `edp` are inferred unless said otherwise, `etp` is as `tp`. The grid covers
  /// `world_size` ranks from `first_rank` on. Throws TopologyError where the sizes do not make `world_size` in either view,
  /// or where the views would put different ranks into a pipeline: an order that does not end in pp needs edp = dp
  /// (Megatron's rule). If neither order nor sizes mention experts, that last refusal waits until an expert tag is asked
  /// for.
  constexpr ProcessGrid(std::string_view order, const GridSizes& sizes, int world_size, int first_rank = 0)
      : world_size_(world_size), first_rank_(first_rank), megatron_axes_(true) {
    check_world();
    const detail::NameList names = detail::megatron_order(order);
    const int tp = make_dense(order, names, sizes);
    make_expert(order, names, sizes, tp);
  }

  /// `ProcessGrid{{{"replica", 2}, {"shard", mgroups::infer}}, 8}`: any axes in one view, the first varies fastest. An axis
  /// that a tag names and the grid does not have is absent. Throws TopologyError as above.
  constexpr ProcessGrid(std::initializer_list<AxisSize> axes, int world_size, int first_rank = 0)
      : ProcessGrid(std::span(axes.begin(), axes.size()), world_size, first_rank) {}
  constexpr ProcessGrid(std::span<const AxisSize> axes, int world_size, int first_rank = 0)
      : world_size_(world_size), first_rank_(first_rank) {
    check_world();
    detail::SizeTable table;
    for (const AxisSize& axis : axes) {
      if (table.count == max_grid_axes) {
        throw TopologyError(concat(axes.size(), " axes are more than the ", max_grid_axes, " that a grid may have"));
      }
      for (int i = 0; i < table.count; ++i) {
        if (table.rows[i].name.view() == axis.name.view()) {
          throw TopologyError(concat("the axis ", axis.name.view(), " is given twice; name each axis once"));
        }
      }
      table.add(axis.name, axis.size);
    }
    detail::resolve_sizes(table, world_size);
    fill(dense_, table);
  }

  /// Number of ranks of the grid.
  [[nodiscard]] constexpr int world_size() const noexcept { return world_size_; }
  [[nodiscard]] constexpr int first_rank() const noexcept { return first_rank_; }
  [[nodiscard]] constexpr bool contains(int rank) const noexcept {
    return rank >= first_rank_ && rank - first_rank_ < world_size_;
  }
  /// Size of one axis, 1 if the grid does not have it. Throws TopologyError for an expert axis where there is no expert
  /// view.
  [[nodiscard]] constexpr int axis_size(std::string_view axis) const {
    const Selection selected = select(std::span(&axis, 1));
    return selected.view->size(selected.mask);
  }

  [[nodiscard]] constexpr bool has_axis(std::string_view axis) const noexcept {
    return dense_.find(axis) >= 0 || (megatron_axes_ && is_expert_axis(axis));
  }
  /// True when the experts have a view of their own; in a grid of one view all axes are factors of the world.
  [[nodiscard]] constexpr bool has_expert_view() const noexcept { return megatron_axes_; }
  /// True when the grid has all axes of the tag, so that its group is not merely absent.
  template <class Tag>
  [[nodiscard]] constexpr bool has() const noexcept {
    if constexpr (detail::has_axes<Tag>) {
      for (const std::string_view axis : group_traits<Tag>::axes) {
        if (!has_axis(axis)) return false;
      }
    }
    return true;
  }

  /// Number of ranks in each group of the tag: the product of its axes' sizes, where absent axes count 1.
  template <class Tag>
    requires detail::has_axes<Tag>
  [[nodiscard]] constexpr int size() const {
    const Selection selected = select(group_traits<Tag>::axes);
    return selected.view->size(selected.mask);
  }

  /// The group of `rank`. Throws TopologyError where the rank is not in the grid or the tag joins axes of both views.
  template <class Tag>
  [[nodiscard]] constexpr GridGroup group_of(int rank) const {
    check_rank(rank);
    if constexpr (detail::has_axes<Tag>) {
      const Selection selected = select(group_traits<Tag>::axes);
      return selected.view->group_of(selected.mask, rank - first_rank_, first_rank_);
    } else {
      GridGroup out;
      out.members = group_traits<Tag>::members(*this, rank);
      out.rank = out.members.index_of(rank);
      out.color = out.rank < 0 ? -1 : out.members[0];
      return out;
    }
  }

  /// The same for axes named at run time, dash-joined in any order: `group_of("tp-dp", rank)`. An axis that the grid does
  /// not have is a TopologyError here.
  [[nodiscard]] constexpr GridGroup group_of(std::string_view axis_names, int rank) const {
    check_rank(rank);
    const detail::NameList names(axis_names);
    for (const std::string_view name : names) {
      if (!has_axis(name)) throw_no_axis(name);
    }
    const Selection selected = select(std::span(names.begin(), names.end()));
    return selected.view->group_of(selected.mask, rank - first_rank_, first_rank_);
  }

  /// Members of the group of `rank`, as world ranks in group order.
  template <class Tag>
  [[nodiscard]] constexpr Members members(int rank) const {
    return group_of<Tag>(rank).members;
  }
  /// Place of `rank` in its group, -1 where it is not a member.
  template <class Tag>
  [[nodiscard]] constexpr int rank(int rank) const {
    return group_of<Tag>(rank).rank;
  }
  /// What `split` wants: equal exactly on the members of one group, -1 where the rank is not a member.
  template <class Tag>
  [[nodiscard]] constexpr int color(int rank) const {
    return group_of<Tag>(rank).color;
  }
  /// What `split` wants beside the colour: the place in the group.
  template <class Tag>
  [[nodiscard]] constexpr int key(int rank) const {
    return group_of<Tag>(rank).rank;
  }

  /// `tp 2 x cp 1 x dp 2 x pp 2 = 8 ranks`.
  [[nodiscard]] friend std::string to_string(const ProcessGrid& grid) {
    std::string out;
    for (const detail::GridAxis& axis : grid.dense_) {
      out += concat(out.empty() ? "" : " x ", axis.name.view(), ' ', axis.size);
    }
    return out + concat(out.empty() ? "" : " = ", grid.world_size_, " ranks");
  }

 private:
  enum class ExpertView : std::uint8_t { none, ready, refused };

  struct Selection {
    const detail::GridView* view;
    unsigned mask;
  };

  static constexpr bool is_expert_axis(std::string_view name) noexcept {
    return name == "ep" || name == "etp" || name == "edp";
  }

  constexpr int make_dense(std::string_view order, const detail::NameList& names, const GridSizes& sizes) {
    const bool other_inferred = sizes.tp == infer || sizes.cp == infer || sizes.pp == infer;
    const int dp = sizes.dp != detail::size_not_given ? sizes.dp : (other_inferred ? 1 : infer);
    detail::SizeTable table;
    const auto add = [&](std::string_view name) {
      if (name == "tp") table.add(name, sizes.tp);
      if (name == "cp") table.add(name, sizes.cp);
      if (name == "dp") table.add(name, dp);
      if (name == "pp") table.add(name, sizes.pp);
    };
    for (const std::string_view name : names) add(name);
    // RankGenerator appends what an order leaves out, in this sequence.
    for (const std::string_view name : {std::string_view("tp"), std::string_view("pp"), std::string_view("dp"),
                                        std::string_view("cp")}) {
      if (!names.contains(name)) add(name);
    }
    detail::resolve_sizes(table, world_size_);
    for (int i = 0; i < table.count; ++i) {
      const std::string_view name = table.rows[i].name.view();
      if (!names.contains(name) && table.rows[i].size != 1)
        detail::throw_not_in_order(order, name, name, table.rows[i].size);
    }
    fill(dense_, table);
    return table.size_of("tp");
  }

  constexpr void make_expert(std::string_view order, const detail::NameList& names, const GridSizes& sizes, int tp) {
    const bool asked = names.contains("ep") || sizes.ep != 1 || sizes.etp != detail::size_not_given ||
                       sizes.edp != detail::size_not_given;
    const bool other_inferred = sizes.ep == infer || sizes.etp == infer;
    const int edp = sizes.edp != detail::size_not_given ? sizes.edp : (other_inferred ? 1 : infer);
    detail::SizeTable table;
    table.etp_follows_tp = sizes.etp == detail::size_not_given;
    const auto add = [&](std::string_view name) {
      if (name == "tp") table.add("etp", table.etp_follows_tp ? tp : sizes.etp);
      if (name == "ep") table.add("ep", sizes.ep);
      if (name == "dp") table.add("edp", edp);
      if (name == "pp") table.add("pp", axis_size("pp"));
    };
    for (const std::string_view name : names) add(name);
    for (const std::string_view name : {std::string_view("tp"), std::string_view("pp"), std::string_view("dp"),
                                        std::string_view("ep")}) {
      if (!names.contains(name)) add(name);
    }
    detail::resolve_sizes(table, world_size_);
    fill(expert_, table);
    expert_state_ = ExpertView::ready;
    for (int i = 0; i < table.count; ++i) {
      const std::string_view name = table.rows[i].name.view();
      const std::string_view in_order = name == "etp" ? "tp" : (name == "edp" ? "dp" : name);
      if (names.contains(in_order) || table.rows[i].size == 1) continue;
      if (asked) detail::throw_not_in_order(order, in_order, name, table.rows[i].size);
      expert_state_ = ExpertView::refused;
    }
    if (!pipelines_agree(names)) {
      if (asked) throw_pipelines_differ();
      expert_state_ = ExpertView::refused;
    }
  }

  [[nodiscard]] constexpr bool pipelines_agree(const detail::NameList& names) const noexcept {
    const detail::GridAxis& dense = dense_[dense_.find("pp")];
    const detail::GridAxis& expert = expert_[expert_.find("pp")];
    if (dense.size == 1) return true;
    const bool pp_last = names.names[names.count - 1] == "pp";
    const bool same_dp = dense_[dense_.find("dp")].size == expert_[expert_.find("edp")].size;
    return (pp_last || same_dp) && dense.stride == expert.stride;
  }

  static constexpr void fill(detail::GridView& view, const detail::SizeTable& table) noexcept {
    for (int i = 0; i < table.count; ++i) view.add(table.rows[i].name, table.rows[i].size);
  }

  [[nodiscard]] constexpr Selection select(std::span<const std::string_view> names) const {
    const detail::GridView* view = &dense_;
    if (megatron_axes_) {
      for (const std::string_view name : names) {
        if (is_expert_axis(name)) view = &expert_;
      }
      if (view == &expert_ && expert_state_ == ExpertView::refused) throw_pipelines_differ();
    }
    unsigned mask = 0;
    for (const std::string_view name : names) {
      const int axis = view->find(name);
      if (axis >= 0) mask |= 1u << axis;
      else if (has_axis(name)) throw_two_views(names, name);
    }
    return {view, mask};
  }

  constexpr void check_world() const {
    if (world_size_ < 1 || first_rank_ < 0) {
      throw TopologyError(concat("a grid of ", world_size_, " ranks from rank ", first_rank_,
                                 " on cannot exist; it has 1 rank or more, and ranks count from 0"));
    }
  }
  constexpr void check_rank(int rank) const {
    if (!contains(rank)) {
      throw TopologyError(concat("rank ", rank, " is not in the grid, which has ranks ", first_rank_, " to ",
                                 first_rank_ + (world_size_ - 1), " (", to_string(*this), ")"));
    }
  }

  [[noreturn]] void throw_no_axis(std::string_view name) const {
    throw TopologyError(concat("the grid has no axis \"", name, "\"; it is ", to_string(*this)));
  }
  [[noreturn]] void throw_two_views(std::span<const std::string_view> names, std::string_view dense) const {
    throw TopologyError(
        concat("the axes ", list_text(names), " belong to two views of the ranks: ", dense,
               " is an axis of the dense view and not of the experts' (etp, ep, edp, pp), so no group has all of ",
               "them; the experts' counterparts of tp and dp are etp and edp"));
  }
  [[noreturn]] void throw_pipelines_differ() const {
    throw TopologyError(
        concat("the order of the axes does not end in pp, and dp is ", dense_[dense_.find("dp")].size, " but edp is ",
               expert_[expert_.find("edp")].size, " (", to_string(*this), "; etp ", expert_[expert_.find("etp")].size,
               " x ep ", expert_[expert_.find("ep")].size, " x edp ", expert_[expert_.find("edp")].size, " x pp ",
               expert_[expert_.find("pp")].size,
               "), so dense layers and experts would not have the same pipelines; put pp last in the order, or ",
               "choose etp and ep so that edp = dp and both have the same ranks in a pipeline"));
  }

  int world_size_ = 1;
  int first_rank_ = 0;
  bool megatron_axes_ = false;
  ExpertView expert_state_ = ExpertView::none;
  detail::GridView dense_;
  detail::GridView expert_;
};

template <>
struct group_traits<WorldTag> {
  [[nodiscard]] static constexpr Members members(const ProcessGrid& grid, int) {
    return {grid.first_rank(), {{grid.world_size(), 1}}};
  }
};

MGROUPS_END_NAMESPACE
