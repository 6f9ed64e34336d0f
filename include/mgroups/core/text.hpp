// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

inline void append_text(std::string& out, std::string_view text) { out.append(text); }
inline void append_text(std::string& out, char c) { out.push_back(c); }
template <class T>
  requires std::integral<T> || std::floating_point<T>
void append_text(std::string& out, T value) { out.append(std::to_string(value)); }

}  // namespace detail

/// Joins texts and numbers into one string: the sentence of an error.
template <class... Parts>
[[nodiscard]] std::string concat(const Parts&... parts) {
  std::string out;
  (detail::append_text(out, parts), ...);
  return out;
}

/// `[1, 2, 3]`, for anything iterable whose elements `concat` takes; after `limit` elements the rest is counted.
template <class Range>
[[nodiscard]] std::string list_text(const Range& range, std::size_t limit = 16) {
  std::string out = "[";
  std::size_t n = 0;
  for (const auto& element : range) {
    if (n < limit) {
      if (n > 0) out += ", ";
      detail::append_text(out, element);
    }
    ++n;
  }
  if (n > limit) out += concat(", ... ", n - limit, " more");
  return out + "]";
}

namespace detail {

/// Levenshtein's distance between two strings, in single-character edits.
[[nodiscard]] inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace detail

/// The candidate closest to `name` by edit distance, or an empty string when none shares at least half of it.
/// O(candidates x length^2): for error messages.
template <class Range>
[[nodiscard]] std::string nearest_name(std::string_view name, const Range& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(name.size() / 2, 1) + 1;
  for (const auto& candidate : candidates) {
    const std::string_view text = candidate;
    const std::size_t gap = text.size() > name.size() ? text.size() - name.size() : name.size() - text.size();
    if (gap >= best_distance) continue;
    const std::size_t distance = detail::edit_distance(name, text);
    if (distance < best_distance) {
      best_distance = distance;
      best = std::string(text);
    }
  }
  return best;
}

MGROUPS_END_NAMESPACE
