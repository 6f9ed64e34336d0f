// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/format/torch_dist/archive.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <mgroups/format/json.hpp>

#include "../../../support/checkpoints.hpp"
#include "../../../support/fixtures.hpp"

namespace mg = mgroups;
using mgroups_test::PlainCheckpoint;

namespace {

std::vector<float> floats(const std::vector<std::byte>& bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

}  // namespace

TEST_CASE("fixtures: every tensor of expected.json, by dtype, shape and SHA-256") {
  const auto expected = mgroups_test::fixture("expected.json");
  if (!expected) {
    MESSAGE("no fixtures here; skipped");
    return;
  }
  const auto document = mg::JsonDocument::parse(mgroups_test::file_text(*expected), "expected.json");
  std::size_t tensors = 0;
  document.root().for_each_member([&](std::string_view folder, mg::JsonValue value) {
    CAPTURE(folder);
    PlainCheckpoint checkpoint(*mgroups_test::fixture(std::string(folder)));
    value.at("tensors").for_each_member([&](std::string_view key, mg::JsonValue truth) {
      CAPTURE(key);
      const auto found = checkpoint.metadata.tensors.find(key);
      REQUIRE(found != checkpoint.metadata.tensors.end());
      CHECK(mg::name(found->second.dtype) == truth.at("dtype").as_string());
      mg::Dims shape;
      truth.at("shape").for_each_element([&](mg::JsonValue size) { shape.push_back(size.as_int64()); });
      CHECK(found->second.shape == shape);
      CHECK(mgroups_test::sha256(checkpoint.tensor(key)) == truth.at("sha256").as_string());
      ++tensors;
    });
    CHECK(checkpoint.metadata.tensors.size() == value.at("tensors").size());
    std::set<std::string, std::less<>> objects;
    for (const auto& [key, info] : checkpoint.metadata.objects) objects.insert(key);
    value.at("objects").for_each_element([&](mg::JsonValue key) { CHECK(objects.contains(key.as_string())); });
    CHECK(objects.size() == value.at("objects").size());
  });
  CHECK(tensors == 40);
}

TEST_CASE("fixtures: torch 1.13, whose checkpoints no newer torch loads") {
  const auto path = mgroups_test::fixture("torch1.13_py3.11.2_basic");
  if (!path) return;
  PlainCheckpoint checkpoint(*path);
  REQUIRE(checkpoint.metadata.tensors.size() == 1);
  const auto& w = checkpoint.metadata.tensors.at("w");
  CHECK(w.dtype == mg::DType::float32);
  CHECK(w.shape == mg::Dims{2, 3});
  CHECK(checkpoint.tensor("w").size() == 24);
  CHECK(checkpoint.metadata.objects.contains("step"));
  CHECK(checkpoint.metadata.version.empty());
}

TEST_CASE("fixtures: Megatron-Core 0.15 with flattened ranges") {
  const auto path = mgroups_test::fixture("mcore0.15_torch2.6_flattened");
  if (!path) return;
  PlainCheckpoint checkpoint(*path);
  CHECK(checkpoint.metadata.writer_class == "megatron.core.dist_checkpointing.strategies.torch.MCoreMetadata");
  CHECK(floats(checkpoint.tensor("decoder.a")) == std::vector<float>{0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15});
  // Stored as (1, 1, 12): the true shape stands beside.
  CHECK(checkpoint.metadata.original_shapes.at("optimizer.state.exp_avg.w") == mg::Dims{3, 4});
  CHECK(floats(checkpoint.tensor("optimizer.state.exp_avg.w")) == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});

  const auto common = mgroups_test::file_bytes(*path + "/common.pt");
  const mg::Archive archive(common, common.size(), "common.pt");
  CHECK(archive.prefix() == "common");
  const auto pickle = archive.read(archive.at("data.pkl"));
  const mg::PickleDocument state(pickle, "common.pt", mg::PersistentIds::allowed);
  CHECK(state.root().lookup("iteration")->as_int() == 123);
  CHECK(state.root().lookup("checkpoint_version")->as_double() == 3.0);
  CHECK(state.root().lookup("args")->attribute("bar")->as_string() == "x");
}

TEST_CASE("fixtures: objects are archives of one pickle") {
  const auto path = mgroups_test::fixture("mcoreHEAD_torch2.14");
  if (!path) return;
  PlainCheckpoint checkpoint(*path);
  for (const auto& [key, info] : checkpoint.metadata.objects) {
    CAPTURE(key);
    const auto bytes = checkpoint.item(info);
    const mg::Archive archive(bytes, bytes.size(), "some.distcp", key);
    const auto pickle = archive.read(archive.at("data.pkl"));
    const mg::PickleDocument document(pickle, "some.distcp", mg::PersistentIds::allowed);
    CHECK(document.root().is(mg::PickleKind::list));  // Megatron wraps each object into a list
  }
}

TEST_CASE("fixtures: DCP's mode that PyTorch cannot read back is refused by name") {
  const auto path = mgroups_test::fixture("torch2.14_distcp_safetensors_BROKEN");
  if (!path) return;
  PlainCheckpoint checkpoint(*path);
  REQUIRE(checkpoint.metadata.tensors.size() == 2);
  for (const auto& [key, entry] : checkpoint.metadata.tensors) {
    CAPTURE(key);
    CHECK_THROWS_WITH_AS(static_cast<void>(checkpoint.tensor(key)), doctest::Contains("SerializationFormat.SAFETENSORS"),
                         mg::UnsupportedError);
  }
}

TEST_CASE("fixtures: every chunk of Megatron's optimizer checkpoints lies where it should, with its checksum") {
  std::size_t chunks = 0;
  for (const char* name : {"mcore_distopt_0.15_tp1dp2_fully_sharded_model_space", "mcore_distopt_pp2_dp_reshardable_tied",
                           "mcore_distopt_pp2_fp32_optimizer", "mcore_distopt_tp1dp2_dp_reshardable_mixed",
                           "mcore_distopt_tp2_float16_optimizer", "mcore_distopt_tp2dp2_fully_reshardable"}) {
    const auto path = mgroups_test::fixture(name);
    if (!path) return;
    PlainCheckpoint checkpoint(*path);
    for (const auto& [key, entry] : checkpoint.metadata.tensors) {
      CHECK_NOTHROW(static_cast<void>(checkpoint.tensor(key)));
      chunks += entry.chunk_count();
    }
  }
  CHECK(chunks > 400);
}
