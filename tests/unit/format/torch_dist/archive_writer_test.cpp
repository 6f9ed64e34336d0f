// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/format/torch_dist/archive_writer.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <mgroups/format/torch_dist/archive_reader.hpp>
#include <mgroups/format/torch_dist/stored_tensor.hpp>

#include "../../../support/bytes.hpp"
#include "../../../support/fixtures.hpp"

namespace mg = mgroups;
using mgroups_test::little_endian;
using mgroups_test::text_of;
using namespace std::string_view_literals;

namespace {

std::vector<std::byte> archive_of(mg::DType dtype, const mg::Dims& shape) {
  mg::TensorArchive archive(dtype, shape);
  std::vector<std::byte> data(archive.data_size());
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 + 1);
  std::vector<std::byte> out(archive.head().begin(), archive.head().end());
  out.insert(out.end(), data.begin(), data.end());
  const auto tail = archive.tail(mg::crc32(data));
  out.insert(out.end(), tail.begin(), tail.end());
  CHECK(out.size() == archive.total_size());
  return out;
}

}  // namespace

TEST_CASE("tensor archive: the bytes of the format's definition") {
  const auto bytes = archive_of(mg::DType::float32, mg::Dims{2, 3});
  const std::string text = text_of(bytes);
  // Local header as torch writes it: flags 0x0808, all else zero, 16 bytes of name, padding "FB" up to byte 64.
  CHECK(text.substr(0, 48) ==
        "PK\x03\x04\x00\x00\x08\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        "\x10\x00\x12\x00"
        "archive/data.pkl"
        "FB"sv);
  CHECK(text.substr(48, 16) == "\x0e\x00ZZZZZZZZZZZZZZ"sv);
  constexpr std::string_view pickle =
      "\x80\x02"
      "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00"
      "0X\x03\x00\x00\x00"
      "cpuK\x06tQK\x00K\x02K\x03\x86K\x03K\x01\x86\x89"
      "ccollections\nOrderedDict\n)RtR."sv;
  const std::size_t n = pickle.size();
  CHECK(text.substr(64, n) == pickle);
  CHECK(text.substr(64 + n, 4) == "PK\x07\x08"sv);
  CHECK(little_endian(bytes, 68 + n, 4) == mg::crc32(std::as_bytes(std::span(pickle))));
  CHECK(little_endian(bytes, 72 + n, 4) == n);
  CHECK(little_endian(bytes, 76 + n, 4) == n);
  // The three closing records.
  const std::size_t end = bytes.size() - 98;
  CHECK(text.substr(end, 4) == "PK\x06\x06"sv);
  CHECK(little_endian(bytes, end + 4, 8) == 44);
  CHECK(little_endian(bytes, end + 12, 2) == 0x031E);
  CHECK(little_endian(bytes, end + 14, 2) == 45);
  CHECK(little_endian(bytes, end + 32, 8) == 4);
  CHECK(text.substr(end + 56, 4) == "PK\x06\x07"sv);
  CHECK(little_endian(bytes, end + 64, 8) == end);
  CHECK(text.substr(end + 76, 4) == "PK\x05\x06"sv);
}

TEST_CASE("tensor archive: every dtype and rank reads back, data at a multiple of 64") {
  for (int d = 0; d < mg::dtype_count; ++d) {
    const auto dtype = static_cast<mg::DType>(d);
    for (const mg::Dims& shape : {mg::Dims{}, mg::Dims{5}, mg::Dims{0}, mg::Dims{3, 7}, mg::Dims{0, 3}, mg::Dims{2, 0, 5},
                                  mg::Dims{1, 2, 3, 4}, mg::Dims{2, 1, 3, 1, 2, 1, 2}, mg::Dims::filled(16, 1)}) {
      CAPTURE(mg::name(dtype));
      CAPTURE(mg::to_string(shape));
      const auto bytes = archive_of(dtype, shape);
      const auto stored = mg::read_tensor_archive(bytes, bytes.size(), "some.distcp", "w");
      CHECK(stored.dtype == dtype);
      CHECK(stored.shape == shape);
      CHECK(stored.strides == mg::row_major_strides(shape));
      CHECK(stored.data_offset % 64 == 0);
      CHECK(stored.data_offset == stored.storage_begin);
      CHECK(stored.storage_bytes == static_cast<std::uint64_t>(mg::numel(shape)) * mg::size_of(dtype));
      CHECK(stored.crc == mg::crc32(std::span(bytes).subspan(stored.storage_begin, stored.storage_bytes)));
      CHECK_FALSE(stored.big_endian);
    }
  }
}

TEST_CASE("tensor archive: more than 4 GiB goes into zip64 fields") {
  // The data are never made: a reader asks for the ends only.
  for (const std::int64_t n :
       {std::int64_t{0xFFFFFFFE}, std::int64_t{0xFFFFFFFF}, std::int64_t{0x100000000}, std::int64_t{1} << 40}) {
    mg::TensorArchive archive(mg::DType::uint8, mg::Dims{n});
    const std::vector<std::byte> head(archive.head().begin(), archive.head().end());
    const std::vector<std::byte> tail(archive.tail(0x12345678).begin(), archive.tail(0x12345678).end());
    std::uint64_t asked = 0;
    const auto read = [&](std::uint64_t offset, std::span<std::byte> out) {
      asked += out.size();
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::uint64_t at = offset + i, behind = head.size() + archive.data_size();
        out[i] = at < head.size() ? head[at] : at < behind ? std::byte{} : tail[at - behind];
      }
    };
    const auto stored = mg::read_tensor_archive(read, archive.total_size(), "some.distcp", "w");
    CHECK(stored.storage_bytes == static_cast<std::uint64_t>(n));
    CHECK(stored.crc == 0x12345678);
    CHECK(stored.storage_begin == head.size());
    CHECK(asked == 2048);
    CHECK(head.size() % 64 == 0);
    const bool large = n >= 0xFFFFFFFF;
    const std::string version_header = text_of(std::span(tail).subspan(large ? 24 : 16, 4));
    CHECK(version_header == "PK\x03\x04"sv);
  }
}

TEST_CASE("tensor archive: shapes that cannot be stored") {
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  CHECK_THROWS_AS(mg::TensorArchive(mg::DType::uint8, mg::Dims{-1}), mg::InvalidArgument);
  CHECK_THROWS_AS(mg::TensorArchive(mg::DType::float32, mg::Dims{huge}), mg::InvalidArgument);
  CHECK_THROWS_AS(mg::TensorArchive(mg::DType::float32, mg::Dims{huge, huge, 0}), mg::InvalidArgument);
  // The largest numbers that can stand in a pickle still fit into the head.
  mg::Dims wide = mg::Dims::filled(16, 1);
  wide[0] = 0;
  wide[15] = std::int64_t{1} << 58;
  CHECK(mg::TensorArchive(mg::DType::bcomplex32, wide).head().size() < 1280);
}

TEST_CASE("object archive: prefix, records, checksums") {
  const auto pickle = mgroups_test::bytes_of("\x80\x02}."sv);
  mg::ObjectArchive writer(pickle, "common");
  std::vector<std::byte> payload(1000, std::byte{7});
  writer.add("data/0", payload);
  writer.add("data/1", {});
  const auto bytes = writer.finish();
  const mg::Archive archive(bytes, bytes.size(), "common.pt");
  CHECK(archive.prefix() == "common");
  std::vector<std::string> names;
  for (const auto& record : archive.records()) {
    names.emplace_back(record.name);
    CHECK(archive.data_offset(record) % 64 == 0);
  }
  CHECK(names == std::vector<std::string>{"data.pkl", "byteorder", "data/0", "data/1", "version"});
  CHECK(archive.read(archive.at("data/0")) == payload);
  CHECK(archive.read(archive.at("data/1")).empty());
  CHECK(text_of(archive.read(archive.at("version"))) == "3\n");
  CHECK_THROWS_AS(mg::ObjectArchive(pickle, "a/b"), mg::InvalidArgument);
  CHECK_THROWS_AS(mg::ObjectArchive(pickle, ""), mg::InvalidArgument);
}
