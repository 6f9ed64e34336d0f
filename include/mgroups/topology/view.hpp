// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <mgroups/topology/members.hpp>
#include <mgroups/topology/sizes.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Where a rank stands in a group of a grid.
struct GridGroup {
  Members members;  ///< world ranks in group order
  int rank = 0;     ///< the rank's place among them; -1: it is not a member
  int color = 0;    ///< equal on exactly the members of one group, as `split` wants it; -1: not a member

  [[nodiscard]] constexpr int size() const noexcept { return members.size(); }
  [[nodiscard]] constexpr bool is_member() const noexcept { return rank >= 0; }
};

namespace detail {

struct GridAxis {
  AxisName name;
  int size = 1;
  int stride = 1;
};

// A product of axes over all ranks of a grid, fastest first. Sets of axes are bit masks over it.
class GridView {
 public:
  constexpr void add(const AxisName& name, int size) {
    axes_[count_] = {name, size, count_ == 0 ? 1 : axes_[count_ - 1].stride * axes_[count_ - 1].size};
    ++count_;
  }

  [[nodiscard]] constexpr int count() const noexcept { return count_; }
  [[nodiscard]] constexpr const GridAxis& operator[](int axis) const noexcept { return axes_[axis]; }
  [[nodiscard]] constexpr const GridAxis* begin() const noexcept { return axes_; }
  [[nodiscard]] constexpr const GridAxis* end() const noexcept { return axes_ + count_; }

  // -1: this view has no such axis.
  [[nodiscard]] constexpr int find(std::string_view name) const noexcept {
    for (int i = 0; i < count_; ++i) {
      if (axes_[i].name.view() == name) return i;
    }
    return -1;
  }

  [[nodiscard]] constexpr int size(unsigned mask) const noexcept {
    int size = 1;
    for (int i = 0; i < count_; ++i) {
      if ((mask >> i & 1u) != 0) size *= axes_[i].size;
    }
    return size;
  }

  // `rank` counts from the grid's first rank. Colours number the groups as Megatron's RankGenerator lists them.
  [[nodiscard]] constexpr GridGroup group_of(unsigned mask, int rank, int first_rank) const {
    GridGroup out;
    Members::Dimension dimensions[max_grid_axes] = {};
    int dimension_count = 0;
    int first = first_rank;
    int rank_scale = 1;
    int color_scale = 1;
    for (int i = 0; i < count_; ++i) {
      const GridAxis& axis = axes_[i];
      const int coordinate = rank / axis.stride % axis.size;
      if ((mask >> i & 1u) != 0) {
        dimensions[dimension_count++] = {axis.size, axis.stride};
        out.rank += coordinate * rank_scale;
        rank_scale *= axis.size;
      } else {
        first += coordinate * axis.stride;
        out.color += coordinate * color_scale;
        color_scale *= axis.size;
      }
    }
    out.members = Members(first, std::span<const Members::Dimension>(dimensions, static_cast<std::size_t>(dimension_count)));
    return out;
  }

 private:
  GridAxis axes_[max_grid_axes] = {};
  int count_ = 0;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
