// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// One rank of several fails at each of its file operations in turn, in each way in which it can.
#include <sys/mount.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <mgroups/checkpoint/load.hpp>
#include <mgroups/checkpoint/save.hpp>
#include <mgroups/comm/solo.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/shard/state_dict.hpp>

#include <doctest/doctest.h>

#include "support/faulty_files.hpp"
#include "support/forwarding_files.hpp"
#include "support/sentences.hpp"
#include "support/temporary_directory.hpp"

namespace mg = mgroups;

namespace {

constexpr int three_ranks = 3;

/// A rank's part of two tensors, an object and the common state, all of one generation.
struct Generation {
  std::vector<float> weight, bias;
  mg::Object object, common;
  mg::ShardedStateDict<mg::TensorView> state;

  Generation(int rank, int ranks, float value)
      : weight(12 / static_cast<std::size_t>(ranks), value), bias(4, value), object(mg::Value(value)) {
    common = mg::Value::dict({{"generation", value}});
    state.add(mg::make_sharded_grid("weight", mg::view_of(weight, {12 / ranks}), {{0, rank, ranks}}));
    state.add(mg::make_whole("bias", mg::view_of(bias, {4}), {.replica_id = rank}));
    state.add(mg::make_sharded_object("object", object, {.replica_id = rank}));
    state.set_common(common);
  }
  /// The one value of everything; -1 for a mixture.
  float value() const {
    const double first = object.value().as_double();
    bool same = common.value().at("generation").as_double() == first;
    for (const auto* values : {&weight, &bias}) {
      for (const float one : *values) same = same && one == static_cast<float>(first);
    }
    return same ? static_cast<float>(first) : -1.0f;
  }
};

struct Outcome {
  std::vector<std::string> errors;  ///< what each rank threw; empty where it threw nothing
  std::uint64_t operations = 0;     ///< of the rank that is to fail
};

/// Runs `step(world, files)` on three ranks with a file system each, of which that of `failing` has `plan`.
template <class Step>
Outcome run(int failing, const FaultPlan& plan, Step&& step) {
  std::vector<std::unique_ptr<FaultyFiles>> files;
  for (int rank = 0; rank < three_ranks; ++rank) {
    files.push_back(std::make_unique<FaultyFiles>(rank == failing ? plan : FaultPlan{.count_reads = true}));
  }
  Outcome out;
  out.errors = mg::run_threads(three_ranks,
                               [&](auto& world) -> std::string {
                                 try {
                                   step(world, *files[static_cast<std::size_t>(world.rank())]);
                                 } catch (const mg::Error& error) {
                                   return mg::concat(static_cast<int>(error.code()), ' ', error.what());
                                 }
                                 return {};
                               },
                               {.deadline = std::chrono::seconds(20)});
  out.operations = files[static_cast<std::size_t>(failing)]->operations();
  return out;
}

void save_generation_of(const std::string& path, float value, auto& world, FaultyFiles& files) {
  const Generation mine(world.rank(), world.size(), value);
  mg::save(path, mine.state, world, {.files = &files});
}

float loaded_generation(const std::string& path) {
  mg::solo_comm solo;
  Generation all(0, 1, -7);
  mg::load(path, all.state, solo);
  return all.value();
}

/// The ways to fail: what the system says, what the C++ library throws, what nobody expects.
const std::vector<std::function<void()>>& ways_to_fail() {
  static const std::vector<std::function<void()>> ways{
      {},
      [] { throw std::bad_alloc(); },
      [] { throw std::runtime_error("something else"); },
      [] { throw 42; },
  };
  return ways;
}

void check_same_error(const Outcome& outcome) {
  for (const std::string& error : outcome.errors) {
    CHECK_FALSE(error.empty());
    CHECK(error == outcome.errors[0]);
  }
}

}  // namespace

TEST_CASE("whatever one rank's file system does in a save, all ranks get the same error and the old checkpoint stays") {
  for (const int failing : {0, 2}) {
    CAPTURE(failing);
    const TemporaryDirectory directory;
    const std::string path = directory / "run";
    const auto save = [&](float value) {
      return [&, value](auto& world, FaultyFiles& files) { save_generation_of(path, value, world, files); };
    };
    for (const std::string& error : run(failing, {.count_reads = true}, save(1)).errors) REQUIRE(error.empty());
    const std::uint64_t operations = run(failing, {.count_reads = true}, save(1)).operations;
    REQUIRE(operations > 5);
    for (std::size_t way = 0; way < ways_to_fail().size(); ++way) {
      CAPTURE(way);
      for (std::uint64_t at = 0; at < operations; ++at) {
        CAPTURE(at);
        const Outcome outcome = run(failing, {.fail_at = at, .count_reads = true, .raise = ways_to_fail()[way]}, save(2));
        const float seen = loaded_generation(path);
        if (outcome.errors[0].empty()) {
          // Only clearing away the old one, or what was left by others, may fail unseen.
          for (const std::string& error : outcome.errors) CHECK(error.empty());
          CHECK(seen == 2);
        } else {
          check_same_error(outcome);
          CHECK((seen == 1 || seen == 2));
        }
        for (const std::string& error : run(failing, {.count_reads = true}, save(1)).errors) REQUIRE(error.empty());
        REQUIRE(loaded_generation(path) == 1);
      }
    }
  }
}

TEST_CASE("whatever one rank's file system does in a load, all ranks get the same error") {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  for (const std::string& error :
       run(0, {}, [&](auto&world, FaultyFiles&files) { save_generation_of(path, 5, world, files); }).errors) {
    REQUIRE(error.empty());
  }
  const auto load = [&](auto& world, FaultyFiles& files) {
    Generation mine(world.rank(), world.size(), -7);
    mg::load(path, mine.state, world, {.files = &files});
    REQUIRE(mine.value() == 5);
  };
  for (const int failing : {0, 1, 2}) {
    CAPTURE(failing);
    const std::uint64_t operations = run(failing, {.count_reads = true}, load).operations;
    REQUIRE(operations > 3);
    for (std::size_t way = 0; way < ways_to_fail().size(); ++way) {
      CAPTURE(way);
      for (std::uint64_t at = 0; at < operations; ++at) {
        CAPTURE(at);
        const Outcome outcome = run(failing, {.fail_at = at, .count_reads = true, .raise = ways_to_fail()[way]}, load);
        check_same_error(outcome);
      }
    }
  }
  CHECK(loaded_generation(path) == 5);
}

TEST_CASE("a data file that one rank alone cannot see is the same error on all") {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  run(0, {}, [&](auto& world, FaultyFiles& files) { save_generation_of(path, 5, world, files); });
  class Blind final : public ForwardingFiles {
   public:
    mg::FileStatus status(const std::string& p) override {
      return p.ends_with("__1_0.distcp") ? mg::FileStatus{} : ForwardingFiles::status(p);
    }
  };
  const auto errors = mg::run_threads(three_ranks, [&](auto& world) -> std::string {
    Blind blind;
    Generation mine(world.rank(), world.size(), -7);
    return error_text<mg::IoError>([&] {
      mg::load(path, mine.state, world,
               {.files = world.rank() == 1 ? static_cast<mg::FileSystem*>(&blind) : &mg::posix_file_system()});
    });
  });
  for (const std::string& error : errors) {
    CHECK(error == errors[0]);
    CHECK(contains(error, "rank 1"));
    CHECK(contains(error, "__1_0.distcp"));
  }
}

TEST_CASE("a full disk is one sentence with path, bytes wanted and available, and the old checkpoint stays") {
  const TemporaryDirectory directory;
  const std::string disk = directory / "disk";
  std::filesystem::create_directory(disk);
  if (::mount("none", disk.c_str(), "tmpfs", 0, "size=512k") != 0) {
    MESSAGE("skipped: a small file system cannot be mounted here");
    return;
  }
  const auto save = [&](std::int64_t rows) {
    return mg::run_threads(three_ranks, [&](auto& world) -> std::string {
      std::vector<float> values(static_cast<std::size_t>(rows), static_cast<float>(rows));
      mg::ShardedStateDict<mg::TensorView> state;
      state.add(mg::make_sharded_grid("w", mg::view_of(values, {rows}), {{0, world.rank(), three_ranks}}));
      return error_text<mg::IoError>([&] { mg::save(disk + "/run", state, world); });
    });
  };
  for (const std::string& error : save(100)) CHECK(error == "no such error");
  for (const std::string& error : save(1 << 20)) {
    CHECK(contains(error, disk + "/.run.mgroups-new-"));
    CHECK(contains(error, "available"));
  }
  std::vector<float> values(300);
  mg::ShardedStateDict<mg::TensorView> state;
  state.add(mg::make_whole("w", mg::view_of(values, {300})));
  mg::solo_comm solo;
  CHECK_NOTHROW(mg::load(disk + "/run", state, solo));
  CHECK(values[299] == 100);
  for (const std::string& error : save(90)) CHECK(error == "no such error");
  CHECK(::umount(disk.c_str()) == 0);
}
