// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <cstddef>
#include <vector>

#include <mgroups/format/torch_dist/metadata.hpp>

#include "harness.hpp"

namespace mgroups_fuzz {

using mgroups::CheckpointMetadata;
using mgroups::StorageInfo;
using mgroups::TensorEntry;

/// Equal but for what is not written, and for the numbers of the files: those follow the order of their use.
class Comparison {
 public:
  Comparison(const CheckpointMetadata& a, const CheckpointMetadata& b) : a_(a), b_(b) {}

  bool equal() const {
    if (a_.tensors.size() != b_.tensors.size() || a_.objects.size() != b_.objects.size() || a_.paths != b_.paths)
      return false;
    for (const auto& [key, tensor] : a_.tensors) {
      const auto other = b_.tensors.find(key);
      if (other == b_.tensors.end() || !equal(tensor, other->second)) return false;
    }
    for (const auto& [key, info] : a_.objects) {
      const auto other = b_.objects.find(key);
      if (other == b_.objects.end() || !equal(info, other->second)) return false;
    }
    return b_.version == (a_.version.empty() ? "1.0.0" : a_.version);
  }

  bool equal(const TensorEntry& a, const TensorEntry& b) const {
    if (a.dtype != b.dtype || a.shape != b.shape || a.chunk_count() != b.chunk_count()) return false;
    for (std::size_t i = 0; i < a.chunk_count(); ++i) {
      if (a.chunk_box(i) != b.chunk_box(i) || !equal(a.chunk_storage(i), b.chunk_storage(i))) return false;
    }
    return true;
  }

 private:
  bool equal(const StorageInfo& a, const StorageInfo& b) const {
    return a_.files.at(a.file) == b_.files.at(b.file) && a.offset == b.offset && a.length == b.length;
  }

  const CheckpointMetadata& a_;
  const CheckpointMetadata& b_;
};

void run(Bytes input) {
  CheckpointMetadata metadata;
  const bool good = succeeds([&] {
    const MemoryLimit limit(128 * input.size() + (128 << 10));
    metadata = mgroups::parse_metadata(input, "input");
  });
  if (!good) return;
  // However it was read, the whole tree says the same; and every single tensor can be had.
  const CheckpointMetadata plain = mgroups::detail::read_plain_metadata(input, "input", nullptr);
  require(metadata.files == plain.files && metadata.tensors == plain.tensors && metadata.objects == plain.objects &&
              metadata.paths == plain.paths && metadata.unreadable == plain.unreadable,
          "records and tree say the same");
  if (!metadata.tensors.empty()) {
    mgroups::MetadataFilter filter;
    const auto& [key, tensor] = *metadata.tensors.begin();
    filter.want(key);
    const CheckpointMetadata part = mgroups::parse_metadata(input, "input", filter);
    require(part.tensors.size() == 1 && Comparison(metadata, part).equal(tensor, part.tensors.at(key)),
            "a filter keeps what is wanted as it is");
  }
  // What was accepted can be written: an error here is a bug as well.
  const std::vector<std::byte> written = write_metadata(metadata);
  const CheckpointMetadata again = mgroups::parse_metadata(written, "what was written");
  require(Comparison(metadata, again).equal(), "what is written is read as it was");
  require(write_metadata(again) == written, "the same metadata give the same bytes");
}

}  // namespace mgroups_fuzz
