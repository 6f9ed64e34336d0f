// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/format/utf8.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Appends `text` as a JSON string with its quotes. Text that is not UTF-8 is an InvalidArgument.
inline void append_json_string(std::string& out, std::string_view text) {
  if (detail::utf8_fault(text) != std::string_view::npos) {
    throw InvalidArgument(concat("a text that is not UTF-8 cannot be written as JSON: ", detail::in_quotes(text)));
  }
  constexpr char hex[] = "0123456789abcdef";
  out.push_back('"');
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (code < 0x20) {
          out += "\\u00";
          out.push_back(hex[code >> 4]);
          out.push_back(hex[code & 0xFu]);
        } else {
          out.push_back(c);
        }
    }
  }
  out.push_back('"');
}

/// Writes JSON in the order of the calls: `json.begin_object().key("a").value(1).end_object()`. Commas, quotes and, where an
/// indent is given, line breaks are its own.
class JsonWriter {
 public:
  /// `indent` spaces per level, one member per line; below 0 everything on one line without spaces.
  explicit JsonWriter(int indent = -1) : indent_(indent) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }

  JsonWriter& key(std::string_view name) {
    separate();
    append_json_string(text_, name);
    text_ += indent_ < 0 ? ":" : ": ";
    after_key_ = true;
    return *this;
  }
  JsonWriter& value(std::string_view text) {
    separate();
    append_json_string(text_, text);
    return *this;
  }
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  template <class T>
    requires std::integral<T> || std::floating_point<T>
  JsonWriter& value(T number) {
    separate();
    if constexpr (std::same_as<T, bool>) {
      text_ += number ? "true" : "false";
    } else {
      if constexpr (std::floating_point<T>) {
        if (!std::isfinite(number)) throw InvalidArgument("JSON has no infinity and no NaN");
      }
      char digits[64];
      const std::string_view spelling(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
      text_ += spelling;
      // Without a point, readers take it for an integer, and refuse one that does not fit into 64 bits.
      if (std::floating_point<T> && spelling.find_first_of(".e") == std::string_view::npos) text_ += ".0";
    }
    return *this;
  }
  JsonWriter& null() {
    separate();
    text_ += "null";
    return *this;
  }

  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  [[nodiscard]] std::string take() noexcept { return std::move(text_); }

 private:
  void separate() {
    if (std::exchange(after_key_, false)) return;
    if (counts_.empty()) return;
    if (counts_.back()++ > 0) text_.push_back(',');
    new_line();
  }
  void new_line() {
    if (indent_ < 0) return;
    text_.push_back('\n');
    text_.append(counts_.size() * static_cast<std::size_t>(indent_), ' ');
  }
  JsonWriter& open(char bracket) {
    separate();
    text_.push_back(bracket);
    counts_.push_back(0);
    return *this;
  }
  JsonWriter& close(char bracket) {
    const bool filled = counts_.back() > 0;
    counts_.pop_back();
    if (filled) new_line();
    text_.push_back(bracket);
    return *this;
  }

  std::string text_;
  std::vector<std::size_t> counts_;  // members so far of each open object or array
  int indent_;
  bool after_key_ = false;
};

MGROUPS_END_NAMESPACE
