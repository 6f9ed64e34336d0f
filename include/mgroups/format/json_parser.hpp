// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/format/json.hpp>
#include <mgroups/format/utf8.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

class JsonParser {
 public:
  explicit JsonParser(JsonText& out) : out_(out), text_(out.text) {}

  void run() {
    if (text_.size() >= std::numeric_limits<std::uint32_t>::max()) fail("is longer than 4 GiB");
    if (const std::size_t at = utf8_fault(text_); at != std::string_view::npos) {
      position_ = at;
      fail("is not UTF-8");
    }
    skip_space();
    value(0);
    skip_space();
    if (position_ != text_.size()) fail("lies behind the end of the JSON value");
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw FormatError(concat(out_.file, ": byte ", position_, " of the JSON text ", what), {.file = out_.file});
  }
  [[nodiscard]] char peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }
  void skip_space() {
    while (position_ < text_.size() &&
           (text_[position_] == ' ' || text_[position_] == '\n' || text_[position_] == '\t' || text_[position_] == '\r')) {
      ++position_;
    }
  }
  void expect(char c, std::string_view what) {
    if (position_ >= text_.size()) fail(concat("is the end of the text, where ", what, " must be"));
    if (text_[position_] != c) fail(concat("is not ", what));
    ++position_;
  }
  [[nodiscard]] std::uint32_t add(JsonKind kind) {
    out_.nodes.push_back({.position = static_cast<std::uint32_t>(position_), .kind = kind});
    return static_cast<std::uint32_t>(out_.nodes.size() - 1);
  }

  void value(int depth) {
    switch (peek()) {
      case '{': return object(depth + 1);
      case '[': return array(depth + 1);
      case '"': return string();
      case 't': return word("true", JsonKind::boolean, 1);
      case 'f': return word("false", JsonKind::boolean, 0);
      case 'n': return word("null", JsonKind::null, 0);
      default: return number();
    }
  }
  void word(std::string_view spelling, JsonKind kind, std::uint64_t payload) {
    if (text_.substr(position_, spelling.size()) != spelling) fail("starts no JSON value");
    out_.nodes[add(kind)].payload = payload;
    position_ += spelling.size();
  }
  void enter(int depth) {
    if (depth > JsonDocument::max_depth) fail(concat("is nested deeper than ", JsonDocument::max_depth, " levels"));
    ++position_;
    skip_space();
  }
  void leave(std::uint32_t index, std::uint64_t count) {
    ++position_;
    out_.nodes[index].payload = count;
    out_.nodes[index].end = static_cast<std::uint32_t>(out_.nodes.size());
  }
  void array(int depth) {
    const std::uint32_t index = add(JsonKind::array);
    enter(depth);
    std::uint64_t count = 0;
    while (peek() != ']') {
      if (count++ > 0) {
        expect(',', "',' or ']'");
        skip_space();
      }
      value(depth);
      skip_space();
    }
    leave(index, count);
  }
  void object(int depth) {
    const std::uint32_t index = add(JsonKind::object);
    enter(depth);
    std::uint64_t count = 0;
    while (peek() != '}') {
      if (count++ > 0) {
        expect(',', "',' or '}'");
        skip_space();
      }
      if (peek() != '"') fail("is not '\"', the start of a key");
      string();
      skip_space();
      expect(':', "':'");
      skip_space();
      value(depth);
      skip_space();
    }
    leave(index, count);
    refuse_duplicates(index, static_cast<std::size_t>(count));
  }
  void refuse_duplicates(std::uint32_t object, std::size_t count) {
    if (count < 2) return;
    const auto key = [&](std::uint32_t i) { return text_.substr(out_.nodes[i].payload, out_.nodes[i].end); };
    std::vector<std::uint32_t> keys;
    keys.reserve(count);
    for (std::uint32_t i = object + 1; i < out_.nodes[object].end;) {
      keys.push_back(i);
      const JsonNode& member = out_.nodes[i + 1];
      i = member.kind == JsonKind::array || member.kind == JsonKind::object ? member.end : i + 2;
    }
    std::sort(keys.begin(), keys.end(), [&](std::uint32_t a, std::uint32_t b) {
      const int order = key(a).compare(key(b));
      return order != 0 ? order < 0 : a < b;
    });
    const auto twin = std::adjacent_find(keys.begin(), keys.end(), [&](auto a, auto b) { return key(a) == key(b); });
    if (twin == keys.end()) return;
    position_ = out_.nodes[*(twin + 1)].position;
    fail(concat("repeats the key ", in_quotes(key(*twin)), " of the same object"));
  }

  void string() {
    const std::uint32_t index = add(JsonKind::string);
    const std::size_t begin = ++position_;
    std::size_t end = begin;  // of the text with its escapes resolved
    char* const bytes = out_.text.data();
    while (true) {
      if (position_ >= text_.size()) fail("is the end of the text, within a string");
      const char c = text_[position_];
      if (c == '"') break;
      if (static_cast<unsigned char>(c) < 0x20) fail("is a control character within a string");
      if (c == '\\') {
        end += escape(bytes + end);
      } else {
        bytes[end++] = c;
        ++position_;
      }
    }
    ++position_;
    out_.nodes[index].payload = begin;
    out_.nodes[index].end = static_cast<std::uint32_t>(end - begin);
  }
  /// Resolves the escape at the current position into `to`, which is at or before it.
  [[nodiscard]] std::size_t escape(char* to) {
    constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    const char letter = position_ + 1 < text_.size() ? text_[position_ + 1] : '\0';
    if (letter == 'u') return encode_utf8(unicode_escape(), to);
    const std::size_t which = letter == '\0' ? std::string_view::npos : letters.find(letter);
    if (which == std::string_view::npos) fail("starts no escape that JSON knows");
    *to = meanings[which];
    position_ += 2;
    return 1;
  }
  [[nodiscard]] std::uint32_t unicode_escape() {
    const std::uint32_t first = hex4();
    if (first < 0xD800 || first > 0xDFFF) return first;
    if (first > 0xDBFF || text_.substr(position_, 2) != "\\u") fail("follows a lone surrogate");
    const std::uint32_t second = hex4();
    if (second < 0xDC00 || second > 0xDFFF) fail("follows a lone surrogate");
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  }
  [[nodiscard]] std::uint32_t hex4() {
    const std::string_view digits = text_.substr(std::min(position_ + 2, text_.size()), 4);
    std::uint32_t code = 0;
    const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (fault != std::errc{} || end != digits.data() + 4) fail("starts a \\u that lacks its four hexadecimal digits");
    position_ += 6;
    return code;
  }

  void number() {
    const std::uint32_t index = add(JsonKind::integer);
    const std::size_t begin = position_;
    const auto digits = [&] {
      const std::size_t first = position_;
      while (peek() >= '0' && peek() <= '9') ++position_;
      return position_ - first;
    };
    const bool negative = peek() == '-';
    if (negative) ++position_;
    const std::size_t integer_begin = position_;
    const std::size_t integer_digits = digits();
    if (integer_digits == 0) {
      position_ = begin;
      fail(begin == text_.size() ? "is the end of the text, where a value must be" : "starts no JSON value");
    }
    if (integer_digits > 1 && text_[integer_begin] == '0') fail("ends a number with a leading zero");
    bool real = false;
    if (peek() == '.') {
      real = true;
      ++position_;
      if (digits() == 0) fail("is not the digit that a decimal point needs");
    }
    if (peek() == 'e' || peek() == 'E') {
      real = true;
      ++position_;
      if (peek() == '+' || peek() == '-') ++position_;
      if (digits() == 0) fail("is not the digit that an exponent needs");
    }
    const std::string_view spelling = text_.substr(begin, position_ - begin);
    JsonNode& node = out_.nodes[index];
    const char* const first = spelling.data();
    const char* const last = first + spelling.size();
    if (!real) {
      std::int64_t value = 0;
      if (std::from_chars(first, last, value).ec == std::errc{}) {
        node.payload = static_cast<std::uint64_t>(value);
        return;
      }
      if (!negative && std::from_chars(first, last, node.payload).ec == std::errc{}) {
        node.kind = JsonKind::unsigned_integer;
        return;
      }
      position_ = begin;
      fail("starts an integer that does not fit into 64 bits");
    }
    double value = 0;
    if (std::from_chars(first, last, value).ec == std::errc::result_out_of_range) {
      // Too small is as good as zero; too large has no finite value.
      value = std::strtod(std::string(spelling).c_str(), nullptr);
      if (!std::isfinite(value)) {
        position_ = begin;
        fail("starts a number that is too large for a double");
      }
    }
    node.kind = JsonKind::real;
    std::memcpy(&node.payload, &value, sizeof value);
  }

  JsonText& out_;
  std::string_view text_;
  std::size_t position_ = 0;
};

}  // namespace detail

inline JsonDocument JsonDocument::parse(std::string text, std::string_view file_name) {
  auto parsed = std::make_unique<detail::JsonText>();
  parsed->text = std::move(text);
  parsed->file = std::string(file_name);
  detail::JsonParser(*parsed).run();
  return JsonDocument(std::move(parsed));
}

MGROUPS_END_NAMESPACE
