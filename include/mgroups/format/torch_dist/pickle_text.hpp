// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <string>

#include <mgroups/core/text.hpp>
#include <mgroups/format/torch_dist/pickle_value.hpp>
#include <mgroups/format/utf8.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

inline void append_pickle_text(std::string& out, PickleValue value, std::size_t limit, int depth);

inline void append_pickle_elements(std::string& out, PickleValue value, std::size_t limit, int depth) {
  for (std::size_t i = 0; i < value.size() && out.size() < limit; ++i) {
    if (i > 0) out += ", ";
    if (value.is(PickleKind::dict)) {
      append_pickle_text(out, value.key(i), limit, depth);
      out += ": ";
      append_pickle_text(out, value.value(i), limit, depth);
    } else {
      append_pickle_text(out, value[i], limit, depth);
    }
  }
}

inline void append_pickle_object(std::string& out, PickleValue value, std::size_t limit, int depth) {
  append_pickle_text(out, value.callable(), limit, depth);
  out += '(';
  append_pickle_elements(out, value.args(), limit, depth);
  out += ')';
  for (const auto& part : {value.state(), value.items()}) {
    if (!part) continue;
    out += ' ';
    append_pickle_text(out, *part, limit, depth);
  }
}

inline void append_pickle_text(std::string& out, PickleValue value, std::size_t limit, int depth) {
  if (out.size() >= limit) return;
  if (depth == 0) {
    out += "...";
    return;
  }
  const auto bracketed = [&](const char* open, const char* close) {
    out += open;
    append_pickle_elements(out, value, limit, depth - 1);
    out += close;
  };
  switch (value.kind()) {
    case PickleKind::none: out += "None"; return;
    case PickleKind::boolean: out += value.as_bool() ? "True" : "False"; return;
    case PickleKind::integer: out += concat(value.as_int()); return;
    case PickleKind::big_integer: out += "<int of more than 64 bits>"; return;
    case PickleKind::real: out += concat(value.as_double()); return;
    case PickleKind::string: out += in_quotes(value.as_string(), limit); return;
    case PickleKind::bytes: out += concat('<', value.as_bytes().size(), " bytes>"); return;
    case PickleKind::tuple: return bracketed("(", value.size() == 1 ? ",)" : ")");
    case PickleKind::list: return bracketed("[", "]");
    case PickleKind::dict: return bracketed("{", "}");
    case PickleKind::set: return bracketed("set(", ")");
    case PickleKind::global:
      // Each may be as long as the file; to_string cuts what this leaves of a character.
      out += concat(value.module_name().substr(0, limit), '.', value.class_name().substr(0, limit));
      return;
    case PickleKind::record: out += "<object>"; return;
    case PickleKind::object: return append_pickle_object(out, value, limit, depth - 1);
    case PickleKind::persistent:
      out += '<';
      append_pickle_text(out, value.persistent_id(), limit, depth - 1);
      out += '>';
      return;
  }
}

}  // namespace detail

/// A value in Python's notation, for people: at most about `limit` bytes and 16 levels deep, whatever it holds.
[[nodiscard]] inline std::string to_string(PickleValue value, std::size_t limit = 400) {
  std::string out;
  detail::append_pickle_text(out, value, limit, 16);
  if (out.size() > limit) {
    out.resize(limit);
    if (const std::size_t cut = detail::utf8_fault(out); cut != std::string::npos) out.resize(cut);
    out += "...";
  }
  return out;
}

MGROUPS_END_NAMESPACE
