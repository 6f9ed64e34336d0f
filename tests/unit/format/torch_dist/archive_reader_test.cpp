// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/format/torch_dist/archive_reader.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <mgroups/format/torch_dist/archive_writer.hpp>
#include <mgroups/format/torch_dist/stored_tensor.hpp>

#include "../../../support/bytes.hpp"
#include "../../../support/checkpoints.hpp"
#include "support/sentences.hpp"

namespace mg = mgroups;
using namespace std::string_literals;
using namespace std::string_view_literals;
using mgroups_test::bytes_of;

namespace {

std::vector<std::byte> small_archive() {
  mg::ObjectArchive writer(bytes_of("\x80\x02N."sv));
  writer.add("data/0", bytes_of("0123456789"));
  return writer.finish();
}

std::string archive_fault(const std::vector<std::byte>& bytes) {
  try {
    const mg::Archive archive(bytes, bytes.size(), "f.distcp", "w");
    for (const auto& record : archive.records()) static_cast<void>(archive.read(record));
  } catch (const mg::Error& e) {
    CHECK(e.context().file == "f.distcp");
    CHECK(e.context().key == "w");
    return e.what();
  }
  return {};
}

// Sets bytes of the central directory entry of the record `which`.
std::vector<std::byte> with_central(std::size_t which, std::size_t at, std::string_view value) {
  auto bytes = small_archive();
  const std::string text = mgroups_test::text_of(bytes);
  std::size_t entry = text.find("PK\x01\x02"sv);
  for (; which > 0; --which) entry = text.find("PK\x01\x02"sv, entry + 4);
  for (std::size_t i = 0; i < value.size(); ++i) bytes[entry + at + i] = static_cast<std::byte>(value[i]);
  return bytes;
}

}  // namespace

TEST_CASE("archive: lies in the directory are refused") {
  CHECK(archive_fault(small_archive()).empty());
  CHECK(contains(archive_fault(with_central(0, 10, "\x08"sv)), "compressed record 'data.pkl'"));
  CHECK(contains(archive_fault(with_central(0, 8, "\x09\x08"sv)), "encrypted"));
  CHECK(contains(archive_fault(with_central(0, 20, "\x05"sv)), "two sizes, 4 and 5"));
  CHECK(contains(archive_fault(with_central(0, 34, "\x01"sv)), "several disks"));
  CHECK(contains(archive_fault(with_central(2, 20, "\xff\xff\x00\x00\xff\xff\x00\x00"sv)), "reaches behind its data"));
  CHECK(contains(archive_fault(with_central(2, 20, "\x60\x00\x00\x00\x60\x00\x00\x00"sv)), "overlap"));
  CHECK(contains(archive_fault(with_central(1, 42, "\x00\x00\x00\x00"sv)), "overlap"));
  auto renamed = small_archive();
  renamed[mgroups_test::text_of(renamed).find("archive/data/0")] = std::byte{'x'};
  CHECK(contains(archive_fault(renamed), "does not have the header of record 'data/0'"));
  CHECK(contains(archive_fault(with_central(2, 16, "\x01\x02\x03\x04"sv)), "the file is damaged"));
  CHECK(archive_fault(with_central(2, 16, "\x00\x00\x00\x00"sv)).empty());  // 0: none was computed
  CHECK(contains(archive_fault(with_central(1, 46, "brchive"sv)), "outside of its folder 'archive'"));
  CHECK(contains(archive_fault(with_central(1, 46, "archivexbyteorder"sv)), "outside of a folder"));
  CHECK(contains(archive_fault(with_central(2, 46, "archive/version"sv.substr(0, 14))), "does not have the header"));
}

TEST_CASE("archive: two records of one name, few and many") {
  for (const int more : {0, 40}) {
    mg::ObjectArchive writer(bytes_of("\x80\x02N."sv));
    for (int i = 0; i < more; ++i) writer.add(mg::concat("data/", i), bytes_of("x"));
    writer.add("twin", bytes_of("x"));
    writer.add("twin", bytes_of("y"));
    CHECK(contains(archive_fault(writer.finish()), "two records 'twin'"));
  }
  mg::ObjectArchive writer(bytes_of("\x80\x02N."sv));
  for (int i = 0; i < 300; ++i) writer.add(mg::concat("data/", i), bytes_of(std::to_string(i)));
  const auto bytes = writer.finish();
  const mg::Archive archive(bytes, bytes.size(), "f");
  for (int i = 0; i < 300; ++i)
    CHECK(mgroups_test::text_of(archive.read(archive.at(mg::concat("data/", i)))) == std::to_string(i));
  CHECK(archive.find("data/300") == nullptr);
  CHECK_THROWS_AS(static_cast<void>(archive.at("data/300")), mg::FormatError);
}

TEST_CASE("archive: plain zip files without zip64 ending, data descriptors or padding, and with a comment") {
  // python3: zipfile.ZipFile(..., 'w', ZIP_STORED) with a/data.pkl = "\x80\x02N." and a comment, dates zeroed.
  const std::string local =
      "PK\x03\x04\x14\x00\x00\x00\x00\x00\x00\x00\x21\x00\x74\x6c\xa4\x3a\x04\x00\x00\x00\x04\x00\x00\x00\x0a\x00\x00\x00"
      "a/data.pkl\x80\x02N."s;
  std::string text = local;
  const auto crc = mg::crc32(std::as_bytes(std::span("\x80\x02N."sv)));
  std::string crc_text;
  for (int i = 0; i < 4; ++i) crc_text.push_back(static_cast<char>(crc >> (8 * i)));
  text += "PK\x01\x02\x14\x03\x14\x00\x00\x00\x00\x00\x00\x00\x21\x00"s + crc_text +
          "\x04\x00\x00\x00\x04\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x01\x00\x00\x00\x00"
          "a/data.pkl"s;
  text += "PK\x05\x06\x00\x00\x00\x00\x01\x00\x01\x00\x38\x00\x00\x00\x2c\x00\x00\x00\x02\x00hi"s;
  const auto bytes = bytes_of(text);
  const mg::Archive archive(bytes, bytes.size(), "f");
  CHECK(archive.prefix() == "a");
  CHECK(mgroups_test::text_of(archive.read(archive.at("data.pkl"))) == "\x80\x02N."sv);
}

TEST_CASE("archive: what is none says so") {
  CHECK(contains(archive_fault({}), "has only 0 bytes"));
  CHECK(contains(archive_fault(std::vector<std::byte>(1000)), "does not end like a zip archive"));
  CHECK(contains(archive_fault(bytes_of("\x41\x00\x00\x00\x00\x00\x00\x00{\"a\": 1}"sv)), "safetensors"));
  auto cut = small_archive();
  cut.resize(cut.size() - 1);
  CHECK(contains(archive_fault(cut), "cut"));
}

TEST_CASE("archive: every cut and every changed byte of an object is refused or read right") {
  const auto good = small_archive();
  mgroups_test::attack(good, [&](const std::vector<std::byte>& bad, std::size_t at) {
    CAPTURE(at);
    try {
      const mg::Archive archive(bad, bad.size(), "f.distcp", "w");
      for (const auto& record : archive.records()) {
        const std::string text = mgroups_test::text_of(archive.read(record));
        if (record.name == "data/0" && record.crc != 0) CHECK(text == "0123456789");
      }
    } catch (const mg::FormatError&) {
    } catch (const mg::UnsupportedError&) {
    }
  });
}
