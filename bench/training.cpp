// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// A fixed number of training steps, alone or while asynchronous saves are always in flight. A step multiplies two matrices
// that fit into the cache and ends with a small all_reduce, on each of RANKS threads. When all ranks see that the last save
// has ended, the next one begins. Timed from the first step to the last, staging included; the first save, which takes
// the memory for staging, comes before.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/checkpoint/async.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/io/posix.hpp>

#include "numbered_state.hpp"
#include "support/stopwatch.hpp"

namespace mg = mgroups;

namespace {

/// A matrix product on one thread.
class Step {
 public:
  void run() {
    std::fill(product_.begin(), product_.end(), 0.0f);
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t k = 0; k < size; ++k) {
        const float factor = left_[i * size + k];
        for (std::size_t j = 0; j < size; ++j) product_[i * size + j] += factor * right_[k * size + j];
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
  int saves = 0;  // begun
  float sum = 0;  // so that no step can be left out
};

Result train(bool saving, const std::string& directory, const StateSizes& sizes, int steps, mg::thread_comm& world) {
  NumberedState state(sizes, world.rank());
  state.fill();
  if (world.rank() == 0) mg::posix_file_system().remove_all(directory);
  world.barrier();
  std::optional<mg::AsyncSaver> saver;
  std::optional<mg::AsyncSave> save;
  if (saving) {
    saver.emplace(world);
    save = saver->save(directory, state.dict);
    save->wait();
  }
  Step step;
  Result out;
  world.barrier();
  const Stopwatch watch;
  for (int i = 0; i < steps; ++i) {
    step.run();
    out.sum += step.result();
    std::uint64_t ready = save && save->ready() ? 1 : 0;
    world.all_reduce(std::span(&ready, 1), mg::ReduceOp::min);
    if (ready != 0) {
      save = saver->save(directory, state.dict);
      ++out.saves;
    }
  }
  world.barrier();
  out.seconds = watch.read();
  if (save) save->wait();
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "usage: training alone|saving DIRECTORY RANKS TENSORS BYTES_EACH STEPS\n");
    return 2;
  }
  try {
    const bool saving = std::string_view(argv[1]) == "saving";
    StateSizes sizes;
    sizes.ranks = std::atoi(argv[3]);
    sizes.tensors = std::atoll(argv[4]);
    sizes.bytes_each = std::atoll(argv[5]);
    const int steps = std::atoi(argv[6]);
    const auto results =
        mg::run_threads(sizes.ranks, [&](auto& world) { return train(saving, argv[2], sizes, steps, world); });
    double wall = 0;
    for (const Result& one : results) wall = std::max(wall, one.seconds.wall);
    const Result& first = results.front();
    std::printf("{\"seconds\": %.6f, \"cpu_seconds\": %.6f, \"saves\": %d, \"sum\": %g}\n", wall, first.seconds.cpu,
                first.saves, static_cast<double>(first.sum));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "training: %s\n", error.what());
    return 1;
  }
}
