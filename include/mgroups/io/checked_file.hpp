// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <mgroups/core/block_checksums.hpp>
#include <mgroups/core/crc32.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/io/file.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// A file whose bytes are compared with checksums of its blocks before anybody sees them. Whole blocks are read straight
/// into their place; of a block that is wanted in part, all is read, and kept for the next call. One thread at a time.
class CheckedFile : public File {
 public:
  /// `checksums` must outlive the file. Throws FormatError when the file has another length than it was written with.
  CheckedFile(std::unique_ptr<File> file, const BlockChecksums& checksums)
      : File(file->path()), file_(std::move(file)), checksums_(checksums) {
    if (const std::uint64_t size = file_->size(); size != checksums_.file_bytes) {
      throw FormatError(concat(path(), " has ", size, " bytes but was written with ", checksums_.file_bytes,
                               size < checksums_.file_bytes ? "; it was cut short" : "; it was changed afterwards"),
                        {.file = path()});
    }
  }

  void read_at(std::uint64_t offset, std::span<std::byte> out) override {
    constexpr std::uint64_t block = BlockChecksums::block_bytes;
    if (offset > checksums_.file_bytes || out.size() > checksums_.file_bytes - offset) return file_->read_at(offset, out);
    while (!out.empty()) {
      const std::uint64_t first = offset / block, inside = offset % block;
      const std::uint64_t size = std::min(block, checksums_.file_bytes - first * block);
      std::size_t taken = 0;
      if (inside == 0 && first != kept_ && out.size() >= size) {
        taken = static_cast<std::size_t>(size);
        read_block(first, out.first(taken));
      } else {
        const std::span<const std::byte> bytes = keep(first);
        taken = std::min(out.size(), bytes.size() - static_cast<std::size_t>(inside));
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(inside), taken, out.begin());
      }
      offset += taken;
      out = out.subspan(taken);
    }
  }
  void write_at(std::uint64_t, std::span<const std::byte>) override {
    throw InvalidArgument(concat(path(), " is open for reading only"), {.file = path()});
  }
  [[nodiscard]] std::uint64_t size() override { return checksums_.file_bytes; }
  void preallocate(std::uint64_t) override {}
  void sync() override {}
  void close() override { file_->close(); }

 private:
  void read_block(std::uint64_t block, std::span<std::byte> out) {
    // Slices that are still in the cache when their checksum is computed.
    constexpr std::size_t slice = std::size_t{256} << 10;
    const std::uint64_t begin = block * BlockChecksums::block_bytes;
    std::uint32_t crc = 0;
    for (std::size_t at = 0; at < out.size(); at += slice) {
      const auto part = out.subspan(at, std::min(slice, out.size() - at));
      file_->read_at(begin + at, part);
      crc = crc32(part, crc);
    }
    if (crc == checksums_.blocks[static_cast<std::size_t>(block)]) return;
    throw FormatError(concat("bytes ", begin, " to ", begin + out.size(), " of ", path(),
                             " do not match their checksum: the file was damaged after it was written"),
                      {.file = path()});
  }
  [[nodiscard]] std::span<const std::byte> keep(std::uint64_t block) {
    const std::uint64_t begin = block * BlockChecksums::block_bytes;
    const auto size = static_cast<std::size_t>(std::min(BlockChecksums::block_bytes, checksums_.file_bytes - begin));
    if (!memory_) memory_.reset(new std::byte[static_cast<std::size_t>(BlockChecksums::block_bytes)]);
    const std::span<std::byte> bytes(memory_.get(), size);
    if (kept_ == block) return bytes;
    kept_ = none;
    read_block(block, bytes);
    kept_ = block;
    return bytes;
  }
  static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();
  std::unique_ptr<File> file_;
  const BlockChecksums& checksums_;
  std::unique_ptr<std::byte[]> memory_;
  std::uint64_t kept_ = none;  // the block in `memory_`
};

MGROUPS_END_NAMESPACE
