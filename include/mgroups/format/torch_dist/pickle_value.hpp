// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// What a node of a pickle is. Classes and functions are never looked up: `global` is their name, `object` the record that
/// one would be called, or its instance made, with these arguments. A torch.Size is the tuple that it is made of. A `record`
/// is an object that a reader of its own has taken in: only that reader knows more of it.
enum class PickleKind : std::uint8_t {
  none,
  boolean,
  integer,
  big_integer,
  real,
  string,
  bytes,
  tuple,
  list,
  dict,
  set,
  global,
  object,
  persistent,
  record,
};

[[nodiscard]] constexpr std::string_view name(PickleKind kind) noexcept {
  switch (kind) {
    case PickleKind::none: return "None";
    case PickleKind::boolean: return "a bool";
    case PickleKind::integer: return "an int";
    case PickleKind::big_integer: return "an int of more than 64 bits";
    case PickleKind::real: return "a float";
    case PickleKind::string: return "a str";
    case PickleKind::bytes: return "bytes";
    case PickleKind::tuple: return "a tuple";
    case PickleKind::list: return "a list";
    case PickleKind::dict: return "a dict";
    case PickleKind::set: return "a set";
    case PickleKind::global: return "a class or function";
    case PickleKind::object: return "an object";
    case PickleKind::persistent: return "a persistent id";
    case PickleKind::record: return "an object";
  }
  return "a value";
}

namespace detail {

// 16 bytes, so that the pickle of a million chunks stays in a few hundred megabytes. What `low` and `high` mean:
//   integer, real, boolean   the 64 bits of both
//   string, bytes, big       first byte in the input; `extra` is the length
//   tuple, list, dict, set   first link, capacity in links; `extra` links are in use (a dict: key, value, key, ...)
//                            a tuple of one or two elements holds them here and has no links
//   global                   nodes of module and name
//   object                   nodes of callable and arguments; `extra` is the state or `no_node`. Where `extended` is set,
//                            `low` is the first of the links callable, arguments, state, items and keyword arguments
//   persistent               node of the id
//   record                   as its reader says
struct PickleNode {
  PickleKind kind = PickleKind::none;
  bool extended = false;
  bool instantiated = false;  // of an object: its class was not called but instantiated
  std::uint8_t tag = 0;       // for a reader of its own
  std::uint32_t extra = 0;
  std::uint32_t low = 0;
  std::uint32_t high = 0;

  [[nodiscard]] std::uint64_t bits() const noexcept { return std::uint64_t{high} << 32 | low; }
  void set_bits(std::uint64_t bits) noexcept {
    low = static_cast<std::uint32_t>(bits);
    high = static_cast<std::uint32_t>(bits >> 32);
  }
};
static_assert(sizeof(PickleNode) == 16);

inline constexpr std::uint32_t no_node = 0xFFFFFFFFu;

struct PickleTree {
  std::vector<PickleNode> nodes;
  std::vector<std::uint32_t> links;
  std::span<const std::byte> input;
  std::string_view file;

  [[noreturn]] void fail(const std::string& what) const {
    throw FormatError(concat(file, ": ", what), {.file = std::string(file)});
  }
};

}  // namespace detail

/// One value of a pickle; refers to the PickleDocument and its input, which must outlive it. Cheap to copy. Asking for
/// another kind of value than is there is a FormatError that names the file. Values may be shared and may contain
/// themselves: a walk over a whole pickle must bound its own depth and length.
class PickleValue {
 public:
  PickleValue(const detail::PickleTree* tree, std::uint32_t index) noexcept : tree_(tree), index_(index) {}

  [[nodiscard]] PickleKind kind() const noexcept { return node().kind; }
  [[nodiscard]] bool is(PickleKind wanted) const noexcept { return kind() == wanted; }
  [[nodiscard]] bool is_none() const noexcept { return kind() == PickleKind::none; }
  /// Equal for two occurrences of one and the same memoised value.
  [[nodiscard]] std::uint32_t id() const noexcept { return index_; }

  [[nodiscard]] bool as_bool() const {
    expect(PickleKind::boolean);
    return node().low != 0;
  }
  [[nodiscard]] std::int64_t as_int() const {
    expect(PickleKind::integer);
    return static_cast<std::int64_t>(node().bits());
  }
  /// Two's complement, the lowest byte first; a view of the input.
  [[nodiscard]] std::span<const std::byte> as_big_integer() const {
    expect(PickleKind::big_integer);
    return tree_->input.subspan(static_cast<std::size_t>(node().bits()), node().extra);
  }
  [[nodiscard]] double as_double() const {
    expect(PickleKind::real);
    const std::uint64_t bits = node().bits();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  /// UTF-8; a view of the input.
  [[nodiscard]] std::string_view as_string() const {
    expect(PickleKind::string);
    return text();
  }
  /// A view of the input.
  [[nodiscard]] std::span<const std::byte> as_bytes() const {
    expect(PickleKind::bytes);
    return tree_->input.subspan(static_cast<std::size_t>(node().bits()), node().extra);
  }

  /// Elements of a tuple, list or set, pairs of a dict.
  [[nodiscard]] std::size_t size() const {
    if (is(PickleKind::dict)) return node().extra / 2;
    if (!is(PickleKind::tuple) && !is(PickleKind::list) && !is(PickleKind::set)) expect(PickleKind::tuple);
    return node().extra;
  }
  /// Element `i` < size() of a tuple, list or set.
  [[nodiscard]] PickleValue operator[](std::size_t i) const { return {tree_, link(i)}; }
  /// Key and value of pair `i` < size() of a dict.
  [[nodiscard]] PickleValue key(std::size_t i) const { return {tree_, link(2 * i)}; }
  [[nodiscard]] PickleValue value(std::size_t i) const { return {tree_, link(2 * i + 1)}; }

  /// Of a global.
  [[nodiscard]] std::string_view module_name() const {
    expect(PickleKind::global);
    return PickleValue(tree_, node().low).as_string();
  }
  [[nodiscard]] std::string_view class_name() const {
    expect(PickleKind::global);
    return PickleValue(tree_, node().high).as_string();
  }
  [[nodiscard]] bool is_global(std::string_view module, std::string_view class_name_wanted) const {
    return is(PickleKind::global) && module_name() == module && class_name() == class_name_wanted;
  }

  /// Of an object: what would be called or instantiated, usually a global.
  [[nodiscard]] PickleValue callable() const {
    expect(PickleKind::object);
    return {tree_, node().extended ? tree_->links[node().low] : node().low};
  }
  /// Of an object: whether Python would make it by `callable.__new__(callable, *args)`, not by `callable(*args)`.
  [[nodiscard]] bool instantiated() const {
    expect(PickleKind::object);
    return node().instantiated;
  }
  /// Of an object: the arguments, a tuple.
  [[nodiscard]] PickleValue args() const {
    expect(PickleKind::object);
    return {tree_, node().extended ? tree_->links[node().low + 1] : node().high};
  }
  /// Of an object: what BUILD would pass to it, mostly a dict of attributes.
  [[nodiscard]] std::optional<PickleValue> state() const {
    expect(PickleKind::object);
    return optional(node().extended ? tree_->links[node().low + 2] : node().extra);
  }
  /// Of an object that is a dict, list or set of its own class (OrderedDict): a dict, list or set.
  [[nodiscard]] std::optional<PickleValue> items() const {
    expect(PickleKind::object);
    return node().extended ? optional(tree_->links[node().low + 3]) : std::nullopt;
  }
  /// Of an object: whether there are keyword arguments as well.
  [[nodiscard]] bool has_keywords() const {
    expect(PickleKind::object);
    return node().extended && tree_->links[node().low + 4] != detail::no_node;
  }
  /// Of a persistent id.
  [[nodiscard]] PickleValue persistent_id() const {
    expect(PickleKind::persistent);
    return {tree_, node().low};
  }

  /// An attribute in an object's state: of a `__dict__`, or of the pair (`__dict__` or None, dict of slots).
  [[nodiscard]] std::optional<PickleValue> attribute(std::string_view attribute_name) const {
    const auto own = state();
    if (!own) return std::nullopt;
    if (own->is(PickleKind::tuple) && own->size() == 2) {
      for (std::size_t i = 0; i < 2; ++i) {
        if (!(*own)[i].is(PickleKind::dict)) continue;
        if (const auto found = (*own)[i].lookup(attribute_name)) return found;
      }
      return std::nullopt;
    }
    return own->is(PickleKind::dict) ? own->lookup(attribute_name) : std::nullopt;
  }
  /// The value of a string key of a dict; the last one, as Python would keep it. Linear.
  [[nodiscard]] std::optional<PickleValue> lookup(std::string_view wanted) const {
    expect(PickleKind::dict);
    for (std::size_t i = size(); i-- > 0;) {
      const PickleValue candidate = key(i);
      if (candidate.is(PickleKind::string) && candidate.text() == wanted) return value(i);
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] const detail::PickleNode& node() const noexcept { return tree_->nodes[index_]; }
  [[nodiscard]] std::uint32_t link(std::size_t i) const noexcept {
    const detail::PickleNode& own = node();
    if (own.kind == PickleKind::tuple && own.extra <= 2) return i == 0 ? own.low : own.high;
    return tree_->links[own.low + i];
  }
  [[nodiscard]] std::string_view text() const noexcept {
    const auto* first = reinterpret_cast<const char*>(tree_->input.data());
    return {first + node().bits(), node().extra};
  }
  [[nodiscard]] std::optional<PickleValue> optional(std::uint32_t index) const noexcept {
    if (index == detail::no_node) return std::nullopt;
    return PickleValue(tree_, index);
  }
  void expect(PickleKind wanted) const {
    if (kind() != wanted) tree_->fail(concat("holds ", name(kind()), " where ", name(wanted), " must be"));
  }

  const detail::PickleTree* tree_;
  std::uint32_t index_;
};

MGROUPS_END_NAMESPACE
