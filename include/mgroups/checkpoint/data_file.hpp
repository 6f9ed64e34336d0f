// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <mgroups/core/box.hpp>
#include <mgroups/core/crc32.hpp>
#include <mgroups/core/slabs.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/format/torch_dist/archive.hpp>
#include <mgroups/io/sequential_writer.hpp>
#include <mgroups/pack/pack.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Every archive begins at a multiple of this, and its data at a multiple of 64 from there: mapped data are aligned in the
/// file too.
inline constexpr std::uint64_t archive_alignment = 64;

/// Where an archive of `size` bytes lies when it is appended to a file of `end` bytes.
[[nodiscard]] constexpr std::uint64_t aligned(std::uint64_t end) noexcept {
  return (end + archive_alignment - 1) & ~(archive_alignment - 1);
}

/// Appends the elements of `view` in row-major order and returns their CRC-32.
inline std::uint32_t append_elements(SequentialWriter& out, const TensorView& view, std::size_t slab_bytes) {
  std::uint32_t crc = 0;
  if (view.contiguous()) {
    // Slices small enough to be still in the cache when they are written after their checksum.
    constexpr std::size_t slice = std::size_t{1} << 20;
    for (std::span<const std::byte> rest(static_cast<const std::byte*>(view.data), view.nbytes()); !rest.empty();) {
      const auto part = rest.first(std::min(slice, rest.size()));
      crc = crc32(part, crc);
      out.append(part);
      rest = rest.subspan(part.size());
    }
    return crc;
  }
  const auto item = static_cast<std::int64_t>(size_of(view.dtype));
  for_each_slab(whole(view.shape), std::max<std::int64_t>(1, static_cast<std::int64_t>(slab_bytes) / item),
                [&](const Box& part) {
                  const std::span<std::byte> bytes = out.reserve(static_cast<std::size_t>(part.volume() * item));
                  copy_box(view.part(part), {bytes.data(), view.dtype, part.sizes, row_major_strides(part.sizes)});
                  crc = crc32(bytes, crc);
                });
  return crc;
}

/// Appends one tensor as a torch.save archive.
inline void append_tensor(SequentialWriter& out, TensorArchive& archive, const TensorView& view, std::size_t slab_bytes) {
  out.append(archive.head());
  const std::uint32_t crc = append_elements(out, view, slab_bytes);
  out.append(archive.tail(crc));
}

}  // namespace detail

MGROUPS_END_NAMESPACE
