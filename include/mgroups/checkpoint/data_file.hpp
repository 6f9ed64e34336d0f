// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/archive_maker.hpp>
#include <mgroups/checkpoint/plan.hpp>
#include <mgroups/checkpoint/save_options.hpp>
#include <mgroups/checkpoint/stored_object.hpp>
#include <mgroups/core/align_up.hpp>
#include <mgroups/core/block_checksums.hpp>
#include <mgroups/core/box.hpp>
#include <mgroups/core/crc32.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/slabs.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/format/torch_dist/archive.hpp>
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

/// Appends the elements of `view` in row-major order and returns their CRC-32.
inline std::uint32_t append_elements(SequentialWriter& out, const TensorView& view, std::size_t slab_bytes) {
  std::uint32_t crc = 0;
  if (view.contiguous()) {
    // Slices small enough to be still in the cache when they are written after their checksum; from block to block of the
    // file's own checksums, so that one computation serves both.
    constexpr std::uint64_t block = BlockChecksums::block_bytes;
    for (std::span<const std::byte> rest(static_cast<const std::byte*>(view.data), view.nbytes()); !rest.empty();) {
      const auto slice = static_cast<std::size_t>(block - out.position() % block);
      const auto part = rest.first(std::min(slice, rest.size()));
      const std::uint32_t one = out.append_checked(part);
      crc = part.size() == view.nbytes() ? one : crc32_combine(crc, one, part.size());
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

[[nodiscard]] inline std::string data_file_name(int rank) { return concat("__", rank, "_0.distcp"); }

/// What was written to a data file, as the coordinator hears of it.
struct WrittenFile {
  BlockChecksums checksums;        ///< without blocks where none were wanted
  std::vector<std::byte> records;  ///< what lies where in it: see `add_records`
};

/// Writes a data file item by item, and notes what lies where. Local, blocking.
class DataFileWriter {
 public:
  /// `expected_bytes`, with room between the items, are reserved at once.
  DataFileWriter(FileSystem& files, const std::string& path, std::uint64_t expected_bytes, const SaveOptions& options)
      : buffer_(std::max<std::size_t>(options.buffer_bytes, std::size_t{64} << 10)),
        out_(files.create(path), expected_bytes, buffer_, options.checksums ? &written_.checksums : nullptr),
        records_(written_.records) {}
  DataFileWriter(const DataFileWriter&) = delete;
  DataFileWriter& operator=(const DataFileWriter&) = delete;

  /// `append(out)` appends the elements of `box` in row-major order and returns their CRC-32.
  template <class Append>
  void add_tensor(std::string_view key, DType dtype, const Dims& global_shape, const Box& box, Append&& append) {
    TensorArchive& archive = archive_of_(dtype, box.sizes);
    out_.align(archive_alignment);
    const std::uint64_t offset = out_.position();
    out_.append(archive.head());
    const std::uint64_t data = out_.position();
    const std::uint32_t crc = append(out_);
    if (out_.position() - data != archive.data_size()) {
      throw InvalidArgument(concat("tensor '", key, "' was given ", out_.position() - data, " bytes; its shape ",
                                   to_string(box.sizes), " has ", archive.data_size()),
                            {.key = std::string(key)});
    }
    out_.append(archive.tail(crc));
    records_.text(key);
    records_.numbers(kind_of(dtype), static_cast<std::uint64_t>(global_shape.rank()), global_shape, box.offsets, box.sizes);
    put_place(offset);
  }
  void add_tensor(const ShardLayout& layout, const TensorView& view) {
    add_tensor(layout.key, layout.dtype, layout.global_shape, layout.box(),
               [&](SequentialWriter& out) { return append_elements(out, view, buffer_ / 2); });
  }
  void add_object(std::string_view key, std::span<const std::byte> archive) {
    out_.align(archive_alignment);
    const std::uint64_t offset = out_.position();
    out_.append(archive);
    records_.text(key);
    records_.number(object_kind);
    put_place(offset);
  }

  /// Returns when the file is on stable storage and closed.
  [[nodiscard]] WrittenFile finish() {
    out_.finish();
    return std::move(written_);
  }

 private:
  void put_place(std::uint64_t offset) { records_.numbers(offset, out_.position() - offset); }

  std::size_t buffer_;
  WrittenFile written_;
  SequentialWriter out_;
  WireWriter records_;
  ArchiveMaker archive_of_;
};

/// Writes this rank's data file: those of the tensors that `indices` name, then `objects`. Local, blocking. Writes no file
/// where there is nothing to write.
[[nodiscard]] inline WrittenFile write_data_file(FileSystem& files, const std::string& directory, int rank,
                                                 std::span<const LocalShard> tensors, std::span<const std::uint32_t> indices,
                                                 std::span<const ObjectItem> objects, const SaveOptions& options,
                                                 SaveReport& report) {
  if (indices.empty() && objects.empty()) return {};
  std::uint64_t end = 0;
  ArchiveMaker archive_of;
  for (const std::uint32_t i : indices) {
    const ShardLayout& layout = *tensors[i].layout;
    end = align_up(end, archive_alignment) + archive_of(layout.dtype, layout.box().sizes).total_size();
  }
  for (const ObjectItem& item : objects) end = align_up(end, archive_alignment) + item.archive.size();
  DataFileWriter writer(files, join_path(directory, data_file_name(rank)), end, options);
  for (const std::uint32_t i : indices) {
    const std::size_t bytes = tensors[i].data.nbytes();
    writer.add_tensor(*tensors[i].layout, tensors[i].data);
    ++report.tensors_written;
    report.bytes_written += bytes;
    if (options.progress != nullptr) *options.progress += bytes;
  }
  for (const ObjectItem& item : objects) {
    writer.add_object(item.key, item.archive);
    ++report.objects_written;
  }
  return writer.finish();
}

}  // namespace detail

MGROUPS_END_NAMESPACE
