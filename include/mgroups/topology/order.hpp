// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <string_view>

#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/topology/members.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

// The names in a dash-joined list such as "tp-cp-ep-dp-pp", as views of it.
struct NameList {
  std::string_view names[max_grid_axes] = {};
  int count = 0;

  constexpr NameList() = default;
  constexpr explicit NameList(std::string_view text) {
    std::size_t begin = 0;
    while (true) {
      const std::size_t dash = text.find('-', begin);
      const std::string_view name = text.substr(begin, dash == std::string_view::npos ? dash : dash - begin);
      if (name.empty()) {
        throw TopologyError(concat("the axes \"", text,
                                   "\" hold an empty name; join the names of axes with single dashes, as in "
                                   "\"tp-cp-ep-dp-pp\""));
      }
      if (contains(name)) throw TopologyError(concat("the axes \"", text, "\" name ", name, " twice; name each axis once"));
      if (count == max_grid_axes) {
        throw TopologyError(concat("the axes \"", text, "\" are more than the ", max_grid_axes, " that a grid may have"));
      }
      names[count++] = name;
      if (dash == std::string_view::npos) return;
      begin = dash + 1;
    }
  }

  [[nodiscard]] constexpr const std::string_view* begin() const noexcept { return names; }
  [[nodiscard]] constexpr const std::string_view* end() const noexcept { return names + count; }
  [[nodiscard]] constexpr bool contains(std::string_view name) const noexcept {
    for (const std::string_view known : *this) {
      if (known == name) return true;
    }
    return false;
  }
};

[[noreturn]] inline void throw_not_of_megatron(std::string_view order, std::string_view name) {
  if (name == "etp" || name == "edp") {
    throw TopologyError(concat("the order \"", order, "\" names ", name,
                               ", but the experts share the order of the dense axes: ",
                               "etp stands where tp is and edp where dp is; give only its size"));
  }
  throw TopologyError(concat("the order \"", order, "\" names \"", name,
                             "\", which is none of tp, cp, ep, dp and pp; for axes ", "of your own use ProcessGrid{{{\"",
                             name, "\", 2}, ...}, world_size}"));
}

[[noreturn]] inline void throw_named_twice(std::string_view order, std::string_view name) {
  throw TopologyError(concat("the axes \"", order, "\" name ", name, " twice; name each axis once"));
}

// `name` is the axis of that size, `in_order` the one that stands for it in an order.
[[noreturn]] inline void throw_not_in_order(std::string_view order, std::string_view in_order, std::string_view name,
                                            int size) {
  throw TopologyError(concat(name, " has size ", size, ", but the order \"", order, "\" does not name ", in_order, "; add ",
                             in_order, " to the order, or make ", name, " 1"));
}

// An order of Megatron's axes. Letters may be of either case, as RankGenerator takes them.
[[nodiscard]] constexpr NameList megatron_order(std::string_view order) {
  constexpr std::string_view axes[] = {"tp", "cp", "ep", "dp", "pp"};
  const auto same = [](char letter, char lower) { return letter == lower || letter == lower - 'a' + 'A'; };
  NameList names(order);
  for (int i = 0; i < names.count; ++i) {
    const std::string_view name = names.names[i];
    std::string_view found;
    for (const std::string_view axis : axes) {
      if (name.size() == 2 && same(name[0], axis[0]) && same(name[1], axis[1])) found = axis;
    }
    if (found.empty()) throw_not_of_megatron(order, name);
    for (int j = 0; j < i; ++j) {
      if (names.names[j] == found) throw_named_twice(order, found);
    }
    names.names[i] = found;
  }
  return names;
}

}  // namespace detail

MGROUPS_END_NAMESPACE
