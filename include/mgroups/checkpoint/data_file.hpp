// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/checkpoint/plan.hpp>
#include <mgroups/checkpoint/save_options.hpp>
#include <mgroups/checkpoint/stored_object.hpp>
#include <mgroups/core/block_checksums.hpp>
#include <mgroups/core/box.hpp>
#include <mgroups/core/crc32.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/slabs.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/format/torch_dist/archive.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/io/file.hpp>
#include <mgroups/io/sequential_writer.hpp>
#include <mgroups/pack/pack.hpp>
#include <mgroups/shard/state_dict.hpp>
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

/// The CRC-32 of the elements of `view` in row-major order.
[[nodiscard]] inline std::uint32_t checksum_of(const TensorView& view, std::size_t slab_bytes) {
  if (view.contiguous()) return crc32({static_cast<const std::byte*>(view.data), view.nbytes()});
  const auto item = static_cast<std::int64_t>(size_of(view.dtype));
  std::vector<std::byte> buffer;
  std::uint32_t crc = 0;
  for_each_slab(whole(view.shape), std::max<std::int64_t>(1, static_cast<std::int64_t>(slab_bytes) / item),
                [&](const Box& part) {
                  buffer.resize(static_cast<std::size_t>(part.volume() * item));
                  copy_box(view.part(part), {buffer.data(), view.dtype, part.sizes, row_major_strides(part.sizes)});
                  crc = crc32(buffer, crc);
                });
  return crc;
}

/// Appends one tensor as a torch.save archive.
inline void append_tensor(SequentialWriter& out, TensorArchive& archive, const TensorView& view, std::size_t slab_bytes) {
  out.append(archive.head());
  const std::uint32_t crc = append_elements(out, view, slab_bytes);
  out.append(archive.tail(crc));
}

[[nodiscard]] inline std::string data_file_name(int rank) { return concat("__", rank, "_0.distcp"); }

/// What one rank has written, as the coordinator hears of it.
struct WrittenFile {
  BlockChecksums checksums;        ///< of the data file; without blocks where none were wanted
  std::vector<std::byte> records;  ///< what lies where in it: see `add_records`
};

/// Writes this rank's data file: those of the tensors that `indices` name, then `objects`. Local, blocking. Writes no file
/// where there is nothing to write.
[[nodiscard]] inline WrittenFile write_data_file(FileSystem& files, const std::string& directory, int rank,
                                                 std::span<const LocalShard> tensors, std::span<const std::uint32_t> indices,
                                                 std::span<const ObjectItem> objects, const SaveOptions& options,
                                                 SaveReport& report) {
  WrittenFile written;
  if (indices.empty() && objects.empty()) return written;
  const auto archive_of = [&](std::uint32_t i) {
    return TensorArchive(tensors[i].data.dtype, tensors[i].layout->box().sizes);
  };
  std::uint64_t end = 0;
  for (const std::uint32_t i : indices) end = aligned(end) + archive_of(i).total_size();
  for (const ObjectItem& item : objects) end = aligned(end) + item.archive.size();

  const std::size_t buffer = std::max<std::size_t>(options.buffer_bytes, std::size_t{64} << 10);
  SequentialWriter out(files.create(join_path(directory, data_file_name(rank))), end, buffer,
                       options.checksums ? &written.checksums : nullptr);
  WireWriter writer(written.records);
  for (const std::uint32_t i : indices) {
    const ShardLayout& layout = *tensors[i].layout;
    TensorArchive archive = archive_of(i);
    out.align(archive_alignment);
    const std::uint64_t offset = out.position();
    append_tensor(out, archive, tensors[i].data, buffer / 2);
    writer.text(layout.key);
    writer.number(kind_of(layout.dtype));
    writer.number(static_cast<std::uint64_t>(layout.global_shape.rank()));
    writer.dims(layout.global_shape);
    writer.box(layout.box());
    writer.number(offset);
    writer.number(out.position() - offset);
    ++report.tensors_written;
    report.bytes_written += tensors[i].data.nbytes();
    if (options.progress != nullptr) *options.progress += tensors[i].data.nbytes();
  }
  for (const ObjectItem& item : objects) {
    out.align(archive_alignment);
    const std::uint64_t offset = out.position();
    out.append(item.archive);
    writer.text(item.key);
    writer.number(object_kind);
    writer.number(offset);
    writer.number(item.archive.size());
    ++report.objects_written;
  }
  out.finish();
  return written;
}

/// Adds what rank `rank` has written to the metadata. Throws CheckpointError for a key that two ranks, or a tensor and an
/// object, have written.
inline void add_records(CheckpointMetadata& metadata, int rank, WireReader& reader) {
  if (reader.done()) return;
  const auto file = static_cast<std::uint32_t>(metadata.files.size());
  metadata.files.push_back(data_file_name(rank));
  while (!reader.done()) {
    const std::string_view key = reader.text();
    const std::uint64_t kind = reader.number();
    const auto storage = [&] {
      const std::uint64_t offset = reader.number();
      return StorageInfo{file, offset, reader.number()};
    };
    const bool clash = kind == object_kind ? metadata.tensors.contains(key) || metadata.objects.contains(key)
                                           : metadata.objects.contains(key);
    if (clash) {
      throw CheckpointError(concat("cannot save: '", key, "' is the key of two things, one of them an object of rank ", rank,
                                   " or of the common state; rename one"),
                            {.key = std::string(key)});
    }
    if (kind == object_kind) {
      metadata.objects.emplace(std::string(key), storage());
      continue;
    }
    const Dims shape = reader.dims(static_cast<int>(reader.number()));
    auto found = metadata.tensors.find(key);
    if (found == metadata.tensors.end()) {
      found = metadata.tensors.emplace(std::string(key), TensorEntry(static_cast<DType>(kind - 1), shape)).first;
    }
    const Box box = reader.box(shape.rank());
    found->second.add_chunk(box, storage());
  }
}

}  // namespace detail

MGROUPS_END_NAMESPACE
