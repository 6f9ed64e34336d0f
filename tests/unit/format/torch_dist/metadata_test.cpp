// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/format/torch_dist/metadata.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <mgroups/core/crc32.hpp>

#include "../../../support/bytes.hpp"
#include "../../../support/fixtures.hpp"
#include "support/sentences.hpp"

namespace mg = mgroups;

namespace {

mg::CheckpointMetadata sample() {
  mg::CheckpointMetadata m;
  m.files = {"__0_0.distcp", "sub/__1_0.distcp"};
  mg::TensorEntry w(mg::DType::bfloat16, mg::Dims{5, 3});
  w.add_chunk({mg::Dims{3, 0}, mg::Dims{2, 3}}, {0, 0, 1000});
  w.add_chunk({mg::Dims{0, 0}, mg::Dims{3, 3}}, {1, 64, 1013});
  w.add_chunk({mg::Dims{5, 0}, mg::Dims{0, 3}}, {1, 1024, 900});
  m.tensors.emplace("layer.w", w);
  mg::TensorEntry scalar(mg::DType::int64, mg::Dims{});
  scalar.add_chunk({mg::Dims{}, mg::Dims{}}, {0, std::uint64_t{1} << 40, 800});
  m.tensors.emplace("scalar", scalar);
  mg::TensorEntry wide(mg::DType::uint16, mg::Dims{1, 2, 3, std::int64_t{1} << 33, 1, 1, 1});
  wide.add_chunk(mg::whole(wide.shape), {1, 0xFFFFFFFF, 77});
  m.tensors.emplace("wide", wide);
  m.objects.emplace("rng/shard_0_1", mg::StorageInfo{0, 2000, 300});
  m.paths["layer.w"] = {std::string("layer"), std::string("w")};
  m.paths["scalar"] = {std::string("scalar"), std::int64_t{0}};
  return m;
}

// Writes hostile and foreign metadata by hand.
struct Forge {
  std::vector<std::byte> out;
  mg::PickleWriter w{out};
  std::string types = "torch.distributed.checkpoint.metadata", storage = "torch.distributed.checkpoint.filesystem";

  void begin(const std::string& module, const char* name) {
    w.global(module, name).tuple(0).new_object().empty_dict().mark();
  }
  void end() { w.set_items().build(); }
  void open() {
    w.protocol();
    begin(types, "Metadata");
    w.text("state_dict_metadata").empty_dict().mark();
  }
  void tensor(const char* key, std::vector<std::int64_t> shape,
              const std::vector<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>>& chunks,
              const char* dtype = "float32", const char* layout = "torch.strided") {
    w.text(key);
    begin(types, "TensorStorageMetadata");
    properties(dtype, layout);
    w.text("size").integers(shape).text("chunks").empty_list().mark();
    for (const auto& [offsets, sizes] : chunks) {
      begin(types, "ChunkStorageMetadata");
      w.text("offsets").integers(offsets).text("sizes").integers(sizes);
      end();
    }
    w.appends();
    end();
  }
  void properties(const char* dtype = "float32", const char* layout = "torch.strided") {
    w.text("properties").global(types, "TensorProperties").tuple(0).new_object().mark();
    w.global("torch", dtype)
        .global("torch.serialization", "_get_layout")
        .text(layout)
        .tuple(1)
        .reduce()
        .boolean(false)
        .none()
        .boolean(false);
    w.marked_tuple().build();
  }
  void places() { w.set_items().text("planner_data").none().text("storage_data").empty_dict().mark(); }
  void place(const char* key, std::vector<std::int64_t> offset, const char* path = "a", std::int64_t at = 0,
             std::int64_t length = 9, bool transformed = false) {
    begin(types, "MetadataIndex");
    w.text("fqn").text(key).text("index").none().text("offset").integers(offset);
    end();
    begin(storage, "_StorageInfo");
    w.text("relative_path").text(path).text("offset").integer(at).text("length").integer(length);
    if (transformed) w.text("transform_descriptors").empty_list().mark().text("stream.zstd/1").appends();
    end();
  }
  mg::CheckpointMetadata read() {
    w.set_items();
    end();
    w.stop();
    return mg::parse_metadata(out, "run/.metadata");
  }
  std::string fault() {
    try {
      static_cast<void>(read());
    } catch (const mg::Error& e) {
      CHECK(e.context().file == "run/.metadata");
      return e.what();
    }
    return {};
  }
};

using Shape = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("metadata: what is written is read again, and the same bytes come out each time") {
  const auto m = sample();
  const auto bytes = mg::write_metadata(m);
  CHECK(bytes == mg::write_metadata(m));
  std::vector<std::byte> streamed;
  mg::write_metadata(m,
                     [&](std::span<const std::byte> block) { streamed.insert(streamed.end(), block.begin(), block.end()); });
  CHECK(streamed == bytes);
  const auto r = mg::parse_metadata(bytes, ".metadata");
  CHECK(r.tensors == m.tensors);
  CHECK(r.objects == m.objects);
  CHECK(r.paths == m.paths);
  CHECK(r.version == "1.0.0");
  CHECK(r.writer_class == "torch.distributed.checkpoint.metadata.Metadata");
  CHECK(r.files == m.files);
  const auto& w = r.tensors.at("layer.w");
  CHECK(w.chunk_count() == 3);
  CHECK(w.chunk_box(1) == mg::Box{mg::Dims{0, 0}, mg::Dims{3, 3}});
  CHECK(r.files[w.chunk_storage(1).file] == "sub/__1_0.distcp");
  CHECK(w.chunk_storage(1).length == 1013);
}

TEST_CASE("metadata: many chunks in many batches, and entries in any order") {
  mg::CheckpointMetadata m;
  m.files = {"f"};
  mg::TensorEntry w(mg::DType::float32, mg::Dims{3000, 2});
  for (std::int64_t i = 0; i < 3000; ++i)
    w.add_chunk({mg::Dims{i, 0}, mg::Dims{1, 2}}, {0, static_cast<std::uint64_t>(i) * 10, 10});
  m.tensors.emplace("w", w);
  CHECK(mg::parse_metadata(mg::write_metadata(m), "f").tensors == m.tensors);
  Forge forge;
  forge.open();
  std::vector<std::pair<Shape, Shape>> chunks;
  for (std::int64_t i = 0; i < 500; ++i) chunks.push_back({{i * 7 % 500, 0}, {1, 2}});
  forge.tensor("w", {500, 2}, chunks);
  forge.places();
  for (std::int64_t i = 499; i >= 0; --i) forge.place("w", {i, 0}, "a", i * 100, 100);
  const auto r = forge.read();
  const auto& entry = r.tensors.at("w");
  REQUIRE(entry.chunk_count() == 500);
  for (std::size_t i = 0; i < 500; ++i) {
    CHECK(entry.chunk_storage(i).offset == static_cast<std::uint64_t>(entry.offsets(i)[0]) * 100);
  }
}

TEST_CASE("metadata: zero-size chunks, alone and at the place of another") {
  Forge forge;
  forge.open();
  forge.tensor("tail", {1, 3}, {{{0, 0}, {1, 3}}, {{1, 0}, {0, 3}}});
  forge.tensor("shared", {4}, {{{0}, {0}}, {{0}, {4}}});
  forge.tensor("nothing", {0, 3}, {{{0, 0}, {0, 3}}});
  forge.tensor("unstored", {2}, {{{0}, {2}}, {{2}, {0}}});
  forge.places();
  forge.place("tail", {1, 0}, "b");
  forge.place("tail", {0, 0}, "a");
  forge.place("shared", {0}, "a");
  forge.place("nothing", {0, 0}, "a");
  forge.place("unstored", {0}, "a");
  const auto r = forge.read();
  CHECK(r.tensors.at("tail").chunk_count() == 2);
  CHECK(r.files[r.tensors.at("tail").chunk_storage(1).file] == "b");
  REQUIRE(r.tensors.at("shared").chunk_count() == 1);
  CHECK(r.tensors.at("shared").chunk_box(0) == mg::whole(mg::Dims{4}));
  CHECK(r.tensors.at("nothing").chunk_count() == 1);
  CHECK(r.tensors.at("unstored").chunk_count() == 1);
}

TEST_CASE("metadata: contradictions are refused by one sentence with the key") {
  const auto one = [](std::vector<std::pair<Shape, Shape>> chunks, Shape shape = {4, 2}) {
    Forge forge;
    forge.open();
    forge.tensor("w", std::move(shape), chunks);
    forge.places();
    for (const auto& [offsets, sizes] : chunks) forge.place("w", offsets);
    return forge.fault();
  };
  CHECK(one({{{0, 0}, {4, 2}}}).empty());
  CHECK(contains(one({{{0, 0}, {5, 2}}}), "'w' has a chunk that is no part of it"));
  CHECK(contains(one({{{4, 0}, {1, 2}}}), "leaves shape [4, 2]"));
  CHECK(contains(one({{{0}, {4}}}), "do not have the 2 axes"));
  CHECK(contains(one({{{0, 0}, {4}}}), "do not have the 2 axes"));
  CHECK(contains(one({{{-1, 0}, {4, 2}}}), "where sizes must be"));
  CHECK(contains(one({{{0, std::numeric_limits<std::int64_t>::max()}, {4, 2}}}), "leaves shape"));
  CHECK(contains(one({}, {-4}), "where sizes must be"));
  CHECK(contains(one({}, {std::int64_t{1} << 62, 4}), "too many elements"));
  CHECK(contains(one({{{0, 0}, {4, 2}}, {{0, 0}, {4, 2}}}), "two chunks at offset [0, 0]"));

  const auto placed = [](auto&& f) {
    Forge forge;
    forge.open();
    forge.tensor("w", {4}, {{{0}, {2}}, {{2}, {2}}});
    forge.places();
    f(forge);
    return forge.fault();
  };
  CHECK(contains(placed([](Forge& f) { f.place("w", {0}); }), "'w' has no entry in storage_data for its chunk [2:4]"));
  CHECK(contains(placed([](Forge& f) {
                   f.place("w", {0});
                   f.place("w", {2});
                   f.place("w", {1});
                 }),
                 "at offset [1], where it has no chunk"));
  CHECK(contains(placed([](Forge& f) { f.place("v", {0}); }), "'v' stands in storage_data, but not in state_dict_metadata"));
  CHECK(contains(placed([](Forge& f) { f.place("w", {0}, "a", std::numeric_limits<std::int64_t>::max(), 1); }),
                 "behind the end of any file"));
  CHECK(contains(placed([](Forge& f) { f.place("w", {0}, "a", -1, 1); }), "as its offset in its file"));
  for (const char* path : {"/etc/passwd", "../x", "a/../../x", "", "a//b", "./a", "a/.."}) {
    CHECK(contains(placed([&](Forge& f) { f.place("w", {0}, path); }), "files outside of a checkpoint are never read"));
  }

  Forge twice;
  twice.open();
  twice.tensor("w", {1}, {});
  twice.tensor("w", {1}, {});
  twice.places();
  CHECK(contains(twice.fault(), "stands twice"));
  Forge same_place;
  same_place.open();
  same_place.tensor("w", {4}, {{{0}, {2}}, {{0}, {4}}});
  same_place.places();
  same_place.place("w", {0});
  CHECK(contains(same_place.fault(), "two chunks at offset [0]"));
  Forge foreign;
  foreign.types = "evil.metadata";
  foreign.open();
  foreign.tensor("w", {4}, {});
  foreign.places();
  CHECK(contains(foreign.fault(), "neither a tensor nor bytes"));
  CHECK_THROWS_AS(static_cast<void>(mg::parse_metadata(mgroups_test::bytes_of(std::string_view("\x80\x02}.", 4)), "f")),
                  mg::FormatError);
}

TEST_CASE("metadata: transformed items are noted, so that a reader can refuse them") {
  Forge forge;
  forge.open();
  forge.tensor("w", {4}, {{{0}, {4}}});
  forge.places();
  forge.place("w", {0}, "a", 0, 9, true);
  CHECK(contains(forge.read().unreadable.at("w"), "the transform ['stream.zstd/1']"));
}

TEST_CASE("metadata: a tensor of a dtype, layout or rank that is not known does not hide the others") {
  Forge forge;
  forge.open();
  forge.tensor("good", {4}, {{{0}, {4}}});
  forge.tensor("odd", {4}, {{{0}, {4}}}, "uint1");
  forge.tensor("sparse", {4}, {{{0}, {4}}}, "float32", "torch.sparse_coo");
  const Shape deep(17, 1), zero(17, 0);
  forge.tensor("deep", deep, {{zero, deep}});
  forge.places();
  forge.place("good", {0}, "a", 0, 9);
  forge.place("odd", {0}, "a", 9, 9);
  forge.place("sparse", {0}, "a", 18, 9);
  forge.place("deep", zero, "a", 27, 9);
  const auto metadata = forge.read();
  CHECK(metadata.tensors.size() == 1);
  CHECK(metadata.tensors.contains("good"));
  CHECK(contains(metadata.unreadable.at("odd"), "torch.uint1"));
  CHECK(contains(metadata.unreadable.at("sparse"), "torch.sparse_coo"));
  CHECK(contains(metadata.unreadable.at("deep"), "17 axes"));
}

TEST_CASE("metadata: older modules and lists for sizes") {
  Forge forge;
  forge.types = "torch.distributed._shard.checkpoint.metadata";
  forge.storage = "torch.distributed._shard.checkpoint.filesystem";
  forge.open();
  forge.tensor("w", {4}, {{{0}, {4}}});
  forge.places();
  forge.place("w", {0});
  CHECK(forge.read().tensors.at("w").chunk_count() == 1);
}

TEST_CASE("metadata: planner paths of the fixtures") {
  const auto path = mgroups_test::fixture("torch2.6_py3.13_basic/.metadata");
  if (!path) {
    MESSAGE("no fixtures here; skipped");
    return;
  }
  const auto bytes = mgroups_test::file_bytes(*path);
  const auto m = mg::parse_metadata(bytes, ".metadata");
  using Path = std::vector<mg::PathElement>;
  CHECK(m.paths.at("opt.state.0.exp") ==
        Path{std::string("opt"), std::string("state"), std::int64_t{0}, std::string("exp")});
  CHECK(m.paths.at("opt.param_groups.0.lr") ==
        Path{std::string("opt"), std::string("param_groups"), std::int64_t{0}, std::string("lr")});
}

// A pickle repeats values by reference, in two bytes; each time they would be copied, or looked at.
TEST_CASE("metadata: a value that is repeated without end is refused, not copied") {
  const auto repeat = [](mg::PickleWriter& w, int times) {
    w.put(0);
    for (int i = 1; i < times; ++i) w.get(0);
  };
  const auto under_many_keys = [](mg::PickleWriter& w, int keys) {
    w.put(1);
    for (int i = 1; i < keys; ++i) w.text(mg::concat(i)).get(1);
  };
  const auto paths = [&](Forge& forge, const std::string& step, int steps, int keys) {
    forge.open();
    forge.w.set_items().text("storage_data").empty_dict().text("planner_data").empty_dict().mark();
    forge.w.text("0").mark().text(step);
    repeat(forge.w, steps);
    forge.w.marked_tuple();
    under_many_keys(forge.w, keys);
  };
  const auto chunks = [&](Forge& forge, int chunks_of_each, int keys) {
    forge.open();
    forge.w.text("0");
    forge.begin(forge.types, "TensorStorageMetadata");
    forge.properties();
    forge.w.text("size").integers(Shape{0}).text("chunks").empty_list().mark();
    forge.begin(forge.types, "ChunkStorageMetadata");
    forge.w.text("offsets").integers(Shape{0}).text("sizes").integers(Shape{0});
    forge.end();
    repeat(forge.w, chunks_of_each);
    forge.w.appends();
    forge.end();
    under_many_keys(forge.w, keys);
    forge.places();
  };

  Forge long_steps, many_steps, deep, deepest, many_chunks, few_chunks, attributes;
  paths(long_steps, std::string(5000, 'x'), 50, 1);
  CHECK(contains(long_steps.fault(), "repeats values so often"));
  paths(many_steps, "x", 100, 500);
  CHECK(contains(many_steps.fault(), "repeats values so often"));
  // What puts values at their paths recurses.
  paths(deep, "x", 200, 1);
  CHECK(deep.read().paths.at("0").size() == 200);
  paths(deepest, "x", 201, 1);
  CHECK(deepest.read().paths.empty());

  chunks(few_chunks, 10, 4);
  CHECK(few_chunks.read().tensors.size() == 4);
  chunks(many_chunks, 2000, 100);
  CHECK(contains(many_chunks.fault(), "repeats values so often"));

  attributes.open();
  attributes.w.text("w");
  attributes.begin(attributes.types, "TensorStorageMetadata");
  for (int i = 0; i < 2 * 101; ++i) attributes.w.none();
  attributes.end();
  attributes.places();
  CHECK(contains(attributes.fault(), "more than 100 attributes"));
}

TEST_CASE("metadata: what cannot be written is refused before the first byte") {
  const auto refused = [](auto&& change) {
    auto m = sample();
    change(m);
    std::size_t written = 0;
    CHECK_THROWS_AS(mg::write_metadata(m, [&](std::span<const std::byte> block) { written += block.size(); }),
                    mg::InvalidArgument);
    CHECK(written == 0);
  };
  refused([](auto& m) { m.files[0] = "../x"; });
  refused([](auto& m) { m.files.pop_back(); });
  refused([](auto& m) { m.objects.emplace("layer.w", mg::StorageInfo{}); });
  refused([](auto& m) { m.objects.emplace("\xFF", mg::StorageInfo{}); });
  mg::TensorEntry w(mg::DType::float32, mg::Dims{2});
  CHECK_THROWS_AS(w.add_chunk({mg::Dims{1}, mg::Dims{2}}, {}), mg::InvalidArgument);
}

TEST_CASE("metadata: every cut and every changed byte is refused or read") {
  std::vector<std::vector<std::byte>> files{mg::write_metadata(sample())};
  for (const char* folder : {"torch1.13_py3.11.2_basic", "mcore0.15_torch2.6_flattened"}) {
    if (const auto path = mgroups_test::fixture(std::string(folder) + "/.metadata"))
      files.push_back(mgroups_test::file_bytes(*path));
  }
  for (const auto& good : files) {
    mgroups_test::attack(
        good,
        [&](const std::vector<std::byte>& bad, std::size_t at) {
          CAPTURE(at);
          try {
            const auto m = mg::parse_metadata(bad, "f");
            for (const auto& [key, entry] : m.tensors) {
              for (std::size_t i = 0; i < entry.chunk_count(); ++i) {
                REQUIRE(entry.chunk_storage(i).file < m.files.size());
                REQUIRE_FALSE(mg::box_fault(entry.chunk_box(i), entry.shape).has_value());
              }
            }
          } catch (const mg::FormatError&) {
          } catch (const mg::UnsupportedError&) {
          }
        },
        good.size() > 1000 ? 7 : 2);
  }
}
