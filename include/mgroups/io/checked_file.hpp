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
      const std::uint64_t whole = inside == 0 && first != kept_ ? whole_blocks(offset, out.size()) : 0;
      std::size_t taken = 0;
      if (whole > 0) {
        taken = static_cast<std::size_t>(std::min(whole * block, checksums_.file_bytes - offset));
        file_->read_at(offset, out.first(taken));
        for (std::uint64_t i = 0; i < whole; ++i) {
          const std::size_t begin = static_cast<std::size_t>(i * block);
          check(first + i, out.subspan(begin, std::min<std::size_t>(static_cast<std::size_t>(block), taken - begin)));
        }
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
  // Slices that are still in the cache when their checksum is computed.
  static constexpr std::uint64_t most_whole = 1;

  /// How many whole blocks, from the one at `offset` on, are wanted: as many as are read at once.
  [[nodiscard]] std::uint64_t whole_blocks(std::uint64_t offset, std::uint64_t wanted) const noexcept {
    const std::uint64_t left = checksums_.file_bytes - offset;
    if (wanted == left) wanted = BlockChecksums::block_count(left) * BlockChecksums::block_bytes;
    return std::min(wanted / BlockChecksums::block_bytes, most_whole);
  }
  [[nodiscard]] std::span<const std::byte> keep(std::uint64_t block) {
    const std::uint64_t begin = block * BlockChecksums::block_bytes;
    const auto size = static_cast<std::size_t>(std::min(BlockChecksums::block_bytes, checksums_.file_bytes - begin));
    if (!memory_) memory_.reset(new std::byte[static_cast<std::size_t>(BlockChecksums::block_bytes)]);
    const std::span<std::byte> bytes(memory_.get(), size);
    if (kept_ == block) return bytes;
    kept_ = none;
    file_->read_at(begin, bytes);
    check(block, bytes);
    kept_ = block;
    return bytes;
  }
  void check(std::uint64_t block, std::span<const std::byte> bytes) const {
    if (crc32(bytes) == checksums_.blocks[static_cast<std::size_t>(block)]) return;
    const std::uint64_t begin = block * BlockChecksums::block_bytes;
    throw FormatError(concat("bytes ", begin, " to ", begin + bytes.size(), " of ", path(),
                             " do not match their checksum: the file was damaged after it was written"),
                      {.file = path()});
  }

  static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();
  std::unique_ptr<File> file_;
  const BlockChecksums& checksums_;
  std::unique_ptr<std::byte[]> memory_;
  std::uint64_t kept_ = none;  // the block in `memory_`
};

MGROUPS_END_NAMESPACE
