// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <cstddef>
#include <string>
#include <unordered_set>
#include <vector>

#include <mgroups/format/torch_dist/pickle_reader.hpp>
#include <mgroups/format/torch_dist/pickle_text.hpp>
#include <mgroups/format/torch_dist/pickle_value.hpp>
#include <mgroups/format/utf8.hpp>

#include "harness.hpp"

namespace mgroups_fuzz {

using mgroups::PickleKind;
using mgroups::PickleValue;

/// Looks at every value once, in whatever way it can be looked at; pushes what it holds.
void look_at(PickleValue value, std::vector<PickleValue>& next) {
  switch (value.kind()) {
    case PickleKind::none:
    case PickleKind::big_integer: break;
    case PickleKind::boolean: static_cast<void>(value.as_bool()); break;
    case PickleKind::integer: static_cast<void>(value.as_int()); break;
    case PickleKind::real: static_cast<void>(value.as_double()); break;
    case PickleKind::string:
      require(mgroups::detail::utf8_fault(value.as_string()) == std::string::npos, "a str is UTF-8");
      break;
    case PickleKind::bytes:
      for (const std::byte byte : value.as_bytes()) static_cast<void>(byte);
      break;
    case PickleKind::tuple:
    case PickleKind::list:
    case PickleKind::set:
      for (std::size_t i = 0; i < value.size(); ++i) next.push_back(value[i]);
      break;
    case PickleKind::dict:
      for (std::size_t i = 0; i < value.size(); ++i) {
        next.push_back(value.key(i));
        next.push_back(value.value(i));
      }
      break;
    case PickleKind::global: static_cast<void>(value.is_global(value.module_name(), value.class_name())); break;
    case PickleKind::object:
      next.push_back(value.callable());
      next.push_back(value.args());
      if (const auto state = value.state()) next.push_back(*state);
      if (const auto items = value.items()) next.push_back(*items);
      break;
    case PickleKind::persistent: next.push_back(value.persistent_id()); break;
    case PickleKind::record: break;
  }
}

void walk(PickleValue root) {
  std::unordered_set<std::uint32_t> seen;
  std::vector<PickleValue> next{root};
  while (!next.empty()) {
    const PickleValue value = next.back();
    next.pop_back();
    if (seen.insert(value.id()).second) look_at(value, next);
  }
}

void run(Bytes input) {
  for (const auto ids : {mgroups::PersistentIds::refused, mgroups::PersistentIds::allowed}) {
    succeeds([&] {
      const MemoryLimit limit(128 * input.size() + (128 << 10));
      const mgroups::PickleDocument document(input, "input", ids);
      const PickleValue root = document.root();
      for (const std::size_t size : {0u, 20u, 400u}) {
        const std::string text = to_string(root, size);
        require(text.size() <= size + 3 && mgroups::detail::utf8_fault(text) == std::string::npos, "a text is short UTF-8");
      }
      if (root.is(PickleKind::object)) static_cast<void>(root.attribute("version"));
    });
    succeeds([&] { walk(mgroups::PickleDocument(input, "input", ids).root()); });
  }
}

}  // namespace mgroups_fuzz
