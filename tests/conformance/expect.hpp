// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include <mgroups/core/text.hpp>

// Checks that work on any rank of any backend: they throw, so that a rank that has seen something wrong takes the others
// with it.

namespace conformance {

inline void expect(bool holds, std::string_view what) {
  if (!holds) throw std::runtime_error(mgroups::concat("conformance: ", what));
}

/// got[i] == want(i) for all i.
template <class T, class Want>
void expect_elements(std::span<const T> got, Want want, std::string_view what, int rank) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == static_cast<T>(want(i))) continue;
    throw std::runtime_error(mgroups::concat("conformance: ", what, ": on rank ", rank, " element ", i, " of ", got.size(),
                                             " is ", got[i], " and should be ", static_cast<T>(want(i))));
  }
}

/// `f()` throws an `Exception` whose text contains `part`.
template <class Exception, class F>
void expect_throws(F f, std::string_view part, std::string_view what) {
  try {
    f();
  } catch (const Exception& e) {
    if (std::string_view(e.what()).find(part) != std::string_view::npos) return;
    throw std::runtime_error(mgroups::concat("conformance: ", what, ": '", e.what(), "' does not say '", part, "'"));
  }
  throw std::runtime_error(mgroups::concat("conformance: ", what, " was not refused"));
}

}  // namespace conformance
