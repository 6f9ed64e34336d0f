// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <mgroups/checkpoint/load.hpp>
#include <mgroups/checkpoint/reader.hpp>
#include <mgroups/checkpoint/save.hpp>
#include <mgroups/comm/solo.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/shard/state_dict.hpp>

#include <doctest/doctest.h>

#include "support/bytes.hpp"
#include "support/fixtures.hpp"
#include "support/sentences.hpp"
#include "support/temporary_directory.hpp"

namespace mg = mgroups;

namespace {

using FloatState = mg::ShardedStateDict<mg::TensorView>;

void write_bytes(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

/// Two ranks, each with half of `w`, and an object.
void save_pair(const std::string& path, std::int64_t rows, const mg::SaveOptions& options = {}) {
  mg::run_threads(2, [&](auto& world) {
    std::vector<float> values(static_cast<std::size_t>(rows) * 4);
    std::iota(values.begin(), values.end(), static_cast<float>(world.rank() * rows * 4));
    mg::Object object = mg::Value("text");
    FloatState state;
    state.add(mg::make_sharded_grid("w", mg::view_of(values, {rows, 4}), {{0, world.rank(), 2}}));
    if (world.rank() == 1) state.add(mg::make_sharded_object("o", object));
    mg::save(path, state, world, options);
  });
}

/// Loads all of it on one rank; true when every value is right.
bool load_pair(const std::string& path, std::int64_t rows, const mg::LoadOptions& options = {}) {
  mg::solo_comm solo;
  std::vector<float> values(static_cast<std::size_t>(rows) * 8), wanted(values.size());
  std::iota(wanted.begin(), wanted.end(), 0.0f);
  mg::Object object, common;
  FloatState state;
  state.add(mg::make_whole("w", mg::view_of(values, {2 * rows, 4})));
  state.add(mg::make_sharded_object("o", object));
  state.set_common(common);
  mg::load(path, state, solo, options);
  return values == wanted && object.understood() && object.value() == mg::Value("text");
}

}  // namespace

TEST_CASE("no flipped byte of any file of a checkpoint leads to wrong values") {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  save_pair(path, 3);
  REQUIRE(load_pair(path, 3));
  int refused = 0, harmless = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const std::string file = entry.path().string();
    const std::vector<std::byte> good = mgroups_test::file_bytes(file);
    const bool data = file.ends_with(".distcp");
    for (std::size_t i = 0; i < good.size(); ++i) {
      constexpr unsigned changes[] = {0x01, 0x20, 0xFF};
      std::vector<std::byte> bad = good;
      bad[i] ^= static_cast<std::byte>(changes[i % 3]);
      write_bytes(file, bad);
      CAPTURE(file);
      CAPTURE(i);
      try {
        const bool right = load_pair(path, 3);
        CHECK(right);
        CHECK_FALSE(data);  // every byte of these is covered
        ++harmless;
      } catch (const mg::Error& error) {
        ++refused;
      }
    }
    write_bytes(file, good);
  }
  REQUIRE(load_pair(path, 3));
  CHECK(refused > 10 * harmless);
}

TEST_CASE("a damaged block is named, other blocks can be read, and verification can be left out") {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  const std::int64_t rows = 300'000;  // 4.8 MB a rank: nineteen blocks
  save_pair(path, rows);
  std::vector<std::byte> bytes = mgroups_test::file_bytes(path + "/__0_0.distcp");
  bytes[3'500'000] ^= std::byte{4};
  write_bytes(path + "/__0_0.distcp", bytes);

  const std::string text = error_text<mg::FormatError>([&] { static_cast<void>(load_pair(path, rows)); });
  CHECK(contains(text, "__0_0.distcp"));
  CHECK(contains(text, "bytes 3407872 to 3670016"));
  CHECK_FALSE(load_pair(path, rows, {.verify = mg::Verify::nothing}));

  mg::CheckpointReader reader(path);
  std::vector<float> row(4);
  reader.read("w", {{10, 0}, {1, 4}}, mg::view_of(row, {1, 4}));
  CHECK(row[3] == 43.0f);
  CHECK_THROWS_AS(reader.read("w", {{3'600'000 / 16, 0}, {1, 4}}, mg::view_of(row, {1, 4})), mg::FormatError);
}

TEST_CASE("checksums can be left out, and those of another save are not believed") {
  const TemporaryDirectory directory;
  const std::string with = directory / "with", without = directory / "without";
  save_pair(with, 3);
  save_pair(without, 3, {.checksums = false});
  const std::string sums = "/" + std::string(mg::ChecksumFile::name);
  CHECK(std::filesystem::exists(with + sums));
  CHECK_FALSE(std::filesystem::exists(without + sums));
  CHECK(load_pair(without, 3));
  // As another library leaves it that saves into the same directory.
  std::filesystem::copy_file(with + sums, without + sums);
  CHECK(load_pair(without, 3));

  std::vector<std::byte> metadata = mgroups_test::file_bytes(with + "/.metadata");
  const std::string text = mgroups_test::text_of(metadata);
  const std::size_t shape = text.find("w");
  REQUIRE(shape != std::string::npos);
  metadata[shape] = std::byte{'v'};
  write_bytes(with + "/.metadata", metadata);
  CHECK(contains(error_text<mg::FormatError>([&] { static_cast<void>(load_pair(with, 3)); }),
                 "/.metadata does not match its checksum"));
}

TEST_CASE("parts of records of other writers are checked when everything is to be verified") {
  const TemporaryDirectory directory;
  // Large records only: small ones are read whole in any case.
  const std::string path = directory / "run";
  save_pair(path, 60'000, {.checksums = false});
  std::vector<std::byte> bytes = mgroups_test::file_bytes(path + "/__0_0.distcp");
  bytes[900'000] ^= std::byte{1};
  write_bytes(path + "/__0_0.distcp", bytes);
  std::vector<float> row(4);
  const auto read_row = [&](mg::Verify verify) {
    mg::CheckpointReader(path, {.verify = verify}).read("w", {{10, 0}, {1, 4}}, mg::view_of(row, {1, 4}));
  };
  CHECK_NOTHROW(read_row(mg::Verify::touched));
  CHECK_NOTHROW(read_row(mg::Verify::nothing));
  CHECK_THROWS_WITH_AS(read_row(mg::Verify::everything), doctest::Contains("CRC-32"), mg::FormatError);
  CHECK_THROWS_AS(static_cast<void>(load_pair(path, 60'000)), mg::FormatError);
}
