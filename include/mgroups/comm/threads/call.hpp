// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <mgroups/comm/buffer.hpp>
#include <mgroups/comm/verb.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE
namespace detail {

// What a rank publishes when it calls a verb: enough for every peer to check that all call the same, and to copy from it.
struct Call {
  Verb verb = Verb::barrier;
  ReduceOp op = ReduceOp::sum;
  ElementType type{};
  std::size_t count = 0;
  int peer = -1;  // the root, or the other end of a message
  int color = 0;  // of split
  int key = 0;
  const void* in = nullptr;
  void* out = nullptr;
  std::span<const std::size_t> send_counts{};
  std::span<const std::size_t> recv_counts{};
};

[[nodiscard]] inline std::string describe(const Call& call) {
  const std::string what(name(call.verb));
  switch (call.verb) {
    case Verb::broadcast: return concat(what, " of ", elements_text(call.count, call.type), " from root ", call.peer);
    case Verb::all_reduce: return concat(what, " of ", elements_text(call.count, call.type), " (", name(call.op), ')');
    case Verb::all_gather:
    case Verb::all_gather_v:
    case Verb::all_to_all_v: return concat(what, " of ", elements_text(call.count, call.type));
    case Verb::send: return concat(what, " of ", elements_text(call.count, call.type), " to rank ", call.peer);
    case Verb::recv: return concat(what, " of ", elements_text(call.count, call.type), " from rank ", call.peer);
    default: return what;
  }
}

// Whether two ranks have called the same thing. What the counts of v-verbs must satisfy is looked at apart.
[[nodiscard]] inline bool agree(const Call& a, const Call& b) {
  if (a.verb != b.verb) return false;
  switch (a.verb) {
    case Verb::broadcast: return a.type == b.type && a.count == b.count && a.peer == b.peer;
    case Verb::all_reduce: return a.type == b.type && a.count == b.count && a.op == b.op;
    case Verb::all_gather: return a.type == b.type && a.count == b.count;
    case Verb::all_gather_v:
    case Verb::all_to_all_v: return a.type == b.type;
    default: return true;
  }
}

}  // namespace detail
MGROUPS_END_NAMESPACE
