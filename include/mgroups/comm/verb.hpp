// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstdint>
#include <string_view>

#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// What a communicator can be asked to do: in error messages, and as a run-time question to `any_communicator`.
enum class Verb : std::uint8_t {
  barrier,
  broadcast,
  all_reduce,
  all_gather,
  all_gather_v,
  all_to_all_v,
  send,
  recv,
  split,
  create_group,
  duplicate,
  set_deadline,
  abort,
};

[[nodiscard]] constexpr std::string_view name(Verb verb) noexcept {
  constexpr std::string_view names[] = {
      "barrier", "broadcast", "all_reduce",   "all_gather", "all_gather_v", "all_to_all_v", "send",
      "recv",    "split",     "create_group", "duplicate",  "set_deadline", "abort",
  };
  return names[static_cast<int>(verb)];
}

MGROUPS_END_NAMESPACE
