// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/io/sequential_writer.hpp>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include <mgroups/core/block_checksums.hpp>
#include <mgroups/core/crc32.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/io/posix.hpp>

#include <doctest/doctest.h>

#include "support/temporary_directory.hpp"

namespace mg = mgroups;

TEST_CASE("more than the buffer cannot be reserved") {
  const TemporaryDirectory directory;
  mg::SequentialWriter out(mg::posix_file_system().create(directory / "file"), 0, 100);
  CHECK_THROWS_AS(static_cast<void>(out.reserve(101)), mg::InvalidArgument);
}

TEST_CASE("small and large pieces end up one behind the other") {
  const TemporaryDirectory directory;
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::byte> expected;
    const std::string path = directory / std::to_string(round);
    mg::SequentialWriter out(mg::posix_file_system().create(path), 0, std::size_t{4096} << (round % 3));
    for (int piece = 0; piece < 30; ++piece) {
      // Below and above the buffer, and above what goes out directly whatever the buffer is.
      const std::size_t size = piece % 7 == 0 ? 300000 : piece % 7 == 3 ? 5000 + random() % 20000 : random() % 4000;
      std::vector<std::byte> bytes(size);
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      if (piece % 5 == 1 && size <= 4096) {
        const auto room = out.reserve(size);
        std::copy(bytes.begin(), bytes.end(), room.begin());
      } else {
        out.append(bytes);
      }
      expected.insert(expected.end(), bytes.begin(), bytes.end());
      if (piece % 4 == 2) {
        out.align(64);
        expected.resize((expected.size() + 63) / 64 * 64);
      }
      REQUIRE(out.position() == expected.size());
    }
    out.finish();
    const auto file = mg::posix_file_system().open_read(path);
    REQUIRE(file->size() == expected.size());
    std::vector<std::byte> found(expected.size());
    file->read_at(0, found);
    REQUIRE(found == expected);
  }
}

TEST_CASE("checksums see every byte once, whichever way it came") {
  const TemporaryDirectory directory;
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::byte> expected;
    mg::BlockChecksums sums;
    mg::SequentialWriter out(mg::posix_file_system().create(directory / std::to_string(round)), 0,
                             round % 2 == 0 ? std::size_t{20000} : std::size_t{1} << 20, &sums);
    for (int piece = 0; piece < 200; ++piece) {
      const std::size_t size = piece % 31 == 0 ? 700000 : random() % (piece % 3 == 0 ? 20000 : 300);
      std::vector<std::byte> bytes(size);
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      switch (random() % 4) {
        case 0: out.append(bytes); break;
        case 1:
          if (size <= 20000) {
            const auto room = out.reserve(size);
            std::copy(bytes.begin(), bytes.end(), room.begin());
            break;
          }
          [[fallthrough]];
        default: REQUIRE(out.append_checked(bytes) == mg::crc32(bytes));
      }
      expected.insert(expected.end(), bytes.begin(), bytes.end());
    }
    out.finish();
    mg::BlockChecksums whole;
    static_cast<void>(whole.append(expected));
    REQUIRE(sums == whole);
  }
}
