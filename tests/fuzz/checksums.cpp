// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <cstddef>
#include <span>
#include <string>

#include <mgroups/core/crc32.hpp>
#include <mgroups/format/checksum_file.hpp>

#include "harness.hpp"

namespace mgroups_fuzz {

void check(Bytes input) {
  mgroups::ChecksumFile checksums;
  const bool good = succeeds([&] {
    const MemoryLimit limit(64 * input.size() + (64 << 10));
    checksums = mgroups::parse_checksums(input, "input");
  });
  if (!good) return;
  const std::string written = write_checksums(checksums);
  const auto again = mgroups::parse_checksums(std::as_bytes(std::span(written)), "what was written");
  require(again.save_id == checksums.save_id && again.files == checksums.files, "what is written is read as it was");
}

void run(Bytes input) {
  check(input);
  // And as if its own checksum were right, which no fuzzer would find.
  std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  const std::uint32_t crc = mgroups::crc32(input);
  text += "end ";
  mgroups::detail::append_hex(text, crc);
  text += '\n';
  check(std::as_bytes(std::span(text)));
}

}  // namespace mgroups_fuzz
