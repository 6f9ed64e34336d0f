// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// A `.metadata` is read in one of two ways, of records or of the whole tree: they agree, on every file and on every pickle.
#include <mgroups/format/torch_dist/metadata.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "support/fixtures.hpp"
#include "support/metadata_pickles.hpp"
#include "support/sentences.hpp"

namespace mg = mgroups;
using mgroups_test::Bytes, mgroups_test::Read, mgroups_test::Sharing;
using mgroups_test::large, mgroups_test::made_by, mgroups_test::pickled, mgroups_test::same;

namespace {

std::size_t node_count(const Bytes& bytes, const mg::MetadataFilter* filter = nullptr) {
  mg::detail::PickleTree tree{{}, {}, bytes, "f"};
  mg::detail::MetadataMemo memo;
  static_cast<void>(
      mg::detail::PickleMachine<mg::detail::MetadataBuilder>(tree, mg::PersistentIds::refused, memo, filter).run());
  return tree.nodes.size();
}

}  // namespace

TEST_CASE("metadata records: every file of the fixtures is read as from the whole tree") {
  std::size_t files = 0;
  for (const char* folder : {".", "../cases"}) {
    const auto root = mgroups_test::fixture(folder);
    if (!root) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(*root)) {
      if (!entry.is_regular_file() || !entry.path().filename().string().ends_with(".metadata")) continue;
      CAPTURE(entry.path().string());
      const Bytes bytes = mgroups_test::file_bytes(entry.path().string());
      const auto plain = made_by(mg::detail::read_plain_metadata, bytes);
      const auto condensed = made_by(mg::detail::read_condensed_metadata, bytes);
      REQUIRE(plain.has_value() == condensed.has_value());
      if (!plain) continue;
      CHECK(same(*plain, *condensed));
      // A filter that wants all of them changes nothing.
      mg::MetadataFilter all;
      for (const auto& [key, tensor] : plain->tensors) all.want(key);
      for (const auto& [key, reason] : plain->unreadable) all.want(key);
      CHECK(same(*plain, mg::parse_metadata(bytes, "f", all)));
      ++files;
    }
  }
  if (files == 0) MESSAGE("no fixtures here; skipped");
  CHECK((files == 0 || files > 20));
}

TEST_CASE("metadata records: values that a pickle shares, in the protocols of CPython") {
  for (const int protocol : {2, 4, 5}) {
    for (const auto sharing : {Sharing::nothing, Sharing::offsets, Sharing::infos, Sharing::keys}) {
      for (const bool frames : {false, true}) {
        if (frames && protocol < 4) continue;
        CAPTURE(protocol);
        CAPTURE(static_cast<int>(sharing));
        const Bytes bytes = pickled(protocol, sharing, frames);
        const auto plain = made_by(mg::detail::read_plain_metadata, bytes);
        REQUIRE(plain.has_value());
        const auto condensed = made_by(mg::detail::read_condensed_metadata, bytes);
        REQUIRE(condensed.has_value());
        CHECK(same(*plain, *condensed));
        CHECK(condensed->tensors.at("b").chunk_count() == 100);
        CHECK(condensed->tensors.at("a").chunk_storage(70).offset == std::uint64_t{70} << 30);
        // 400 tuples of numbers, where they are shared; some 70 nodes for each chunk in the tree.
        CHECK(node_count(bytes) < 4000);
      }
    }
    const Bytes twice = pickled(protocol, Sharing::whole_chunks);
    CHECK_FALSE(made_by(mg::detail::read_condensed_metadata, twice).has_value());
    CHECK_THROWS_WITH_AS(static_cast<void>(mg::parse_metadata(twice, "f")), doctest::Contains("has two chunks at offset"),
                         mg::FormatError);
  }
}

// What a record refers to is looked up when the record is read: by then the number may stand for another value.
TEST_CASE("metadata records: a number of the memo that is given to one value after the other") {
  const Bytes bytes = pickled(2, Sharing::one_number);
  const auto plain = made_by(mg::detail::read_plain_metadata, bytes);
  REQUIRE(plain.has_value());
  CHECK(plain->files.size() == 5);
  CHECK(same(*plain, mg::parse_metadata(bytes, "f")));
}

TEST_CASE("metadata records: a chunk of many takes three nodes of the tree, one that is not wanted takes one") {
  const auto metadata = large(100, 300);
  const Bytes bytes = mg::write_metadata(metadata);
  CHECK(node_count(bytes) < 3 * 30000 + 5000);
  mg::MetadataFilter one;
  one.want("layers.7.weight");
  CHECK(node_count(bytes, &one) < 30000 + 3 * 300 + 5000);
}

TEST_CASE("metadata filter: what is wanted is read, and the keys of the rest") {
  const auto whole = large(10, 40);
  const Bytes bytes = mg::write_metadata(whole);
  mg::MetadataFilter filter;
  filter.want("layers.3.weight");
  filter.want("layers.5.weight", {{20, 0}, {8, 4}});
  filter.want("layers.5.weight", {{100, 1}, {1, 1}});
  filter.want("layers.6.weight", {{0, 0}, {0, 4}});
  filter.want("layers.8.weight", {{0, 0, 0}, {1, 1, 1}});
  filter.want("absent");
  for (Read* read : {&mg::detail::read_condensed_metadata, &mg::detail::read_plain_metadata}) {
    const auto part = read(bytes, "f", &filter);
    CHECK(part.left_out == std::vector<std::string>{"layers.0.weight", "layers.1.weight", "layers.2.weight",
                                                    "layers.4.weight", "layers.7.weight", "layers.9.weight"});
    CHECK(part.objects.size() == 1);
    CHECK(part.paths.size() == 5);
    CHECK(part.paths.at("rng") == whole.paths.at("rng"));
    REQUIRE(part.tensors.size() == 4);
    CHECK(part.tensors.at("layers.3.weight").chunk_count() == 40);
    CHECK(part.tensors.at("layers.6.weight").chunk_count() == 0);
    CHECK(part.tensors.at("layers.8.weight").chunk_count() == 40);
    const auto& some = part.tensors.at("layers.5.weight");
    CHECK(some.shape == mg::Dims{320, 4});
    REQUIRE(some.chunk_count() == 3);
    std::size_t i = 0;
    for (const std::size_t chunk : {2, 3, 12}) {
      const auto& all = whole.tensors.at("layers.5.weight");
      CHECK(some.chunk_box(i) == all.chunk_box(chunk));
      CHECK(part.files[some.chunk_storage(i).file] == whole.files[all.chunk_storage(chunk).file]);
      CHECK(some.chunk_storage(i).offset == all.chunk_storage(chunk).offset);
      ++i;
    }
  }
}

TEST_CASE("metadata filter: more parts than are told apart keep at least what they touch") {
  const auto whole = large(1, 64);
  mg::MetadataFilter filter;
  for (std::int64_t i = 0; i < 20; ++i) filter.want("layers.0.weight", {{24 * i, 0}, {1, 4}});
  const auto part = mg::parse_metadata(mg::write_metadata(whole), "f", filter);
  const auto& kept = part.tensors.at("layers.0.weight");
  std::size_t found = 0;
  for (std::size_t i = 0; i < kept.chunk_count(); ++i) found += kept.offsets(i)[0] % 24 == 0 && kept.offsets(i)[0] < 480;
  CHECK(found == 20);
  CHECK(kept.chunk_count() < 64);
}

TEST_CASE("metadata filter: faults are found in what is wanted, by the same sentence") {
  auto metadata = large(2, 4);
  metadata.tensors.at("layers.1.weight").shape = mg::Dims{31, 4};
  const Bytes bytes = mg::write_metadata(metadata);
  mg::MetadataFilter good, bad;
  good.want("layers.0.weight");
  bad.want("layers.1.weight", {{0, 0}, {1, 1}});
  CHECK(mg::parse_metadata(bytes, "f", good).left_out == std::vector<std::string>{"layers.1.weight"});
  const auto fault = [&](auto&&... filter) {
    try {
      static_cast<void>(mg::parse_metadata(bytes, "f", filter...));
    } catch (const mg::FormatError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(contains(fault(), "'layers.1.weight' has a chunk that is no part of it"));
  CHECK(fault() == fault(bad));
}
