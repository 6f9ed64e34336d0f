// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <mgroups/core/block_checksums.hpp>
#include <mgroups/io/checked_file.hpp>
#include <mgroups/io/posix.hpp>

#include <doctest/doctest.h>

#include "support/temporary_directory.hpp"

namespace mg = mgroups;

namespace {

std::vector<std::byte> random_bytes(std::size_t n) {
  std::vector<std::byte> out(n);
  std::mt19937 random(7);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

void put_file(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

constexpr std::size_t block = mg::BlockChecksums::block_bytes;

}  // namespace

TEST_CASE("checked file: whatever is read equals the file, in any pieces") {
  const TemporaryDirectory directory;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, block - 1, block, block + 1, 3 * block + 12345}) {
    const std::vector<std::byte> bytes = random_bytes(size);
    put_file(directory / "f", bytes);
    mg::BlockChecksums sums;
    for (std::size_t at = 0; at < size; at += 700'001)
      sums.append(std::span(bytes).subspan(at, std::min(size - at, std::size_t{700'001})));
    CHECK(sums.file_bytes == size);
    CHECK(sums.blocks.size() == mg::BlockChecksums::block_count(size));
    mg::CheckedFile file(mg::posix_file_system().open_read(directory / "f"), sums);
    std::mt19937 random(static_cast<unsigned>(size));
    for (int round = 0; round < 60; ++round) {
      const std::size_t begin = size == 0 ? 0 : random() % size;
      const std::size_t n = round % 3 == 0 ? size - begin : std::min<std::size_t>(size - begin, random() % (2 * block));
      std::vector<std::byte> out(n);
      file.read_at(begin, out);
      REQUIRE(std::equal(out.begin(), out.end(), bytes.begin() + static_cast<std::ptrdiff_t>(begin)));
    }
    std::vector<std::byte> beyond(1);
    CHECK_THROWS_AS(file.read_at(size, beyond), mg::IoError);
  }
}

TEST_CASE("checked file: a flipped byte is seen by every read of its block, and by no other") {
  const TemporaryDirectory directory;
  std::vector<std::byte> bytes = random_bytes(2 * block + 100);
  mg::BlockChecksums sums;
  sums.append(bytes);
  for (const std::size_t flipped : {std::size_t{0}, block - 1, block, 2 * block + 99}) {
    CAPTURE(flipped);
    bytes[flipped] ^= std::byte{1};
    put_file(directory / "f", bytes);
    bytes[flipped] ^= std::byte{1};
    for (std::size_t at : {std::size_t{0}, std::size_t{5}, block - 3, block, block + 7, 2 * block, 2 * block + 98}) {
      for (const std::size_t n : {std::size_t{1}, std::size_t{2}, block}) {
        if (at + n > bytes.size()) continue;
        mg::CheckedFile file(mg::posix_file_system().open_read(directory / "f"), sums);
        std::vector<std::byte> out(n);
        const bool touched = at / block <= flipped / block && flipped / block <= (at + n - 1) / block;
        if (touched) {
          CHECK_THROWS_WITH_AS(file.read_at(at, out), doctest::Contains("do not match their checksum"), mg::FormatError);
        } else {
          CHECK_NOTHROW(file.read_at(at, out));
        }
      }
    }
  }
  put_file(directory / "f", std::span(bytes).first(bytes.size() - 1));
  CHECK_THROWS_WITH_AS(mg::CheckedFile(mg::posix_file_system().open_read(directory / "f"), sums),
                       doctest::Contains("cut short"), mg::FormatError);
}

TEST_CASE("block checksums: those of appended pieces, and the CRC-32 of each piece") {
  const std::vector<std::byte> bytes = random_bytes(3 * block + 4321);
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    mg::BlockChecksums sums;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t n = std::min(bytes.size() - at, 1 + random() % (round % 2 == 0 ? 2 * block + 5 : 200'000));
      const auto piece = std::span(bytes).subspan(at, n);
      CHECK(sums.append(piece) == mg::crc32(piece));
      at += n;
    }
    REQUIRE(sums.blocks.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
      const auto part = std::span(bytes).subspan(i * block, std::min(block, bytes.size() - i * block));
      CHECK(sums.blocks[i] == mg::crc32(part));
    }
  }
}
