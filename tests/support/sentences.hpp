// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <mgroups/topology/members.hpp>

/// What an E says that f() throws.
template <class E, class F>
std::string error_text(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "no such error";
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

inline std::vector<int> list(const mgroups::Members& members) { return {members.begin(), members.end()}; }
