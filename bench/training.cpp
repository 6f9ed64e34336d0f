// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// A fixed number of training steps: alone, while asynchronous saves are always in flight, or while the same bytes are copied
// by memcpy and then written plainly at the same priority, which is what such a save cannot do without. A step multiplies two
// matrices that fit into the cache and ends with a small all_reduce, on each of RANKS threads. When all ranks see that the
// last save has ended, the next one begins. Timed from the first step to the last, staging included; the first save, which
// takes the memory for staging, comes before.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <mgroups/checkpoint/async.hpp>
#include <mgroups/checkpoint/background.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/io/posix.hpp>

#include "numbered_state.hpp"
#include "support/stopwatch.hpp"

namespace mg = mgroups;

namespace {

/// A matrix product on one thread.
class Step {
 public:
  // Not inlined, so that it is the same code whatever runs beside it.
  [[gnu::noinline]] void run() {
    const float* const left = left_.data();
    const float* const right = right_.data();
    float* const __restrict product = product_.data();
    std::fill(product_.begin(), product_.end(), 0.0f);
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t k = 0; k < size; ++k) {
        const float factor = left[i * size + k];
        for (std::size_t j = 0; j < size; ++j) product[i * size + j] += factor * right[k * size + j];
      }
    }
  }
  [[nodiscard]] float result() const { return product_.front(); }

 private:
  static constexpr std::size_t size = 256;
  std::vector<float> left_ = std::vector<float>(size * size, 0.5f), right_ = left_, product_ = left_;
};

struct Result {
  Seconds seconds;
  double staging = 0;  // of `seconds`
  int saves = 0;       // begun
  float sum = 0;       // so that no step can be left out
};

/// What is always in flight beside the steps.
class Nothing {
 public:
  [[nodiscard]] bool ready() const { return false; }
  void begin() {}
  void wait() {}
};

class Saves {
 public:
  Saves(const std::string& directory, const NumberedState& state, mg::thread_comm& world)
      : directory_(directory), state_(state), saver_(world) {}
  [[nodiscard]] bool ready() const { return save_->ready(); }
  void begin() { save_ = saver_.save(directory_, state_.dict); }
  void wait() { save_->wait(); }

 private:
  const std::string& directory_;
  const NumberedState& state_;
  mg::AsyncSaver saver_;
  std::optional<mg::AsyncSave> save_;
};

/// Copies the rank's bytes, and writes the copy on a thread of its own.
class PlainWrites {
 public:
  PlainWrites(const std::string& directory, std::size_t bytes, int rank)
      : path_(mg::join_path(directory, std::to_string(rank))), from_(bytes, std::byte{1}), to_(from_) {
    mg::posix_file_system().make_directories(directory);
  }
  [[nodiscard]] bool ready() const { return done_; }
  void begin() {
    wait();
    std::memcpy(to_.data(), from_.data(), to_.size());
    done_ = false;
    thread_ = std::jthread([this] {
      mg::detail::lower_priority(mg::AsyncOptions{}.niceness);
      constexpr std::size_t piece = std::size_t{4} << 20;
      mg::posix_file_system().remove_all(path_);
      const auto file = mg::posix_file_system().create(path_);
      file->preallocate(to_.size());
      for (std::size_t at = 0; at < to_.size(); at += piece) {
        file->write_at(at, std::span(to_).subspan(at, std::min(piece, to_.size() - at)));
      }
      file->sync();
      file->close();
      done_ = true;
    });
  }
  void wait() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  const std::string path_;
  std::vector<std::byte> from_, to_;
  std::atomic<bool> done_{true};
  std::jthread thread_;
};

template <class Beside>
Result train(Beside beside, int steps, mg::thread_comm& world, bool saving) {
  if (saving) {
    beside.begin();
    beside.wait();
  }
  Step step;
  Result out;
  world.barrier();
  const Stopwatch watch;
  for (int i = 0; i < steps; ++i) {
    step.run();
    out.sum += step.result();
    std::uint64_t ready = saving && beside.ready() ? 1 : 0;
    world.all_reduce(std::span(&ready, 1), mg::ReduceOp::min);
    if (ready != 0) {
      const Stopwatch staging;
      beside.begin();
      out.staging += staging.read().wall;
      ++out.saves;
    }
  }
  world.barrier();
  out.seconds = watch.read();
  if (saving) beside.wait();
  return out;
}

Result train(std::string_view verb, const std::string& directory, const StateSizes& sizes, int steps,
             mg::thread_comm& world) {
  NumberedState state(sizes, world.rank());
  state.fill();
  if (world.rank() == 0) mg::posix_file_system().remove_all(directory);
  world.barrier();
  if (verb == "saving") return train<Saves&&>(Saves(directory, state, world), steps, world, true);
  if (verb == "writing") {
    return train<PlainWrites&&>(PlainWrites(directory, static_cast<std::size_t>(state.bytes()), world.rank()), steps, world,
                                true);
  }
  return train(Nothing(), steps, world, false);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "usage: training alone|saving|writing DIRECTORY RANKS TENSORS BYTES_EACH STEPS\n");
    return 2;
  }
  try {
    StateSizes sizes;
    sizes.ranks = std::atoi(argv[3]);
    sizes.tensors = std::atoll(argv[4]);
    sizes.bytes_each = std::atoll(argv[5]);
    const int steps = std::atoi(argv[6]);
    const auto results =
        mg::run_threads(sizes.ranks, [&](auto& world) { return train(argv[1], argv[2], sizes, steps, world); });
    double wall = 0;
    for (const Result& one : results) wall = std::max(wall, one.seconds.wall);
    const Result& first = results.front();
    std::printf("{\"seconds\": %.6f, \"cpu_seconds\": %.6f, \"staging\": %.6f, \"saves\": %d, \"sum\": %g}\n", wall,
                first.seconds.cpu, first.staging, first.saves, static_cast<double>(first.sum));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "training: %s\n", error.what());
    return 1;
  }
}
