// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/format/checksum_file.hpp>

#include <doctest/doctest.h>

#include "support/bytes.hpp"
#include "support/sentences.hpp"

namespace mg = mgroups;

namespace {

mg::ChecksumFile some_checksums() {
  mg::ChecksumFile out;
  out.save_id = "0123456789abcdef";
  out.files["__0_0.distcp"] = {2 * mg::BlockChecksums::block_bytes + 1, {1, 0xFFFFFFFF, 0xABCDEF}};
  out.files["a file with spaces 9 deadbeef"] = {0, {}};
  out.files[".metadata"] = {3, {7}};
  return out;
}

}  // namespace

TEST_CASE("checksum file: what is written is read again") {
  const mg::ChecksumFile sums = some_checksums();
  const auto bytes = mgroups_test::bytes_of(mg::write_checksums(sums));
  const mg::ChecksumFile again = mg::parse_checksums(bytes, "f");
  CHECK(again.save_id == sums.save_id);
  CHECK(again.files == sums.files);
}

TEST_CASE("checksum file: every cut and every flipped byte is refused") {
  const auto good = mgroups_test::bytes_of(mg::write_checksums(some_checksums()));
  mgroups_test::attack(good, [&](const std::vector<std::byte>& bad, std::size_t at) {
    if (bad == good) return;
    CAPTURE(at);
    // The digits of a checksum may be capital letters: the same number.
    try {
      const mg::ChecksumFile read = mg::parse_checksums(bad, "f");
      CHECK(read.files == some_checksums().files);
    } catch (const mg::FormatError& error) {
      CHECK(error.context().file == "f");
    }
  });
}

TEST_CASE("checksum file: sizes that lie are refused before memory is taken") {
  const auto forged = [](const std::string& lines) {
    std::string text = "mgroups checksums 1\nsave x\nblock 262144\n" + lines;
    std::string end = "end ";
    mg::detail::append_hex(end, mg::crc32(std::as_bytes(std::span(text))));
    return mgroups_test::bytes_of(text + end + "\n");
  };
  const auto fault = [&](const std::string& lines) {
    return error_text<mg::FormatError>([&] { static_cast<void>(mg::parse_checksums(forged(lines), "f")); });
  };
  CHECK(fault("file 3 00000007 a\n") == "no such error");
  CHECK(contains(fault("file 18446744073709551615 00000007 a\n"), "too few checksums"));
  CHECK(contains(fault("file 3 00000007 a\nfile 3 00000007 a\n"), "twice"));
  CHECK(contains(fault("file 3 0000007 a\n"), "none"));
  CHECK(contains(fault("file -3 00000007 a\n"), "none"));
  CHECK(contains(fault("nonsense\n"), "'file '"));
}
