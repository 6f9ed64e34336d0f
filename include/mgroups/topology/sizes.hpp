// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <limits>
#include <string_view>

#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// As the size of an axis: whatever the other axes leave of the world. At most one axis of a view may say so.
inline constexpr int infer = -1;

namespace detail {

inline constexpr int size_not_given = std::numeric_limits<int>::min();

// The name of an axis as a value without allocation.
struct AxisName {
  static constexpr std::size_t capacity = 15;

  char text[capacity + 1] = {};

  constexpr AxisName() = default;
  constexpr AxisName(std::string_view name) {
    if (name.empty() || name.size() > capacity) {
      throw TopologyError(concat("the axis name \"", name, "\" has ", name.size(), " characters; give it 1 to ", capacity));
    }
    for (std::size_t i = 0; i < name.size(); ++i) {
      if (name[i] == '-') throw TopologyError(concat("the axis name \"", name, "\" holds a dash, which separates axes"));
      text[i] = name[i];
    }
  }
  constexpr AxisName(const char* name) : AxisName(std::string_view(name)) {}
  [[nodiscard]] constexpr std::string_view view() const noexcept { return text; }
};

}  // namespace detail

/// Sizes of Megatron's axes. They stand in the order of "tp-cp-ep-dp-pp", each expert axis after its dense counterpart; axes
/// that are left out have the size said here.
struct GridSizes {
  int tp = 1;                       ///< tensor parallel
  int etp = detail::size_not_given;  ///< tensor parallel in the experts: as tp, which is Megatron's default
  int cp = 1;                       ///< context parallel
  int ep = 1;                       ///< expert parallel
  int dp = detail::size_not_given;   ///< data parallel, context not counted: inferred, or 1 where another dense size is
  int edp = detail::size_not_given;  ///< data parallel of the experts: inferred, or 1 where another expert size is
  int pp = 1;                       ///< pipeline parallel
};

/// An axis of your own and its size: `{"replica", 2}`.
struct AxisSize {
  detail::AxisName name;
  int size = 1;
};

MGROUPS_END_NAMESPACE
