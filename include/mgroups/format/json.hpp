// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/format/utf8.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

enum class JsonKind : std::uint8_t { null, boolean, integer, unsigned_integer, real, string, array, object };

/// `"an array"` and so on, for sentences.
[[nodiscard]] constexpr std::string_view name(JsonKind kind) noexcept {
  switch (kind) {
    case JsonKind::null: return "null";
    case JsonKind::boolean: return "a boolean";
    case JsonKind::integer:
    case JsonKind::unsigned_integer: return "an integer";
    case JsonKind::real: return "a number";
    case JsonKind::string: return "a string";
    case JsonKind::array: return "an array";
    case JsonKind::object: return "an object";
  }
  return "a value";
}

namespace detail {

/// One value, or one key, in the order of the text. A container's children follow it, up to `end`.
struct JsonNode {
  std::uint64_t payload = 0;   // the number's bits, a string's first byte in the text, a container's number of children
  std::uint32_t position = 0;  // byte in the text where the value starts
  std::uint32_t end = 0;       // one past the last node of this value; a string's length
  JsonKind kind = JsonKind::null;
};

struct JsonText {
  std::string text;  // escapes are resolved in place, which never lengthens a string
  std::string file;
  std::vector<JsonNode> nodes;
};

}  // namespace detail

/// One value of a JsonDocument, which must outlive it. Cheap to copy. Each access that asks for another kind of value than
/// the file holds is a FormatError naming file and byte.
class JsonValue {
 public:
  [[nodiscard]] JsonKind kind() const noexcept { return node().kind; }
  [[nodiscard]] bool is_null() const noexcept { return kind() == JsonKind::null; }
  [[nodiscard]] bool is_string() const noexcept { return kind() == JsonKind::string; }
  [[nodiscard]] bool is_array() const noexcept { return kind() == JsonKind::array; }
  [[nodiscard]] bool is_object() const noexcept { return kind() == JsonKind::object; }
  /// Byte of the text at which the value starts.
  [[nodiscard]] std::size_t position() const noexcept { return node().position; }

  [[nodiscard]] bool as_bool() const {
    expect(JsonKind::boolean);
    return node().payload != 0;
  }
  [[nodiscard]] std::int64_t as_int64() const {
    expect(JsonKind::integer);
    return static_cast<std::int64_t>(node().payload);
  }
  /// A number without fraction or exponent in [0, 2^64).
  [[nodiscard]] std::uint64_t as_uint64() const {
    if (kind() == JsonKind::unsigned_integer) return node().payload;
    const std::int64_t value = as_int64();
    if (value < 0) fail(concat("is ", value, " where a number of at least 0 must be"));
    return static_cast<std::uint64_t>(value);
  }
  [[nodiscard]] double as_double() const {
    if (kind() == JsonKind::unsigned_integer) return static_cast<double>(node().payload);
    if (kind() == JsonKind::integer) return static_cast<double>(as_int64());
    expect(JsonKind::real);
    double value = 0;
    std::memcpy(&value, &node().payload, sizeof value);
    return value;
  }
  /// Valid as long as the document.
  [[nodiscard]] std::string_view as_string() const {
    expect(JsonKind::string);
    return std::string_view(text_->text).substr(static_cast<std::size_t>(node().payload), node().end);
  }

  /// Number of elements of an array or of members of an object.
  [[nodiscard]] std::size_t size() const {
    if (!is_object()) expect(JsonKind::array);
    return static_cast<std::size_t>(node().payload);
  }
  /// Calls `f(JsonValue)` for each element of an array.
  template <class F>
  void for_each_element(F&& f) const {
    expect(JsonKind::array);
    for (std::uint32_t i = index_ + 1; i < node().end; i = JsonValue(text_, i).next()) f(JsonValue(text_, i));
  }
  /// Calls `f(std::string_view key, JsonValue)` for each member of an object, in the file's order.
  template <class F>
  void for_each_member(F&& f) const {
    expect(JsonKind::object);
    for (std::uint32_t i = index_ + 1; i < node().end;) {
      const JsonValue key(text_, i), value(text_, i + 1);
      f(key.as_string(), value);
      i = value.next();
    }
  }
  /// The member named `key`, or nothing. Linear: to visit all, use for_each_member.
  [[nodiscard]] std::optional<JsonValue> find(std::string_view key) const {
    expect(JsonKind::object);
    for (std::uint32_t i = index_ + 1; i < node().end;) {
      const JsonValue value(text_, i + 1);
      if (JsonValue(text_, i).as_string() == key) return value;
      i = value.next();
    }
    return std::nullopt;
  }
  /// The member named `key`, or a FormatError that says it is missing.
  [[nodiscard]] JsonValue at(std::string_view key) const {
    const auto value = find(key);
    if (!value) fail(concat("has no member ", detail::in_quotes(key)));
    return *value;
  }

  /// Throws the FormatError "<file>: the value at byte <n> <what>".
  [[noreturn]] void fail(const std::string& what) const {
    throw FormatError(concat(text_->file, ": the value at byte ", node().position, " ", what), {.file = text_->file});
  }

 private:
  friend class JsonDocument;
  JsonValue(const detail::JsonText* text, std::uint32_t index) noexcept : text_(text), index_(index) {}

  [[nodiscard]] const detail::JsonNode& node() const noexcept { return text_->nodes[index_]; }
  [[nodiscard]] std::uint32_t next() const noexcept {
    return kind() == JsonKind::array || kind() == JsonKind::object ? node().end : index_ + 1;
  }
  void expect(JsonKind wanted) const {
    if (kind() != wanted) fail(concat("is ", name(kind()), " where ", name(wanted), " must be"));
  }

  const detail::JsonText* text_;
  std::uint32_t index_;
};

/// A parsed JSON text. Movable; the values point into it and stay valid when it moves.
class JsonDocument {
 public:
  /// How deep arrays and objects may be nested.
  static constexpr int max_depth = 128;

  /// Parses one value and nothing behind it but white space, as RFC 8259 has it: no comments, no trailing commas, no NaN.
  /// Stricter where the RFC leaves freedom: duplicate keys, lone surrogates, broken UTF-8, depth above `max_depth`, numbers
  /// that no int64, uint64 or finite double holds are refused. Throws FormatError naming `file_name` and the byte.
  [[nodiscard]] static JsonDocument parse(std::string text, std::string_view file_name);

  [[nodiscard]] JsonValue root() const noexcept { return JsonValue(text_.get(), 0); }

 private:
  explicit JsonDocument(std::unique_ptr<detail::JsonText> text) noexcept : text_(std::move(text)) {}
  std::unique_ptr<detail::JsonText> text_;
};

MGROUPS_END_NAMESPACE

#include <mgroups/format/json_parser.hpp>
