// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <cstddef>
#include <vector>

#include <mgroups/core/value.hpp>
#include <mgroups/format/torch_dist/archive_writer.hpp>
#include <mgroups/format/torch_dist/object_decoder.hpp>
#include <mgroups/format/torch_dist/object_encoder.hpp>

#include "harness.hpp"

namespace mgroups_fuzz {

void check(Bytes input) {
  mgroups::Value value;
  const bool good = succeeds([&] {
    // Its bounds for values that occur many times have a constant part, for small files.
    const MemoryLimit limit(512 * input.size() + (24 << 20));
    value = mgroups::decode_object(input, input.size(), "input", "key");
  });
  if (!good) return;
  // Not every value can be written. What is written is read again; as bytes, since a NaN does not equal itself.
  std::vector<std::byte> written;
  if (!succeeds([&] { written = mgroups::encode_object(value); })) return;
  const mgroups::Value again = mgroups::decode_object(written, written.size(), "what was written");
  require(mgroups::encode_object(again) == written, "what is written is read as it was");
}

/// The input is an archive, or the pickle of one.
void run(Bytes input) {
  if (input.empty() || input[0] != std::byte{0x80}) return check(input);
  mgroups::ObjectArchive archive(input);
  archive.add("data/0", std::vector<std::byte>(64));
  check(archive.finish());
}

}  // namespace mgroups_fuzz
