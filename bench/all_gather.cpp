// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// all_gather on threads, and the bare copies that it cannot do without: every rank copies every rank's part into its own
// memory.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include <mgroups/comm/threads.hpp>

#include "support/stopwatch.hpp"

namespace mg = mgroups;

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: all_gather ours|memcpy RANKS TOTAL_BYTES\n");
    return 2;
  }
  const bool ours = std::string_view(argv[1]) == "ours";
  const int ranks = std::atoi(argv[2]);
  const std::size_t part = static_cast<std::size_t>(std::atoll(argv[3])) / static_cast<std::size_t>(ranks) / 4;
  const auto slower = [](const Seconds& a, const Seconds& b) { return a.wall < b.wall; };
  std::vector<std::vector<float>> inputs(static_cast<std::size_t>(ranks), std::vector<float>(part, 1.0f));
  const auto times = mg::run_threads(ranks, [&](auto& world) {
    const std::vector<float>& in = inputs[static_cast<std::size_t>(world.rank())];
    std::vector<float> out(part * static_cast<std::size_t>(ranks));
    std::vector<Seconds> seconds;
    for (int round = 0; round < 9; ++round) {
      world.barrier();
      const Stopwatch watch;
      if (ours) {
        world.all_gather(std::span<const float>(in), std::span<float>(out));
      } else {
        for (int r = 0; r < ranks; ++r) {
          const int from = (world.rank() + r) % ranks;
          std::memcpy(out.data() + static_cast<std::size_t>(from) * part, inputs[static_cast<std::size_t>(from)].data(),
                      part * 4);
        }
        world.barrier();
      }
      seconds.push_back(watch.read());
    }
    std::nth_element(seconds.begin(), seconds.begin() + 4, seconds.end(), slower);
    return seconds[4];
  });
  const Seconds slowest = *std::max_element(times.begin(), times.end(), slower);
  std::printf("{\"seconds\": %.6f, \"cpu_seconds\": %.6f}\n", slowest.wall, slowest.cpu);
  return 0;
}
