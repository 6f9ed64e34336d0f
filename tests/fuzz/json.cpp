// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <optional>
#include <string>
#include <string_view>

#include <mgroups/format/json.hpp>
#include <mgroups/format/json_writer.hpp>

#include "harness.hpp"

namespace mgroups_fuzz {

using mgroups::JsonKind;
using mgroups::JsonValue;

// As deep as JsonDocument::max_depth at most.
void write(JsonValue value, mgroups::JsonWriter& out) {
  switch (value.kind()) {
    case JsonKind::null: out.null(); break;
    case JsonKind::boolean: out.value(value.as_bool()); break;
    case JsonKind::integer: out.value(value.as_int64()); break;
    case JsonKind::unsigned_integer: out.value(value.as_uint64()); break;
    case JsonKind::real: out.value(value.as_double()); break;
    case JsonKind::string: out.value(value.as_string()); break;
    case JsonKind::array:
      out.begin_array();
      value.for_each_element([&](JsonValue element) { write(element, out); });
      out.end_array();
      break;
    case JsonKind::object:
      out.begin_object();
      value.for_each_member([&](std::string_view key, JsonValue member) {
        out.key(key);
        write(member, out);
      });
      out.end_object();
      break;
  }
}

std::string text_of(JsonValue value, int indent) {
  mgroups::JsonWriter out(indent);
  write(value, out);
  return out.take();
}

void run(Bytes input) {
  const MemoryLimit limit(128 * input.size() + (64 << 10));
  std::optional<mgroups::JsonDocument> document;
  const std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  if (!succeeds([&] { document.emplace(mgroups::JsonDocument::parse(text, "input")); })) return;
  // What was accepted can be written and read again: an error here is a bug as well.
  const std::string written = text_of(document->root(), -1);
  const auto again = mgroups::JsonDocument::parse(text_of(document->root(), 1), "what was written");
  require(text_of(again.root(), -1) == written, "what is written is read as it was");
}

}  // namespace mgroups_fuzz
