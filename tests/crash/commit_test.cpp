// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// Every operation of a save fails once, and every operation is once the last that reaches the disk. What a reader sees
// afterwards is the old checkpoint or the new one, bit for bit; the new one if save had returned.
#include <cstdint>
#include <string>
#include <vector>

#include <mgroups/checkpoint/load.hpp>
#include <mgroups/checkpoint/save.hpp>
#include <mgroups/comm/solo.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/shard/state_dict.hpp>

#include <doctest/doctest.h>

#include "support/faulty_files.hpp"
#include "support/temporary_directory.hpp"

namespace mg = mgroups;

namespace {

constexpr int world_size = 2;
constexpr std::int64_t row_count = 3;

/// Saves `generation` as the value of all elements; false when the save threw.
bool save_generation(const std::string& path, float generation, FaultyFiles& files) {
  try {
    mg::run_threads(world_size, [&](auto& world) {
      std::vector<float> values(static_cast<std::size_t>(row_count), generation);
      mg::ShardedStateDict<mg::TensorView> state;
      state.add(mg::make_sharded_grid("w", mg::view_of(values, {row_count}), {{0, world.rank(), world_size}}));
      mg::save(path, state, world, {.files = &files});
    });
  } catch (const mg::IoError&) {
    return false;
  }
  return true;
}

/// The generation that a reader sees: the one value of all elements, -1 for a mixture.
float visible_generation(const std::string& path) {
  std::vector<float> values(static_cast<std::size_t>(row_count * world_size), -7.0f);
  mg::ShardedStateDict<mg::TensorView> state;
  state.add(mg::make_whole("w", mg::view_of(values, {row_count * world_size})));
  mg::solo_comm alone;
  mg::load(path, state, alone);
  for (const float value : values) {
    if (value != values[0]) return -1.0f;
  }
  return values[0];
}

}  // namespace

TEST_CASE("a save that fails or dies at any operation leaves the old checkpoint or the new one") {
  for (const bool can_exchange : {true, false}) {
    CAPTURE(can_exchange);
    std::uint64_t operations = 0;
    {
      const TemporaryDirectory directory;
      FaultyFiles files({.can_exchange = can_exchange});
      REQUIRE(save_generation(directory / "run", 1, files));
      const std::uint64_t before = files.operations();
      REQUIRE(save_generation(directory / "run", 2, files));
      operations = files.operations() - before;
      CHECK(visible_generation(directory / "run") == 2);
    }
    REQUIRE(operations > 10);

    for (const bool dies : {false, true}) {
      CAPTURE(dies);
      int kept_old = 0, became_new = 0;
      for (std::uint64_t at = 0; at < operations; ++at) {
        CAPTURE(at);
        const TemporaryDirectory directory;
        FaultyFiles sound({.can_exchange = can_exchange});
        REQUIRE(save_generation(directory / "run", 1, sound));
        FaultPlan plan{.can_exchange = can_exchange};
        (dies ? plan.crash_at : plan.fail_at) = at;
        FaultyFiles faulty(plan);
        const bool returned = save_generation(directory / "run", 2, faulty);
        const float seen = visible_generation(directory / "run");
        if (returned) {
          CHECK(seen == 2);
        } else {
          CHECK((seen == 1 || seen == 2));
        }
        (seen == 1 ? kept_old : became_new)++;

        // Whatever was left behind is in nobody's way, and gone after the next save.
        REQUIRE(save_generation(directory / "run", 3, sound));
        CHECK(visible_generation(directory / "run") == 3);
        for (const std::string& name : sound.list(directory.path())) CHECK_FALSE(mg::is_leftover_name(name));
      }
      CHECK(kept_old > 5);
      CHECK(became_new >= 1);
    }
  }
}

TEST_CASE("a first save that dies leaves nothing that loads") {
  for (std::uint64_t at = 0; at < 8; ++at) {
    const TemporaryDirectory directory;
    FaultyFiles faulty({.crash_at = at});
    REQUIRE_FALSE(save_generation(directory / "run", 1, faulty));
    CHECK_THROWS_AS(visible_generation(directory / "run"), mg::CheckpointError);
  }
}
