// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/format/torch_dist/object_decoder.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <mgroups/core/value.hpp>
#include <mgroups/format/torch_dist/archive.hpp>
#include <mgroups/format/torch_dist/object_encoder.hpp>

#include "support/sentences.hpp"

namespace mg = mgroups;

namespace {

// Of an archive whose pickle `write` writes.
template <class F>
std::string fault(F&& write) {
  std::vector<std::byte> pickle;
  mg::PickleWriter w(pickle);
  write(w.protocol());
  w.stop();
  const auto archive = mg::write_object_archive(pickle);
  return error_text<mg::Error>([&] { static_cast<void>(mg::decode_object(archive, archive.size(), "common.pt")); });
}

}  // namespace

// Without the count of elements beforehand, each of 200 levels would make room for all of them.
TEST_CASE("object decoder: containers that hold themselves many times are refused before they take memory") {
  const std::string list = fault([](mg::PickleWriter& w) {
    w.empty_list().put(0).mark();
    for (int i = 0; i < 50'000; ++i) w.get(0);
    w.appends();
  });
  CHECK(contains(list, "repeats one value so often"));
  const std::string dict = fault([](mg::PickleWriter& w) {
    w.empty_dict().put(0).mark();
    for (int i = 0; i < 50'000; ++i) w.none().get(0);
    w.set_items();
  });
  CHECK(contains(dict, "repeats one value so often"));
  // An object whose state is itself takes one node at each level, and ends by its depth.
  const std::string object =
      fault([](mg::PickleWriter& w) { w.global("m", "C").tuple(0).new_object().put(0).get(0).build(); });
  CHECK(contains(object, "nested deeper than 200"));
}

TEST_CASE("object decoder: what is called and what is instantiated is written again as it was") {
  for (const bool called : {false, true}) {
    std::vector<std::byte> pickle;
    mg::PickleWriter w(pickle);
    w.protocol().global("m", "C").integer(1).tuple(1);
    called ? w.reduce() : w.new_object();
    w.empty_dict().mark().text("a").integer(2).set_items().build().stop();
    const auto archive = mg::write_object_archive(pickle);
    const mg::Value value = mg::decode_object(archive, archive.size(), "f");
    CHECK(value.get_if<mg::Value::Instance>()->called == called);
    CHECK(value.at("a").as_int() == 2);
    CHECK(mg::encode_object(value) == archive);
  }
}
