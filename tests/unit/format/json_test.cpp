// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/format/json.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <mgroups/format/json_writer.hpp>

#include "support/sentences.hpp"

namespace mg = mgroups;

namespace {

mg::JsonDocument parse(std::string_view text) { return mg::JsonDocument::parse(std::string(text), "some.json"); }

std::string json_fault(std::string_view text) {
  try {
    static_cast<void>(parse(text));
  } catch (const mg::FormatError& e) {
    CHECK(e.context().file == "some.json");
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("json: values of every kind") {
  const auto document =
      parse(R"( {"a": [1, -2, 18446744073709551615, 0.5, -1.5e3, true, false, null], "b": {"c": {}}, "": []} )");
  const auto root = document.root();
  REQUIRE(root.is_object());
  CHECK(root.size() == 3);
  std::vector<mg::JsonValue> a;
  root.at("a").for_each_element([&](mg::JsonValue v) { a.push_back(v); });
  REQUIRE(a.size() == 8);
  CHECK(a[0].as_int64() == 1);
  CHECK(a[0].as_uint64() == 1);
  CHECK(a[1].as_int64() == -2);
  CHECK(a[1].as_double() == -2.0);
  CHECK(a[2].as_uint64() == std::numeric_limits<std::uint64_t>::max());
  CHECK(a[3].as_double() == 0.5);
  CHECK(a[4].as_double() == -1500.0);
  CHECK(a[5].as_bool());
  CHECK_FALSE(a[6].as_bool());
  CHECK(a[7].is_null());
  CHECK(root.at("b").at("c").size() == 0);
  CHECK(root.at("").is_array());
  CHECK_FALSE(root.find("d").has_value());
  std::vector<std::string> keys;
  root.for_each_member([&](std::string_view key, mg::JsonValue) { keys.emplace_back(key); });
  CHECK(keys == std::vector<std::string>{"a", "b", ""});
}

TEST_CASE("json: integers at the edges of 64 bits") {
  CHECK(parse("9223372036854775807").root().as_int64() == std::numeric_limits<std::int64_t>::max());
  CHECK(parse("-9223372036854775808").root().as_int64() == std::numeric_limits<std::int64_t>::min());
  CHECK(parse("9223372036854775808").root().as_uint64() == 9223372036854775808u);
  CHECK_THROWS_AS(static_cast<void>(parse("9223372036854775808").root().as_int64()), mg::FormatError);
  CHECK(contains(json_fault("18446744073709551616"), "does not fit into 64 bits"));
  CHECK(contains(json_fault("-9223372036854775809"), "does not fit into 64 bits"));
  CHECK(contains(json_fault("1e999"), "too large"));
  CHECK(parse("1e-999").root().as_double() == 0.0);
  CHECK_THROWS_AS(static_cast<void>(parse("1.0").root().as_int64()), mg::FormatError);
}

TEST_CASE("json: escapes and UTF-8") {
  CHECK(parse(R"("\"\\\/\b\f\n\r\t")").root().as_string() == "\"\\/\b\f\n\r\t");
  CHECK(parse(R"("\u0041\u00e9\u20ac\ud83d\ude00z")").root().as_string() == "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z");
  CHECK(parse(R"("\u0000")").root().as_string() == std::string_view("\0", 1));
  CHECK(parse("\"\xF0\x9F\x98\x80\"").root().as_string() == "\xF0\x9F\x98\x80");
  CHECK(contains(json_fault(R"("\ud83d")"), "lone surrogate"));
  CHECK(contains(json_fault(R"("\ude00")"), "lone surrogate"));
  CHECK(contains(json_fault(R"("\ud83d\u0041")"), "lone surrogate"));
  for (const char* bad :
       {"\"\xC0\x80\"", "\"\xED\xA0\x80\"", "\"\xF4\x90\x80\x80\"", "\"\xE2\x82\"", "\"\x80\"", "\"\xFF\""}) {
    CHECK(contains(json_fault(bad), "byte 1 of the JSON text is not UTF-8"));
  }
}

TEST_CASE("json: what is refused, and where") {
  const std::pair<const char*, const char*> cases[] = {
      {"", "byte 0"},
      {"{", "byte 1"},
      {"[1,]", "byte 3"},
      {"[1 2]", "byte 3 of the JSON text is not ',' or ']'"},
      {"{\"a\":1,}", "byte 7"},
      {"{\"a\" 1}", "byte 5 of the JSON text is not ':'"},
      {"{a:1}", "byte 1"},
      {"[01]", "leading zero"},
      {"[1.]", "byte 3"},
      {"[.5]", "byte 1"},
      {"[1e]", "byte 3"},
      {"[+1]", "byte 1"},
      {"[-]", "byte 1"},
      {"nul", "byte 0"},
      {"NaN", "byte 0"},
      {"{} x", "byte 3 of the JSON text lies behind the end"},
      {"\"a\nb\"", "control character"},
      {"\"\\x\"", "byte 1 of the JSON text starts no escape"},
      {"\"\\u12g4\"", "four hexadecimal digits"},
      {"\"\\u-123\"", "four hexadecimal digits"},
      {"\"abc", "within a string"},
      {"{\"k\":1,\"j\":{},\"\\u006b\":2}", "byte 14 of the JSON text repeats the key 'k'"},
  };
  for (const auto& [text, part] : cases) {
    CAPTURE(text);
    const std::string sentence = json_fault(text);
    CAPTURE(sentence);
    CHECK(contains(sentence, part));
  }
  CHECK_NOTHROW(parse(std::string(128, '[') + std::string(128, ']')));
  CHECK(contains(json_fault(std::string(129, '[') + std::string(129, ']')), "nested deeper than 128"));
  CHECK(contains(json_fault(std::string(1u << 20, '[')), "nested deeper than 128"));
}

TEST_CASE("json: asking for the wrong kind names the byte") {
  const auto document = parse("{\"a\": [1]}");
  try {
    static_cast<void>(document.root().at("a").as_string());
    FAIL("no error");
  } catch (const mg::FormatError& e) {
    CHECK(std::string(e.what()) == "some.json: the value at byte 6 is an array where a string must be");
  }
  CHECK_THROWS_AS(static_cast<void>(document.root().at("b")), mg::FormatError);
}

TEST_CASE("json: every cut and every flipped bit is refused or still JSON") {
  const std::string text = R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"\u00e9":"\ud83d\ude00",)"
                           R"("n":[-1.5e-3,true,null]})";
  for (std::size_t cut = 0; cut < text.size(); ++cut) CHECK_FALSE(json_fault(text.substr(0, cut)).empty());
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      static_cast<void>(json_fault(changed));
    }
  }
}

TEST_CASE("json: a million members are parsed without quadratic work") {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += mg::concat(i > 0 ? "," : "", "\"key", i, "\":", i);
  text += "}";
  CHECK(parse(text).root().size() == 200'000);
}

TEST_CASE("json writer: compact and indented") {
  const auto fill = [](mg::JsonWriter& json) {
    json.begin_object().key("a\"\\\n\x01").value(1).key("b").begin_array().value(true).null().value("x").end_array();
    json.key("c").begin_object().end_object().key("d").value(0.5).end_object();
  };
  mg::JsonWriter compact;
  fill(compact);
  CHECK(compact.text() == "{\"a\\\"\\\\\\n\\u0001\":1,\"b\":[true,null,\"x\"],\"c\":{},\"d\":0.5}");
  mg::JsonWriter indented(2);
  fill(indented);
  CHECK(
      indented.text() ==
      "{\n  \"a\\\"\\\\\\n\\u0001\": 1,\n  \"b\": [\n    true,\n    null,\n    \"x\"\n  ],\n  \"c\": {},\n  \"d\": 0.5\n}");
  CHECK(parse(compact.text()).root().at("a\"\\\n\x01").as_int64() == 1);
  std::string out;
  CHECK_THROWS_AS(mg::append_json_string(out, "\xFF"), mg::InvalidArgument);
}

TEST_CASE("json writer: a real number stays one") {
  for (const double number : {1.0, -0.0, 18446744073709551616.0, 12345678901234567890.0, 1e300, 5e-324}) {
    CAPTURE(number);
    mg::JsonWriter json;
    json.value(number);
    const auto document = parse(json.text());
    CHECK(document.root().kind() == mg::JsonKind::real);
    CHECK(document.root().as_double() == number);
    CHECK(std::signbit(document.root().as_double()) == std::signbit(number));
  }
}
