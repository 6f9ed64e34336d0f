// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <mgroups/format/read_at.hpp>
#include <mgroups/format/torch_dist/archive_reader.hpp>
#include <mgroups/format/torch_dist/stored_tensor.hpp>

#include "harness.hpp"

namespace mgroups_fuzz {

/// Reads all records; how many bytes they have together.
std::optional<std::uint64_t> read_records(mgroups::ReadAt read, std::size_t length) {
  std::optional<std::uint64_t> total;
  succeeds([&] {
    const mgroups::Archive archive(read, length, "input", "key");
    std::uint64_t bytes = 0;
    for (const mgroups::ArchiveRecord& record : archive.records()) {
      require(archive.find(record.name) == &record, "a record is found by its name");
      for (const auto verify : {mgroups::VerifyCrc::no, mgroups::VerifyCrc::yes}) {
        succeeds([&] { require(archive.read(record, verify).size() == record.size, "a record has its size"); });
      }
      bytes += record.size;
    }
    require(bytes <= length, "records do not overlap");
    total = bytes;
  });
  return total;
}

std::optional<mgroups::StoredTensor> read_tensor(mgroups::ReadAt read, std::size_t length) {
  std::optional<mgroups::StoredTensor> out;
  succeeds([&] { out = mgroups::read_tensor_archive(read, length, "input", "key"); });
  return out;
}

void check(const mgroups::StoredTensor& tensor, std::size_t length) {
  require(tensor.storage_begin <= length && tensor.storage_bytes <= length - tensor.storage_begin,
          "a storage lies within its archive");
  const std::uint64_t width = mgroups::size_of(tensor.dtype);
  std::uint64_t end = tensor.data_offset + width;
  for (int axis = 0; axis < tensor.shape.rank(); ++axis) {
    if (tensor.shape[axis] == 0) return;
    end += static_cast<std::uint64_t>((tensor.shape[axis] - 1) * tensor.strides[axis]) * width;
  }
  require(tensor.data_offset >= tensor.storage_begin && end <= tensor.storage_begin + tensor.storage_bytes,
          "all elements lie within their storage");
}

void run(Bytes input) {
  const MemoryLimit limit(64 * input.size() + (64 << 10));
  const auto on_demand = [&](std::uint64_t offset, std::span<std::byte> out) {
    require(offset <= input.size() && out.size() <= input.size() - offset, "nothing is read behind the end");
    std::copy_n(input.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
  };
  require(read_records(input, input.size()) == read_records(on_demand, input.size()), "memory and files read alike");
  const auto tensor = read_tensor(input, input.size()), same = read_tensor(on_demand, input.size());
  require(tensor.has_value() == same.has_value(), "memory and files read alike");
  if (!tensor) return;
  require(tensor->dtype == same->dtype && tensor->shape == same->shape && tensor->strides == same->strides &&
              tensor->data_offset == same->data_offset,
          "memory and files hold the same tensor");
  check(*tensor, input.size());
}

}  // namespace mgroups_fuzz
