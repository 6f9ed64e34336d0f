// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <mgroups/checkpoint/load.hpp>
#include <mgroups/checkpoint/reader.hpp>
#include <mgroups/checkpoint/save.hpp>
#include <mgroups/comm/solo.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/shard/sharded_tensor.hpp>
#include <mgroups/shard/state_dict.hpp>

#include <doctest/doctest.h>

#include "support/faulty_files.hpp"
#include "support/temporary_directory.hpp"

namespace mg = mgroups;
using State = mg::ShardedStateDict<mg::TensorView>;

namespace {

/// `n` numbers from `first` on.
template <class E = float>
std::vector<E> iota(std::int64_t n, E first = E{0}) {
  std::vector<E> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), first);
  return values;
}

/// What is stored under `key`, read alone.
template <class E>
std::vector<E> stored(const std::string& path, const std::string& key, const mg::Dims& shape) {
  std::vector<E> values(static_cast<std::size_t>(mg::numel(shape)));
  mg::CheckpointReader(path).read(key, mg::whole(shape), mg::view_of(values, shape));
  return values;
}

/// Runs `fill(state, rank)` and a save on `ranks` ranks; the message of the CheckpointError that each of them must get.
template <class Fill>
std::vector<std::string> refusals(int ranks, const std::string& path, Fill&& fill) {
  return mg::run_threads(ranks, [&](auto& world) -> std::string {
    std::vector<std::vector<float>> memory;
    State state;
    fill(state, world.rank(), memory);
    try {
      mg::save(path, state, world);
    } catch (const mg::CheckpointError& error) {
      return error.what();
    }
    return "saved";
  });
}

bool holds(const std::string& text, std::initializer_list<const char*> parts) {
  return std::all_of(parts.begin(), parts.end(), [&](const char* part) { return text.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("two tensors under one key: both main is refused, replicas keep the main one, shards make a whole") {
  const TemporaryDirectory directory;
  const auto run = [&](auto&& layout) {
    return mg::run_threads(2, [&](auto& world) -> std::string {
      auto values = iota<std::int64_t>(2, 2 * world.rank());
      State state;
      state.add(layout(world.rank(), mg::view_of(values, {2})));
      try {
        mg::save(directory / "run", state, world);
      } catch (const mg::CheckpointError& error) {
        return error.what();
      }
      return "";
    });
  };
  for (const std::string& text : run([](int, mg::TensorView view) { return mg::make_whole("weight", view); })) {
    CHECK(holds(text, {"'weight'", "two main replicas", "0 and 1"}));
  }
  CHECK(std::filesystem::exists(directory / "run") == false);

  run([](int rank, mg::TensorView view) { return mg::make_whole("weight", view, {.replica_id = rank}); });
  CHECK(stored<std::int64_t>(directory / "run", "weight", {2}) == iota<std::int64_t>(2));

  run([](int rank, mg::TensorView view) { return mg::make_sharded_grid("weight", view, {{0, rank, 2}}); });
  CHECK(stored<std::int64_t>(directory / "run", "weight", {4}) == iota<std::int64_t>(4));
}

TEST_CASE("shards that do not make a whole are refused on every rank, by key, ranks and boxes") {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  const auto add = [](State& state, std::vector<std::vector<float>>& memory, const mg::Dims& global, const mg::Dims& offset,
                      const mg::Dims& local, mg::ReplicaId replica, int prepended = 0) {
    memory.push_back(iota(mg::numel(local)));
    state.add(mg::make_sharded_at("decoder.layers.mixer.dt_bias", mg::view_of(memory.back(), local), global, offset,
                                  {.replica_id = replica, .prepend_axis_num = prepended}));
  };
  SUBCASE("every tensor-parallel rank says that it is main") {
    for (const auto& text : refusals(2, path, [&](State&state, int, auto&memory) {
           add(state, memory, {2, 128}, {0, 0}, {128}, {0, 0, 0}, 1);
         })) {
      CHECK(holds(text, {"decoder.layers.mixer.dt_bias", "[0:1, 0:128]", "two main replicas", "0 and 1"}));
    }
  }
  SUBCASE("a row belongs to nobody") {
    for (const auto& text : refusals(2, path, [&](State&state, int rank, auto&memory) {
           add(state, memory, {2, 128}, {0, 0}, {128}, {0, rank, 0}, 1);
         })) {
      CHECK(holds(text, {"decoder.layers.mixer.dt_bias", "no rank holds [1:2, 0:128]"}));
    }
  }
  SUBCASE("copies without a main replica") {
    for (const auto& text :
         refusals(3, path, [&](State&state, int rank, auto&memory) { add(state, memory, {4}, {0}, {4}, {1 + rank}); })) {
      CHECK(holds(text, {"no main replica"}));
    }
  }
  SUBCASE("boxes that overlap in part") {
    for (const auto& text :
         refusals(2, path, [&](State&state, int rank, auto&memory) { add(state, memory, {6}, {rank * 2}, {4}, 0); })) {
      CHECK(holds(text, {"overlap in [2:4]", "rank 0", "rank 1"}));
    }
  }
  SUBCASE("another global shape on one rank") {
    for (const auto& text : refusals(
             2, path, [&](State&state, int rank, auto&memory) { add(state, memory, {6 + rank}, {rank * 3}, {3}, 0); })) {
      CHECK(holds(text, {"[6] on rank 0", "[7] on rank 1"}));
    }
  }
  SUBCASE("many faulty keys are counted") {
    for (const auto& text : refusals(2, path, [&](State&state, int, auto&memory) {
           for (int i = 0; i < 30; ++i) {
             memory.push_back(iota(2));
             state.add(mg::make_whole(mg::concat("key", i), mg::view_of(memory.back(), {2})));
           }
         })) {
      CHECK(holds(text, {"'key0'", "and 22 keys more"}));
    }
  }
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("everything that differs is reported together, and nothing is touched") {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  mg::run_threads(2, [&](auto& world) {
    auto values = iota(4);
    State state;
    for (const char* key : {"model.0.weight", "model.1.weight", "optimizer.state.model.0.weight.exp_avg"}) {
      state.add(mg::make_whole(key, mg::view_of(values, {2, 2}), {.replica_id = world.rank()}));
    }
    mg::save(path, state, world);
  });
  for (const bool allow_missing : {false, true}) {
    mg::run_threads(2, [&](auto& world) {
      std::vector<float> wrong(6, 7), absent(4, 7), moment(4, 7);
      State state;
      state.add(mg::make_whole("model.0.weight", mg::view_of(wrong, {2, 3})));
      state.add(mg::make_whole("model.2.weight", mg::view_of(absent, {2, 2})));
      state.add(mg::make_whole("optimizer.state.model.0.weight.exp_avg_sq", mg::view_of(moment, {2, 2})));
      try {
        mg::load(path, state, world, {.allow_missing = allow_missing});
        FAIL("loaded");
      } catch (const mg::LoadError& error) {
        const mg::LoadReport& report = error.report();
        REQUIRE(report.mismatched.size() == 1);
        CHECK(report.mismatched[0].key == "model.0.weight");
        CHECK(report.mismatched[0].reason == "shape [2, 2] stored, [2, 3] wanted");
        CHECK(report.missing == std::vector<std::string>{"model.2.weight", "optimizer.state.model.0.weight.exp_avg_sq"});
        CHECK(report.unexpected == std::vector<std::string>{"model.1.weight", "optimizer.state.model.0.weight.exp_avg"});
        CHECK(
            holds(error.what(), {"'model.2.weight' (nearest: 'model.1.weight')", "exp_avg_sq' (nearest: 'optimizer.state"}));
      }
      for (const auto* values : {&wrong, &absent, &moment}) {
        CHECK(std::all_of(values->begin(), values->end(), [](float value) { return value == 7; }));
      }
    });
  }
}

TEST_CASE("another dtype is refused, and converted when asked for") {
  const TemporaryDirectory directory;
  mg::solo_comm alone;
  auto values = iota(6, 1.0f);
  State state;
  state.add(mg::make_whole("w", mg::view_of(values, {2, 3})));
  mg::save(directory / "run", state, alone);

  std::vector<mg::bfloat16> halves(6, mg::bfloat16(0.0f));
  State target;
  target.add(mg::make_whole("w", mg::view_of(halves, {2, 3})));
  try {
    mg::load(directory / "run", target, alone);
    FAIL("loaded");
  } catch (const mg::LoadError& error) {
    CHECK(holds(error.what(), {"'w'", "dtype float32 stored, bfloat16 wanted"}));
  }
  mg::load(directory / "run", target, alone, {.convert_dtype = true});
  for (std::size_t i = 0; i < 6; ++i) CHECK(static_cast<float>(halves[i]) == values[i]);
}

TEST_CASE("a padded vocabulary is read as far as it goes, and zero beyond") {
  const TemporaryDirectory directory;
  mg::solo_comm alone;
  auto values = iota(12 * 4, 1.0f);
  State state;
  state.add(mg::make_whole("embedding", mg::view_of(values, {12, 4})));
  mg::save(directory / "run", state, alone);

  for (const int rows : {16, 10, 12, 1}) {
    for (const int ranks : {1, 2, 3, 5}) {
      std::vector<std::vector<float>> parts = mg::run_threads(ranks, [&](auto& world) {
        const mg::IndexRange range = mg::split_range(rows, ranks, world.rank());
        std::vector<float> part(static_cast<std::size_t>(range.size() * 4), -1.0f);
        State target;
        target.add(mg::make_sharded_at("embedding", mg::view_of(part, {range.size(), 4}), {rows, 4}, {range.begin, 0},
                                       {.allow_shape_mismatch = true}));
        mg::load(directory / "run", target, world);
        return part;
      });
      std::size_t at = 0;
      for (const auto& part : parts) {
        for (const float value : part) {
          REQUIRE(value == (at < values.size() ? values[at] : 0.0f));
          ++at;
        }
      }
      CHECK(at == static_cast<std::size_t>(rows * 4));
    }
  }
}

TEST_CASE("a group without world rank 0 saves and loads by itself") {
  const TemporaryDirectory directory;
  mg::run_threads(4, [&](auto& world) {
    if (world.rank() != 1 && world.rank() != 3) return;
    const int members[] = {3, 1};
    auto pair = world.create_group(members, "pair");
    auto values = iota(2, 10.0f * static_cast<float>(pair.rank()));
    State state;
    state.add(mg::make_sharded_grid("w", mg::view_of(values, {2}), {{0, pair.rank(), 2}}));
    mg::save(directory / "run", state, pair);
    std::vector<float> whole(4, -1);
    State target;
    target.add(mg::make_whole("w", mg::view_of(whole, {4})));
    mg::load(directory / "run", target, pair);
    CHECK(whole == std::vector<float>{0, 1, 10, 11});
  });
}

TEST_CASE("an empty state dict, tensors without elements and scalars are saved and loaded") {
  const TemporaryDirectory directory;
  mg::run_threads(3, [&](auto& world) {
    mg::save(directory / "empty", State{}, world);
    CHECK(mg::load(directory / "empty", State{}, world).unexpected.empty());

    std::vector<float> nothing, scalar{42};
    State state;
    state.add(mg::make_whole("none", mg::view_of(nothing, {0, 3}), {.replica_id = world.rank()}));
    state.add(mg::make_whole("scalar", mg::view_of(scalar, {}), {.replica_id = world.rank()}));
    mg::save(directory / "run", state, world);
    scalar[0] = 0;
    CHECK(mg::load(directory / "run", state, world).missing.empty());
    CHECK(scalar[0] == 42);
  });
  const mg::CheckpointReader reader(directory / "run");
  CHECK(reader.metadata().tensors.at("none").shape == mg::Dims{0, 3});
}

TEST_CASE("a directory that is somebody else's is not replaced") {
  const TemporaryDirectory directory;
  const std::string path = directory / "home";
  std::filesystem::create_directory(path);
  std::ofstream(path + "/letter.txt") << "keep me";
  mg::run_threads(2, [&](auto& world) {
    CHECK_THROWS_WITH_AS(mg::save(path, State{}, world), doctest::Contains("not a checkpoint"), mg::CheckpointError);
  });
  CHECK(std::filesystem::exists(path + "/letter.txt"));
}

TEST_CASE("what is no checkpoint is refused with what is there instead") {
  const TemporaryDirectory directory;
  mg::solo_comm alone;
  const auto why = [&](const std::string& path) -> std::string {
    try {
      mg::load(path, State{}, alone);
    } catch (const mg::CheckpointError& error) {
      return error.what();
    }
    return "loaded";
  };
  CHECK(holds(why(directory / "nowhere"), {"nowhere", "does not exist"}));
  mg::save(directory / "run", State{}, alone);
  CHECK(holds(why(directory.path()), {"sub-folders", "run"}));
  std::filesystem::remove(directory / "run/.metadata");
  std::ofstream(directory / "run/__0_0.distcp");
  CHECK(holds(why(directory / "run"), {"__0_0.distcp", ".metadata is not"}));
}

TEST_CASE("a data file that is gone or cut short is named on every rank") {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  const auto save = [&] {
    mg::run_threads(2, [&](auto& world) {
      auto values = iota(64);
      State state;
      state.add(mg::make_sharded_grid("w", mg::view_of(values, {64}), {{0, world.rank(), 2}}));
      mg::save(path, state, world);
    });
  };
  const auto why = [&] {
    return mg::run_threads(2, [&](auto& world) -> std::string {
      std::vector<float> values(128);
      State state;
      state.add(mg::make_whole("w", mg::view_of(values, {128})));
      try {
        mg::load(path, state, world);
      } catch (const mg::Error& error) {
        return error.what();
      }
      return "loaded";
    });
  };
  save();
  std::filesystem::resize_file(path + "/__1_0.distcp", 100);
  for (const std::string& text : why()) CHECK(holds(text, {"__1_0.distcp", "'w'", "cut short"}));
  std::filesystem::remove(path + "/__1_0.distcp");
  for (const std::string& text : why()) CHECK(holds(text, {"__1_0.distcp", "w", "does not exist"}));
}

TEST_CASE("one rank's failure is the same error on all, and the old checkpoint stays") {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  const auto save = [&](float value, int failing_rank) {
    return mg::run_threads(3, [&](auto& world) -> std::string {
      std::vector<float> values(2, value);
      State state;
      state.add(mg::make_sharded_grid("w", mg::view_of(values, {2}), {{0, world.rank(), 3}}));
      FaultyFiles broken({.fail_at = 0}), sound;
      try {
        mg::save(path, state, world, {.files = world.rank() == failing_rank ? &broken : &sound});
      } catch (const mg::IoError& error) {
        return error.what();
      }
      return "";
    });
  };
  for (const std::string& text : save(1, -1)) CHECK(text == "");
  for (const int rank : {0, 1, 2}) {
    const auto texts = save(2, rank);
    CHECK(holds(texts[0], {mg::concat("rank ", rank, ": ").c_str(), "fault number 0"}));
    CHECK(texts[1] == texts[0]);
    CHECK(texts[2] == texts[0]);
    CHECK(stored<float>(path, "w", {6}) == std::vector<float>(6, 1.0f));
    for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
      CHECK_FALSE(mg::is_leftover_name(entry.path().filename().string()));
    }
  }
}

TEST_CASE("replicas share the writing, and every byte is written once") {
  const TemporaryDirectory directory;
  for (const int ranks : {2, 4, 7}) {
    const auto reports = mg::run_threads(ranks, [&](auto& world) {
      std::vector<std::vector<float>> memory(40, std::vector<float>(1 << 15));
      State state;
      for (std::size_t i = 0; i < memory.size(); ++i) {
        state.add(mg::make_whole(mg::concat("layer", i), mg::view_of(memory[i], {1 << 15}), {.replica_id = world.rank()}));
      }
      return mg::save(directory / "run", state, world);
    });
    std::uint64_t total = 0, most = 0;
    for (const mg::SaveReport& report : reports) {
      total += report.bytes_written;
      most = std::max(most, report.bytes_written);
    }
    CHECK(total == 40u * 4u << 15);
    CHECK(most * static_cast<std::uint64_t>(ranks) <= total * 2);
  }
}

TEST_CASE("a small buffer changes nothing but the speed") {
  const TemporaryDirectory directory;
  mg::solo_comm alone;
  for (const std::int64_t rows : {3, 160, 700}) {
    for (const bool transposed : {false, true}) {
      auto values = iota(rows * 256);
      mg::TensorView view = mg::view_of(values, {rows, 256});
      if (transposed) view = {values.data(), mg::DType::float32, {256, rows}, {1, 256}};
      State state;
      state.add(mg::make_whole("w", view));
      mg::save(directory / "run", state, alone, {.buffer_bytes = 1});
      const std::vector<float> before = values;
      std::fill(values.begin(), values.end(), -1.0f);
      mg::load(directory / "run", state, alone, {.buffer_bytes = 1});
      CHECK(values == before);
    }
  }
}
