// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/topology/members.hpp>
#include <mgroups/topology/sizes.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

// Axes with sizes that are still to be checked against the world.
struct SizeTable {
  AxisSize rows[max_grid_axes] = {};
  int count = 0;
  bool etp_follows_tp = false;

  constexpr void add(const AxisName& name, int size) { rows[count++] = {name, size}; }
  [[nodiscard]] constexpr int count_of(int size) const noexcept {
    int n = 0;
    for (int i = 0; i < count; ++i) n += rows[i].size == size ? 1 : 0;
    return n;
  }
  [[nodiscard]] constexpr int size_of(std::string_view name) const noexcept {
    for (int i = 0; i < count; ++i) {
      if (rows[i].name.view() == name) return rows[i].size;
    }
    return 1;
  }
};

inline constexpr std::int64_t too_many_ranks = std::int64_t{1} << 31;

// Product of the known sizes but that of `skipped`; `too_many_ranks` stands for all that is not below it.
[[nodiscard]] constexpr std::int64_t known_product(const SizeTable& table, int skipped = -1) noexcept {
  std::int64_t product = 1;
  for (int i = 0; i < table.count; ++i) {
    if (i == skipped || table.rows[i].size == infer) continue;
    product *= table.rows[i].size;
    if (product >= too_many_ranks) return too_many_ranks;
  }
  return product;
}

// `tp 2 x cp 1 x pp 3 = 6`.
[[nodiscard]] inline std::string product_text(const SizeTable& table) {
  std::string out;
  for (int i = 0; i < table.count; ++i) {
    if (table.rows[i].size == infer) continue;
    if (!out.empty()) out += " x ";
    out += concat(table.rows[i].name.view(), ' ', table.rows[i].size);
  }
  const std::int64_t product = known_product(table);
  if (product == too_many_ranks) return out + " is 2^31 or more, which";
  return out + concat(" = ", product);
}

// `1, 2 or 4`: the divisors of n, the middle left out when there are many.
[[nodiscard]] inline std::string divisors_text(std::int64_t n) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d == 0) divisors.push_back(d);
  }
  for (std::size_t i = divisors.size(); i-- > 0;) {
    if (divisors[i] != n / divisors[i]) divisors.push_back(n / divisors[i]);
  }
  std::string out;
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const bool last = i + 1 == divisors.size();
    if (divisors.size() > 8 && i >= 7 && !last) continue;
    if (i > 0) out += !last ? ", " : (divisors.size() > 8 ? ", ... or " : " or ");
    out += concat(divisors[i]);
  }
  return out;
}

// Which change of one size would make the product fit into `world` ranks.
[[nodiscard]] inline std::string remedy_text(const SizeTable& table, int world) {
  const bool exact = table.count_of(infer) == 0;
  std::string out;
  for (int i = 0; i < table.count; ++i) {
    if (table.rows[i].size == infer) continue;
    const std::int64_t others = known_product(table, i);
    if (world % others != 0) continue;
    const std::int64_t room = world / others;
    if (room == table.rows[i].size) continue;
    // Where a size is inferred, a size of 1 that could only grow is no remedy.
    if (!exact && table.rows[i].size == 1) continue;
    out += concat(out.empty() ? "" : "; ", table.rows[i].name.view(), ' ', exact ? concat(room) : divisors_text(room));
  }
  if (out.empty()) return "no change of a single size makes it fit, so change several or the number of ranks";
  return "what fits with the other sizes kept: " + out;
}

[[noreturn]] inline void throw_bad_size(const AxisSize& row) {
  throw TopologyError(concat("the size of axis ", row.name.view(), " is ", row.size,
                             "; sizes are 1 or more, or mgroups::infer for the one that the others determine"));
}

[[noreturn]] inline void throw_two_inferred(const SizeTable& table) {
  std::string names;
  for (int i = 0; i < table.count; ++i) {
    if (table.rows[i].size == infer) names += concat(names.empty() ? "" : " and ", table.rows[i].name.view());
  }
  throw TopologyError(concat(names, " are all to be inferred, but only one size can follow from the others; give the rest"));
}

[[noreturn]] inline void throw_does_not_fit(const SizeTable& table, std::string_view inferred, int world) {
  const std::int64_t product = known_product(table);
  std::string sentence = product_text(table);
  if (inferred.empty()) {
    sentence += concat(product > world ? " is more than" : " is not", " the world of ", world, " ranks");
  } else {
    sentence += concat(product > world ? " is more than" : " does not divide", " the world of ", world, " ranks, so ",
                       inferred, " cannot be inferred");
  }
  if (table.etp_follows_tp) {
    sentence += concat("; etp was not given and is therefore tp = ", table.size_of("etp"), ", as in Megatron");
  }
  throw TopologyError(concat(sentence, "; ", remedy_text(table, world)));
}

// Puts the inferred size in, and refuses what is not exactly the world.
constexpr void resolve_sizes(SizeTable& table, int world) {
  int inferred = -1;
  for (int i = 0; i < table.count; ++i) {
    if (table.rows[i].size == infer) inferred = i;
    else if (table.rows[i].size < 1) throw_bad_size(table.rows[i]);
  }
  if (table.count_of(infer) > 1) throw_two_inferred(table);
  const std::int64_t product = known_product(table);
  if (inferred < 0) {
    if (product != world) throw_does_not_fit(table, {}, world);
  } else {
    if (world % product != 0) throw_does_not_fit(table, table.rows[inferred].name.view(), world);
    table.rows[inferred].size = static_cast<int>(world / product);
  }
}

}  // namespace detail

MGROUPS_END_NAMESPACE
