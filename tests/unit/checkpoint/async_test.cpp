// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <mgroups/checkpoint/async.hpp>
#include <mgroups/checkpoint/load.hpp>
#include <mgroups/comm/solo.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/shard/state_dict.hpp>

#include <doctest/doctest.h>

#include "support/faulty_files.hpp"
#include "support/sentences.hpp"
#include "support/temporary_directory.hpp"

namespace mg = mgroups;

namespace {

constexpr std::int64_t async_rows = 2'600'000;  // three slices of 4 MiB a rank of two, and an odd end

/// A rank's rows of a vector whose elements are their index plus `first`, a strided tensor, an object and common state.
struct AsyncState {
  std::vector<float> rows, square;
  mg::Object object, common;
  std::unique_ptr<mg::ShardedStateDict<mg::TensorView>> state = std::make_unique<mg::ShardedStateDict<mg::TensorView>>();

  AsyncState(int rank, int ranks, float first) : square(12) {
    const mg::IndexRange range = mg::split_range(async_rows, ranks, rank);
    rows.resize(static_cast<std::size_t>(range.end - range.begin));
    state->add(mg::make_sharded_at("rows", mg::view_of(rows, {range.end - range.begin}), {async_rows}, {range.begin}));
    state->add(
        mg::make_whole("square", mg::TensorView{square.data(), mg::DType::float32, {4, 3}, {1, 4}}, {.replica_id = rank}));
    state->add(mg::make_sharded_object("object", object, {.replica_id = rank}));
    state->set_common(common);
    fill(rank, ranks, first);
  }
  void fill(int rank, int ranks, float first) {
    const mg::IndexRange range = mg::split_range(async_rows, ranks, rank);
    std::iota(rows.begin(), rows.end(), first + static_cast<float>(range.begin));
    std::iota(square.begin(), square.end(), first);
    object = mg::Value(first);
    common = mg::Value::dict({{"first", first}});
  }
  /// Overwrites everything, and forgets the state dict.
  void destroy() {
    std::fill(rows.begin(), rows.end(), -1.0f);
    std::fill(square.begin(), square.end(), -1.0f);
    object = mg::Value("gone");
    common = mg::Value();
    state = nullptr;
  }
};

bool holds_generation(const std::string& path, float first) {
  mg::solo_comm solo;
  AsyncState all(0, 1, -5);
  const AsyncState wanted(0, 1, first);
  mg::load(path, *all.state, solo);
  return all.rows == wanted.rows && all.square == wanted.square && all.object.value() == wanted.object.value() &&
         all.common.value() == wanted.common.value();
}

}  // namespace

TEST_CASE("asynchronous save: everything may be overwritten when it has returned") {
  const TemporaryDirectory directory;
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    const std::string path = directory / std::to_string(ranks);
    mg::run_threads(ranks, [&](auto& world) {
      mg::AsyncSaver saver(world);
      for (const float generation : {1.0f, 2.0f}) {  // the second one in the memory of the first
        AsyncState mine(world.rank(), world.size(), generation);
        const mg::AsyncSave save = saver.save(path, *mine.state);
        mine.destroy();
        const mg::SaveReport report = save.wait();
        REQUIRE(save.ready());
        REQUIRE(save.bytes_done() <= save.bytes_total());
        REQUIRE(report.tensors_written >= 1);
        world.barrier();
        if (world.rank() == 0) REQUIRE(holds_generation(path, generation));
        world.barrier();
      }
    });
  }
}

TEST_CASE("asynchronous save: collectives of the training loop go on beside it") {
  const TemporaryDirectory directory;
  mg::run_threads(2, [&](auto& world) {
    mg::AsyncSaver saver(world);
    AsyncState mine(world.rank(), world.size(), 1);
    std::vector<mg::AsyncSave> saves;
    for (float generation = 1; generation <= 3; ++generation) {
      mine.fill(world.rank(), world.size(), generation);
      saves.push_back(saver.save(directory / std::to_string(static_cast<int>(generation)), *mine.state));
      for (int step = 0; step < 50; ++step) {
        std::vector<int> value{world.rank() + 1};
        world.all_reduce(value, mg::sum);
        REQUIRE(value[0] == 3);
      }
    }
    for (const mg::AsyncSave& save : saves) save.wait();
    world.barrier();
    if (world.rank() == 0) {
      for (float generation = 1; generation <= 3; ++generation) {
        REQUIRE(holds_generation(directory / std::to_string(static_cast<int>(generation)), generation));
      }
    }
  });
}

TEST_CASE("asynchronous save: a failure is the same on every rank, is thrown by wait, and leaves the old checkpoint") {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  std::atomic<int> unseen{0};
  FaultyFiles faulty({.fail_at = 4});
  mg::run_threads(2, [&](auto& world) {
    mg::AsyncSaver saver(world, {.on_unseen_failure = [&](std::string_view sentence) {
                           REQUIRE(contains(sentence, "nobody has waited"));
                           ++unseen;
                         }});
    AsyncState mine(world.rank(), world.size(), 1);
    saver.save(path, *mine.state).wait();
    const mg::AsyncSave failing = saver.save(path, *mine.state, {.files = &faulty});
    const std::string text = error_text<mg::IoError>([&] { failing.wait(); });
    REQUIRE(contains(text, "on order"));
    REQUIRE(text == error_text<mg::IoError>([&] { failing.wait(); }));
    // Bad input is refused before anything is copied, and the saver can be used again.
    mg::ShardedStateDict<mg::TensorView> bad;
    bad.add(mg::make_whole("w", mg::TensorView{nullptr, mg::DType::float32, {3}, {1}}, {.replica_id = world.rank()}));
    REQUIRE(contains(error_text<mg::InvalidArgument>([&] { static_cast<void>(saver.save(path, bad)); }), "no address"));
    mine.fill(world.rank(), world.size(), 2);
    saver.save(path, *mine.state).wait();
    static_cast<void>(saver.save("/proc/no/such/place", *mine.state));
  });
  CHECK(holds_generation(path, 2));
  CHECK(unseen == 2);
}

TEST_CASE("asynchronous save: a second one waits or is refused, as the saver is told") {
  const TemporaryDirectory directory;
  // A file system that takes its time: the first save is in flight when the second one comes.
  class Slow final : public mg::FileSystem {
   public:
    std::unique_ptr<mg::File> open_read(const std::string& p) override { return real_.open_read(p); }
    std::unique_ptr<mg::File> create(const std::string& p) override { return real_.create(p); }
    mg::FileStatus status(const std::string& p) override { return real_.status(p); }
    std::vector<std::string> list(const std::string& p) override { return real_.list(p); }
    bool make_directories(const std::string& p) override {
      while (!open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return real_.make_directories(p);
    }
    void rename(const std::string& from, const std::string& to) override { real_.rename(from, to); }
    bool exchange(const std::string& a, const std::string& b) override { return real_.exchange(a, b); }
    void remove_all(const std::string& p) override { real_.remove_all(p); }
    void sync_directory(const std::string& p) override { real_.sync_directory(p); }
    std::atomic<bool> open{false};

   private:
    mg::FileSystem& real_ = mg::posix_file_system();
  };
  Slow slow;
  mg::run_threads(2, [&](auto& world) {
    mg::AsyncSaver saver(world, {.when_busy = mg::AsyncOptions::Busy::refuse, .on_unseen_failure = {}});
    AsyncState mine(world.rank(), world.size(), 1);
    const mg::AsyncSave first = saver.save(directory / "a", *mine.state, {.files = &slow});
    REQUIRE_FALSE(first.ready());
    REQUIRE(contains(error_text<mg::CheckpointError>([&] { static_cast<void>(saver.save(directory / "b", *mine.state)); }),
                     "still in flight"));
    world.barrier();
    slow.open = true;
    first.wait();
  });
  CHECK(holds_generation(directory / "a", 1));
  CHECK_FALSE(std::filesystem::exists(directory / "b"));
}

TEST_CASE("asynchronous save: a saver that goes away waits for its save") {
  const TemporaryDirectory directory;
  mg::run_threads(3, [&](auto& world) {
    AsyncState mine(world.rank(), world.size(), 4);
    mg::AsyncSaver saver(world);
    static_cast<void>(saver.save(directory / "run", *mine.state));
  });
  CHECK(holds_generation(directory / "run", 4));
}
