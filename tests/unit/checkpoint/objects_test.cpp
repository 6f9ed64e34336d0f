// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <mgroups/checkpoint/load.hpp>
#include <mgroups/checkpoint/reader.hpp>
#include <mgroups/checkpoint/save.hpp>
#include <mgroups/comm/solo.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/value.hpp>
#include <mgroups/format/torch_dist/archive.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/format/torch_dist/object_encoder.hpp>
#include <mgroups/format/torch_dist/pickle.hpp>
#include <mgroups/shard/sharded_object.hpp>
#include <mgroups/shard/state_dict.hpp>

#include <doctest/doctest.h>

#include "support/fixtures.hpp"
#include "support/memory_files.hpp"
#include "support/sentences.hpp"
#include "support/temporary_directory.hpp"

namespace mg = mgroups;

namespace {

using ObjectState = mg::ShardedStateDict<mg::TensorView>;

mg::Value every_kind(std::int64_t n) {
  return mg::Value::dict({
      {"none", nullptr},
      {"yes", true},
      {"number", n},
      {"large", std::uint64_t{0xFFFFFFFFFFFFFFFF}},
      {"negative", std::int64_t{-1} << 40},
      {"real", 2.5},
      {"text", "ü\n"},
      {"bytes", mg::Value::Bytes{std::byte{0}, std::byte{0x7f}, std::byte{0x80}, std::byte{0xff}}},
      {"no bytes", mg::Value::Bytes{}},
      {"list", mg::Value::list({1, mg::Value::list(), mg::Value::tuple({1, 2, 3, 4})})},
      {"pairs", mg::Value::dict({{3, "three"}, {mg::Value::tuple({1, 2}), 1.0}})},
      {"tensor", mg::Value::Tensor{mg::DType::uint8, {2, 3}, mg::Value::Bytes(6, std::byte{7})}},
      {"scalar", mg::Value::Tensor{mg::DType::bfloat16, {}, mg::Value::Bytes(2, std::byte{1})}},
      {"type", mg::Value::Global{"torch", "bfloat16"}},
  });
}

}  // namespace

TEST_CASE("an object in pieces and the common state come back, in either flavour and on other ranks") {
  const TemporaryDirectory directory;
  for (const mg::Flavour flavour : {mg::Flavour::torch_dist, mg::Flavour::dcp}) {
    CAPTURE(static_cast<int>(flavour));
    const std::string path = directory / "run";
    mg::run_threads(6, [&](auto& world) {
      // Three pieces, two copies of each; copies may differ, the main one counts.
      const int piece = world.rank() % 3, copy = world.rank() / 3;
      mg::Object rng = every_kind(copy == 0 ? piece : -1), one = mg::Value(world.rank() == 4 ? "main" : "copy");
      mg::Object common = mg::Value::dict({{"iteration", 100 + world.rank()},
                                           {"args", mg::Value::dict({{"lr", 0.5}, {"names", mg::Value::list({"a", "b"})}})},
                                           {"groups", mg::Value::list({mg::Value::dict({{"wd", 0.1}}), nullptr})}});
      ObjectState state;
      state.add(
          mg::make_sharded_object("rng", rng, {.global_shape = {3, 1}, .global_offset = {piece, 0}, .replica_id = copy}));
      state.add(mg::make_sharded_object("one", one, {.replica_id = {0, (world.rank() + 2) % 6}}));
      state.set_common(common);
      const mg::SaveReport report = mg::save(path, state, world, {.flavour = flavour});
      REQUIRE(report.tensors_written == 0);
    });
    mg::run_threads(3, [&](auto& world) {
      mg::Object rng, one, common;
      ObjectState state;
      state.add(mg::make_sharded_object("rng", rng, {.global_shape = {3, 1}, .global_offset = {2 - world.rank(), 0}}));
      state.add(mg::make_sharded_object("one", one, {.replica_id = world.rank()}));
      state.set_common(common);
      const mg::LoadReport report = mg::load(path, state, world);
      REQUIRE(report.unexpected.empty());
      REQUIRE(report.not_understood.empty());
      REQUIRE(rng.value() == every_kind(2 - world.rank()));
      REQUIRE(one.value() == mg::Value("main"));
      REQUIRE(common.value().at("iteration").as_int() == 100);
      REQUIRE(common.value().at("args").at("lr").as_double() == 0.5);
      REQUIRE(common.value().at("args").at("names").at(1).as_string() == "b");
      REQUIRE(common.value().at("groups").at(0).at("wd").as_double() == 0.1);
      REQUIRE(common.value().at("groups").at(1).is_none());
    });
    const mg::CheckpointReader reader(path);
    CHECK(reader.metadata().objects.contains("rng/shard_1.0_3.1"));
    CHECK(reader.metadata().objects.contains(flavour == mg::Flavour::dcp ? "one" : "one/shard_0_1"));
    CHECK(std::filesystem::exists(path + "/metadata.json") == (flavour == mg::Flavour::torch_dist));
    CHECK(std::filesystem::exists(path + "/common.pt") == (flavour == mg::Flavour::torch_dist));
  }
}

TEST_CASE("pieces of an object that do not make a whole are refused, and other pieces than were saved too") {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  const auto save = [&](int ranks, auto&& options) {
    return error_text<mg::CheckpointError>([&] {
      mg::run_threads(ranks, [&](auto& world) {
        mg::Object object = mg::Value(world.rank());
        ObjectState state;
        state.add(mg::make_sharded_object("rng", object, options(world.rank())));
        mg::save(path, state, world);
      });
    });
  };
  CHECK(
      contains(save(2, [](int rank) { return mg::ObjectOptions{.global_shape = {3}, .global_offset = {rank}}; }), "[2:3]"));
  CHECK(contains(save(2, [](int) { return mg::ObjectOptions{}; }), "two main replicas, on ranks 0 and 1"));
  CHECK(contains(save(2, [](int rank) { return mg::ObjectOptions{.replica_id = rank + 1}; }), "no main replica"));
  CHECK(contains(save(2, [](int rank) { return mg::ObjectOptions{.global_shape = {2 + rank}, .global_offset = {rank}}; }),
                 "one global shape"));
  CHECK(save(2, [](int rank) { return mg::ObjectOptions{.global_shape = {2}, .global_offset = {rank}}; }) ==
        "no such error");

  mg::solo_comm solo;
  mg::Object object, other;
  ObjectState state;
  state.add(mg::make_sharded_object("rng", object, {.global_shape = {4}, .global_offset = {3}}));
  state.add(mg::make_sharded_object("other", other));
  try {
    mg::load(path, state, solo);
    FAIL("loaded");
  } catch (const mg::LoadError& error) {
    REQUIRE(error.report().mismatched.size() == 1);
    CHECK(contains(error.report().mismatched[0].reason, "'rng/shard_0_2'"));
    CHECK(error.report().missing == std::vector<std::string>{"other"});
    CHECK(error.report().unexpected == std::vector<std::string>{"rng/shard_0_2", "rng/shard_1_2"});
  }
  CHECK_THROWS_AS(static_cast<void>(mg::make_sharded_object("x", object, {.global_shape = {2}, .global_offset = {2}})),
                  mg::InvalidArgument);
  CHECK_THROWS_AS(static_cast<void>(mg::make_sharded_object("x", object, {.global_shape = {}, .global_offset = {}})),
                  mg::InvalidArgument);
  float value = 0;
  CHECK_THROWS_WITH_AS(state.add(mg::make_whole("rng", mg::TensorView{&value, mg::DType::float32, {}, {}})),
                       doctest::Contains("'rng'"), mg::InvalidArgument);
  CHECK_THROWS_WITH_AS(state.add(mg::make_sharded_object("other", other)), doctest::Contains("'other'"),
                       mg::InvalidArgument);
}

TEST_CASE("a tensor and an object of one key on different ranks are refused") {
  const TemporaryDirectory directory;
  const std::string text = error_text<mg::CheckpointError>([&] {
    mg::run_threads(2, [&](auto& world) {
      mg::Object object = mg::Value(1);
      std::vector<float> values(1);
      ObjectState state;
      world.rank() == 0 ? state.add(mg::make_sharded_object("k", object))
                        : state.add(mg::make_whole("k", mg::view_of(values, {1})));
      mg::save(directory / "run", state, world);
    });
  });
  CHECK(contains(text, "'k' is an object of pieces [1] on rank 0 but float32 [1] on rank 1"));
}

TEST_CASE("two entries of the common state under one joined key are refused in the dcp flavour") {
  const TemporaryDirectory directory;
  mg::solo_comm solo;
  ObjectState state;
  mg::Object common = mg::Value::dict({{"a", mg::Value::dict({{"b", 1}})}, {"a.b", 2}});
  state.set_common(common);
  CHECK_THROWS_WITH_AS(mg::save(directory / "run", state, solo, {.flavour = mg::Flavour::dcp}), doctest::Contains("'a.b'"),
                       mg::InvalidArgument);
  common = mg::Value::dict({{"m", mg::Value::dict({{25, 1}, {"25", 2}})}});
  CHECK_THROWS_WITH_AS(mg::save(directory / "run", state, solo, {.flavour = mg::Flavour::dcp}), doctest::Contains("'m.25'"),
                       mg::InvalidArgument);
  CHECK_NOTHROW(mg::save(directory / "run", state, solo));
  common = mg::Value("no dict");
  CHECK_THROWS_AS(mg::save(directory / "run", state, solo), mg::InvalidArgument);
}

TEST_CASE("what is not understood is reported, handed out as bytes, and saved again verbatim") {
  const auto source = mgroups_test::fixture("mcoreHEAD_torch2.14");
  if (!source) return;
  const TemporaryDirectory directory;
  const mg::CheckpointReader theirs(*source);
  REQUIRE(theirs.flavour() == mg::Flavour::torch_dist);
  std::vector<std::pair<std::string, mg::Object>> objects;
  for (const auto& [key, at] : theirs.metadata().objects) objects.emplace_back(key, theirs.read_object(key));
  REQUIRE(objects.size() > 1);

  mg::solo_comm solo;
  mg::Object common = theirs.read_common();
  CHECK(common.form() == mg::Object::Form::listed);  // this generation keeps it as an item
  ObjectState state;
  state.set_common(common);
  for (auto& [key, object] : objects) {
    if (key == "common_state/shard_0_1") continue;
    const std::string name = key.substr(0, key.find("/shard_"));
    mg::Dims offset, shape;
    std::string numbers = key.substr(key.find("/shard_") + 7);
    for (mg::Dims* dims : {&offset, &shape}) {
      while (!numbers.empty()) {
        std::size_t used = 0;
        dims->push_back(std::stoll(numbers, &used));
        const bool last = used == numbers.size() || numbers[used] == '_';
        numbers.erase(0, std::min(numbers.size(), used + 1));
        if (last) break;
      }
    }
    state.add(mg::make_sharded_object(name, object, {.global_shape = shape, .global_offset = offset}));
  }
  mg::save(directory / "again", state, solo);
  const mg::CheckpointReader ours(directory / "again");
  for (const auto& [key, object] : objects) {
    CAPTURE(key);
    REQUIRE(ours.metadata().objects.contains(key));
    CHECK(ours.read_object(key).stored() == object.stored());
  }
  CHECK(!std::filesystem::exists(directory / "again" + "/common.pt"));
}

TEST_CASE("replicas that differ are refused by key and ranks when asked for") {
  const TemporaryDirectory directory;
  const auto run = [&](bool compare, bool strided) {
    return error_text<mg::CheckpointError>([&] {
      mg::run_threads(3, [&](auto& world) {
        std::vector<float> values{0, 1, 2, 3, 4, 5};
        if (world.rank() == 2) values[4] = -4;
        mg::TensorView view = mg::view_of(values, {2, 3});
        if (strided) view = {values.data(), mg::DType::float32, {3, 2}, {1, 3}};
        ObjectState state;
        state.add(mg::make_whole("norm", view, {.replica_id = world.rank()}));
        mg::save(directory / "run", state, world, {.compare_replicas = compare});
      });
    });
  };
  CHECK(run(false, false) == "no such error");
  for (const bool strided : {false, true}) {
    const std::string text = run(true, strided);
    CHECK(contains(text, "'norm'"));
    CHECK(contains(text, "on ranks 0 and 2 differ"));
  }
}

TEST_CASE("objects that share bytes of their file are refused: the common state would grow without end") {
  const auto archive = mg::encode_object(every_kind(1));
  const auto fault = [&](std::uint64_t second) {
    mg::CheckpointMetadata metadata;
    metadata.files = {"__0_0.distcp"};
    metadata.objects.emplace("a", mg::StorageInfo{0, 0, archive.size()});
    metadata.objects.emplace("b", mg::StorageInfo{0, second, archive.size()});
    const auto described = mg::write_metadata(metadata);
    auto data = archive;
    data.insert(data.end(), archive.begin(), archive.end());
    MemoryFiles files;
    files.add("run/.metadata", described);
    files.add("run/__0_0.distcp", data);
    mg::LoadOptions options;
    options.files = &files;
    const mg::CheckpointReader reader("run", options);
    return error_text<mg::FormatError>([&] { static_cast<void>(reader.read_common()); });
  };
  CHECK(fault(archive.size()) == "no such error");
  CHECK(contains(fault(0), "'a' and 'b' overlap in run/__0_0.distcp at byte 0"));
  CHECK(contains(fault(archive.size() - 1), "overlap"));
}

TEST_CASE("an object that no value can hold, or only at many times its size, keeps its bytes and hides nothing") {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  const auto archive = [](auto&& write) {
    std::vector<std::byte> pickle;
    mg::PickleWriter w(pickle);
    write(w.protocol().empty_list().mark());
    w.appends().stop();
    return mg::write_object_archive(pickle);
  };
  const std::vector<std::vector<std::byte>> odd{
      archive([](mg::PickleWriter& w) { w.text("\xed\xb3\xbf"); }),  // a lone surrogate, as Python has it
      archive([](mg::PickleWriter& w) {
        w.empty_list().put(0);
        for (std::uint32_t i = 1; i < 40; ++i) w.empty_list().mark().get(i - 1).get(i - 1).appends().put(i);
      }),
      archive([](mg::PickleWriter& w) { w.global("m", "f").global("n", "g").reduce(); }),
  };
  mg::solo_comm solo;
  std::vector<mg::Object> objects;
  ObjectState state;
  objects.reserve(odd.size());
  for (std::size_t i = 0; i < odd.size(); ++i) {
    objects.emplace_back(odd[i], mg::Object::Form::listed, mg::Value(), "not understood");
    state.add(mg::make_sharded_object(mg::concat("o", i), objects[i]));
  }
  mg::Object good = mg::Value(5);
  state.add(mg::make_sharded_object("good", good));
  mg::save(path, state, solo);
  for (mg::Object& object : objects) object = mg::Value();
  good = mg::Value();
  const mg::LoadReport report = mg::load(path, state, solo);
  CHECK(good.value() == mg::Value(5));
  REQUIRE(report.not_understood.size() == odd.size());
  CHECK(report.not_understood[0].key == "o0/shard_0_1");
  for (std::size_t i = 0; i < odd.size(); ++i) {
    CHECK_FALSE(objects[i].understood());
    CHECK(objects[i].stored() == odd[i]);
    CHECK_THROWS_AS(static_cast<void>(objects[i].value()), mg::UnsupportedError);
  }
}

TEST_CASE("a real common state is saved again with one entry changed, its instances and all") {
  const TemporaryDirectory directory;
  for (const char* name : {"mcoreHEAD_torch2.14", "mcore0.15_torch2.6_flattened"}) {
    const auto source = mgroups_test::fixture(name);
    if (!source) return;
    const mg::Object theirs = mg::CheckpointReader(*source).read_common();
    mg::Value changed = theirs.value();
    changed.set("iteration", 7);
    mg::solo_comm solo;
    mg::Object common = changed;
    ObjectState state;
    state.set_common(common);
    mg::save(directory / "run", state, solo);
    common = mg::Value();
    mg::load(directory / "run", state, solo);
    CHECK(common.value() == changed);
    CHECK(common.value().at("iteration").as_int() == 7);
    CHECK(common.value().at("args").get_if<mg::Value::Instance>()->type.name == "Namespace");
  }
}
