// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <mgroups/io/posix.hpp>

#include "support/stopwatch.hpp"

/// What the machine's files give without any format: the limit that a checkpoint can reach.
struct RawSeconds {
  double write = 0;  ///< reserve, write in 4 MiB pieces, sync; one file per thread
  double read = 0;   ///< pread of the same bytes, which are cached by then
  double write_cpu = 0, read_cpu = 0;
};

/// Writes and reads `bytes` in all with `threads` threads below `directory`, and removes the files again. Like a
/// checkpoint's, the bytes come from memory of their own and go there (up to 512 MiB a thread): one small buffer would
/// never leave the cache. Whoever wants the reading alone need not wait for the syncs.
inline RawSeconds raw_file_speed(const std::string& directory, std::uint64_t bytes, int threads, bool sync = true) {
  namespace mg = mgroups;
  constexpr std::size_t piece = std::size_t{4} << 20;
  mg::FileSystem& files = mg::posix_file_system();
  const std::string folder = mg::join_path(directory, "raw");
  files.remove_all(folder);
  files.make_directories(folder);
  const std::uint64_t share = bytes / static_cast<std::uint64_t>(threads) + 1;

  const auto timed = [&](auto&& work) {
    const auto memory = static_cast<std::size_t>(std::min<std::uint64_t>(share, std::uint64_t{512} << 20)) + piece;
    std::vector<std::vector<std::byte>> buffers(static_cast<std::size_t>(threads),
                                                std::vector<std::byte>(memory, std::byte{1}));
    const Stopwatch watch;
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] { work(mg::join_path(folder, std::to_string(t)), buffers[static_cast<std::size_t>(t)]); });
    }
    for (std::thread& worker : workers) worker.join();
    return watch.read();
  };
  const Seconds write = timed([&](const std::string& path, std::vector<std::byte>& buffer) {
    const auto file = files.create(path);
    file->preallocate(share);
    for (std::uint64_t at = 0; at < share; at += piece) {
      file->write_at(at, std::span(buffer)
                             .subspan(at % (buffer.size() - piece + 1) / piece * piece)
                             .first(static_cast<std::size_t>(std::min<std::uint64_t>(piece, share - at))));
    }
    if (sync) file->sync();
    file->close();
  });
  const Seconds read = timed([&](const std::string& path, std::vector<std::byte>& buffer) {
    const auto file = files.open_read(path);
    for (std::uint64_t at = 0; at < share; at += piece) {
      file->read_at(at, std::span(buffer)
                            .subspan(at % (buffer.size() - piece + 1) / piece * piece)
                            .first(static_cast<std::size_t>(std::min<std::uint64_t>(piece, share - at))));
    }
  });
  files.remove_all(folder);
  return {write.wall, read.wall, write.cpu, read.cpu};
}
