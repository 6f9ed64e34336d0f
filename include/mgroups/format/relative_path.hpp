// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <optional>
#include <string_view>

#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Why a path that stands in a file does not name a file below that file's folder: one phrase, or nothing when it does.
[[nodiscard]] constexpr std::optional<std::string_view> relative_path_fault(std::string_view path) noexcept {
  if (path.empty()) return "is empty";
  if (path.size() > 4096) return "is longer than 4096 bytes";
  if (path.find('\0') != std::string_view::npos) return "holds a NUL byte";
  if (path.front() == '/') return "is absolute";
  while (true) {
    const auto slash = path.find('/');
    const auto part = path.substr(0, slash);
    if (part == "..") return "leaves the folder by '..'";
    if (part.empty() || part == ".") return "has an empty part";
    if (slash == std::string_view::npos) return std::nullopt;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace detail

MGROUPS_END_NAMESPACE
