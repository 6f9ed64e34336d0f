// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/version.hpp>

// Do the groups that a context is given account for its world, if every axis that is not given has size 1?

MGROUPS_BEGIN_NAMESPACE

namespace detail {

[[nodiscard]] constexpr bool is_dense_only(std::string_view axis) noexcept {
  return axis == "tp" || axis == "cp" || axis == "dp";
}
[[nodiscard]] constexpr bool is_expert_only(std::string_view axis) noexcept {
  return axis == "etp" || axis == "ep" || axis == "edp";
}
[[nodiscard]] constexpr bool is_own(std::string_view axis) noexcept {
  return !is_dense_only(axis) && !is_expert_only(axis) && axis != "pp";
}

// One group whose tag is a product of axes.
struct GivenGroup {
  std::string_view tag;
  std::span<const std::string_view> axes;
  int size = 1;

  template <class Predicate>
  [[nodiscard]] constexpr bool any_axis(Predicate predicate) const noexcept {
    for (const std::string_view axis : axes) {
      if (predicate(axis)) return true;
    }
    return false;
  }
};

// Groups of one view, their axes as bits.
class Account {
 public:
  void add(const GivenGroup& group) {
    Row row{group.tag, group.size, 0};
    for (const std::string_view axis : group.axes) row.axes |= std::uint32_t{1} << index_of(axis);
    rows_.push_back(row);
  }
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }

  // The fewest ranks that groups covering all axes multiply to: the world is not larger.
  [[nodiscard]] std::int64_t upper() {
    cover(0, 1);
    return upper_;
  }
  // The most ranks that groups without a common axis multiply to: the world is not smaller.
  [[nodiscard]] std::int64_t lower() {
    pick(0, 0, 1);
    return lower_;
  }
  [[nodiscard]] std::string upper_text() const { return product_text(upper_choice_, upper_); }
  [[nodiscard]] std::string lower_text() const { return product_text(lower_choice_, lower_); }

 private:
  struct Row {
    std::string_view tag;
    int size;
    std::uint32_t axes;
  };

  static constexpr std::int64_t limit = std::int64_t{1} << 40;
  static std::int64_t times(std::int64_t a, int b) { return a >= limit / b ? limit : a * b; }

  std::size_t index_of(std::string_view axis) {
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      if (axes_[i] == axis) return i;
    }
    axes_.push_back(axis);
    return axes_.size() - 1;
  }

  void cover(std::uint32_t covered, std::int64_t product) {
    if (product >= upper_) return;
    std::size_t axis = 0;
    while (axis < axes_.size() && (covered >> axis & 1u) != 0) ++axis;
    if (axis == axes_.size()) {
      upper_ = product;
      upper_choice_ = choice_;
      return;
    }
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if ((rows_[i].axes >> axis & 1u) == 0) continue;
      choice_.push_back(i);
      cover(covered | rows_[i].axes, times(product, rows_[i].size));
      choice_.pop_back();
    }
  }

  void pick(std::size_t from, std::uint32_t used, std::int64_t product) {
    if (product > lower_) {
      lower_ = product;
      lower_choice_ = choice_;
    }
    for (std::size_t i = from; i < rows_.size(); ++i) {
      if ((rows_[i].axes & used) != 0 || rows_[i].size == 1) continue;
      choice_.push_back(i);
      pick(i + 1, used | rows_[i].axes, times(product, rows_[i].size));
      choice_.pop_back();
    }
  }

  [[nodiscard]] std::string product_text(const std::vector<std::size_t>& choice, std::int64_t product) const {
    if (choice.empty()) return "1";
    std::string out;
    for (const std::size_t i : choice) out += concat(out.empty() ? "" : " x ", rows_[i].tag, ' ', rows_[i].size);
    return out + concat(" = ", product);
  }

  std::vector<std::string_view> axes_;
  std::vector<Row> rows_;
  std::vector<std::size_t> choice_;
  std::vector<std::size_t> upper_choice_;
  std::vector<std::size_t> lower_choice_;
  std::int64_t upper_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t lower_ = 1;
};

inline void check_account(Account& account, int world_size, int world_rank, bool absent_is_one, bool own_axes,
                          std::string_view example) {
  // Axes of somebody's own need not be factors of the world beside the others.
  if (!own_axes && account.lower() > world_size) {
    throw TopologyError(concat("the groups given to the context make ", account.lower_text(), " ranks, but its world has ",
                               world_size, "; the groups are not those of one grid over this world"),
                        {.rank = world_rank});
  }
  if (absent_is_one && account.upper() < world_size) {
    throw TopologyError(
        concat("the groups given to the context account for ", account.upper_text(), " of the world's ", world_size,
               " ranks, and under fallback::solo every axis that is not given has size 1; give the missing groups ",
               "too (perhaps ", example, "), or use fallback::strict, which never takes an axis to be absent"),
        {.rank = world_rank});
  }
}

// Throws TopologyError where the groups contradict the world. The experts' view is looked at when one of its groups is
// given.
inline void check_accounts(std::span<const GivenGroup> groups, int world_size, int world_rank, bool absent_is_one,
                           bool has_expert_view) {
  bool own = false, dense_given = false, expert_given = false;
  Account dense, expert;
  for (const GivenGroup& group : groups) {
    const bool in_dense = group.any_axis(is_dense_only) || group.any_axis(is_own);
    const bool in_expert = has_expert_view && group.any_axis(is_expert_only);
    own = own || group.any_axis(is_own);
    if (in_dense && in_expert) continue;
    dense_given = dense_given || in_dense || !has_expert_view;
    expert_given = expert_given || in_expert;
    if (!in_expert) dense.add(group);
    if (!in_dense) expert.add(group);
  }
  if (dense_given || !expert_given) check_account(dense, world_size, world_rank, absent_is_one, own, "DPCPTag");
  if (expert_given) check_account(expert, world_size, world_rank, absent_is_one, own, "EDPTag");
}

}  // namespace detail

MGROUPS_END_NAMESPACE
