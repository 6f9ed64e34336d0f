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

#include <mgroups/core/error.hpp>
#include <mgroups/core/little_endian.hpp>
#include <mgroups/format/read_at.hpp>
#include <mgroups/format/torch_dist/zip.hpp>
#include <mgroups/format/utf8.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// The bytes of a zip archive: both ends at hand, the rest read on demand; and the way from its closing record to its
/// directory.
class ArchiveBytes {
 public:
  ArchiveBytes(ReadAt read, std::uint64_t length, std::string_view file_name, std::string_view key)
      : read_(read), length_(length), file_(file_name), key_(key) {
    load_ends();
  }
  ArchiveBytes(const ArchiveBytes&) = delete;
  ArchiveBytes& operator=(const ArchiveBytes&) = delete;

  /// Throws the FormatError "<file>: the archive of '<key>' <what>".
  [[noreturn]] void fail(const std::string& what) const {
    throw FormatError(concat(title(), ' ', what), {.key = std::string(key_), .file = std::string(file_)});
  }
  /// "<file>: the archive of '<key>'".
  [[nodiscard]] std::string title() const {
    return concat(file_, ": the archive", key_.empty() ? "" : " of ", key_.empty() ? "" : detail::in_quotes(key_));
  }
  [[nodiscard]] std::string_view file() const noexcept { return file_; }
  [[nodiscard]] std::string_view key() const noexcept { return key_; }

 protected:
  struct Directory {
    std::uint64_t start, size, records;
  };

  [[nodiscard]] static std::uint16_t u16(std::span<const std::byte> bytes, std::size_t at) noexcept {
    return static_cast<std::uint16_t>(little_endian(bytes.subspan(at, 2)));
  }
  [[nodiscard]] static std::uint32_t u32(std::span<const std::byte> bytes, std::size_t at) noexcept {
    return static_cast<std::uint32_t>(little_endian(bytes.subspan(at, 4)));
  }
  [[nodiscard]] static std::uint64_t u64(std::span<const std::byte> bytes, std::size_t at) noexcept {
    return little_endian(bytes.subspan(at, 8));
  }
  [[nodiscard]] static std::string_view text(std::span<const std::byte> bytes) noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  /// Bytes of the archive: in the blocks at hand, or read into `scratch`.
  [[nodiscard]] std::span<const std::byte> view(std::uint64_t offset, std::uint64_t n,
                                                std::vector<std::byte>& scratch) const {
    if (offset > length_ || n > length_ - offset) fail(concat("refers to bytes behind its end at byte ", length_));
    const auto size = static_cast<std::size_t>(n);
    if (offset + n <= head_.size()) return head_.subspan(static_cast<std::size_t>(offset), size);
    const std::uint64_t tail_start = length_ - tail_.size();
    if (offset >= tail_start) return tail_.subspan(static_cast<std::size_t>(offset - tail_start), size);
    scratch.resize(size);
    read_(offset, scratch);
    return scratch;
  }

  [[nodiscard]] Directory find_directory() const {
    namespace zip = detail::zip;
    refuse_safetensors();
    std::vector<std::byte> scratch;
    const std::uint64_t end = find_end(scratch);
    const auto record = view(end, zip::end_bytes, scratch);
    Directory out{u32(record, 16), u32(record, 12), u16(record, 10)};
    if (u16(record, 4) != 0 || u16(record, 6) != 0 || u16(record, 8) != u16(record, 10))
      fail("is spread over several disks");
    std::uint64_t directory_end = end;
    if (end >= zip::locator_bytes + zip::end64_bytes) {
      std::vector<std::byte> more;
      const auto locator = view(end - zip::locator_bytes, zip::locator_bytes, more);
      if (u32(locator, 0) == zip::locator_signature) {
        if (u32(locator, 4) != 0 || u32(locator, 16) != 1) fail("is spread over several disks");
        directory_end = u64(locator, 8);
        out = read_end64(directory_end, end - zip::locator_bytes, out);
      }
    }
    if (out.size > most_directory) fail(concat("claims a directory of ", out.size, " bytes"));
    if (out.start > directory_end || directory_end - out.start != out.size) {
      fail(concat("claims a directory of ", out.size, " bytes at byte ", out.start, ", which is not where it ends"));
    }
    if (out.records > out.size / zip::central_bytes)
      fail(concat("claims ", out.records, " records in a directory of ", out.size, " bytes"));
    return out;
  }
  /// Where the closing record starts: at the very end, unless a comment follows.
  [[nodiscard]] std::uint64_t find_end(std::vector<std::byte>& scratch) const {
    namespace zip = detail::zip;
    if (length_ < zip::end_bytes) fail(concat("has only ", length_, " bytes; it is cut or is none"));
    const std::uint64_t most = std::min<std::uint64_t>(length_, zip::end_bytes + 0xFFFF);
    for (const std::uint64_t reach : {std::uint64_t{zip::end_bytes}, most}) {
      const auto tail = view(length_ - reach, reach, scratch);
      for (std::size_t at = tail.size() - zip::end_bytes + 1; at-- > 0;) {
        if (u32(tail, at) == zip::end_signature && u16(tail, at + 20) == tail.size() - at - zip::end_bytes) {
          return length_ - tail.size() + at;
        }
      }
    }
    fail("does not end like a zip archive; it is cut, or its place in the file is wrong");
  }
  [[nodiscard]] Directory read_end64(std::uint64_t start, std::uint64_t end, const Directory& small) const {
    namespace zip = detail::zip;
    std::vector<std::byte> scratch;
    if (start > end || end - start < zip::end64_bytes) fail("has a broken zip64 ending");
    const auto record = view(start, zip::end64_bytes, scratch);
    if (u32(record, 0) != zip::end64_signature || u64(record, 4) != end - start - 12) fail("has a broken zip64 ending");
    if (u32(record, 16) != 0 || u32(record, 20) != 0 || u64(record, 24) != u64(record, 32))
      fail("is spread over several disks");
    const Directory out{u64(record, 48), u64(record, 40), u64(record, 32)};
    if ((small.start != zip::in_zip64 && small.start != out.start) ||
        (small.size != zip::in_zip64 && small.size != out.size) ||
        (small.records != 0xFFFF && small.records != out.records)) {
      fail("contradicts itself in its two endings");
    }
    return out;
  }
  /// One of DCP's modes writes safetensors into .distcp files, with entries that PyTorch itself cannot read back.
  void refuse_safetensors() const {
    if (length_ < 9) return;
    std::vector<std::byte> scratch;
    const auto start = view(0, 9, scratch);
    if (u64(start, 0) > 100'000'000 || u64(start, 0) < 2 || start[8] != std::byte{'{'}) return;
    throw UnsupportedError(
        concat(title(),
               " is a safetensors text (FileSystemWriter with SerializationFormat.SAFETENSORS), which PyTorch cannot "
               "read back either; save with the default format, or through HuggingFaceStorageWriter"),
        {.key = std::string(key_), .file = std::string(file_)});
  }

 private:
  // The head holds data.pkl and the local headers up to the data; the tail the directory. Both of torch's stay below 1 KiB.
  static constexpr std::size_t block = 1024;
  static constexpr std::uint64_t most_directory = std::uint64_t{1} << 28;

  void load_ends() {
    if (read_.in_memory()) {
      if (length_ > read_.memory().size())
        fail(concat("should have ", length_, " bytes, but only ", read_.memory().size(), " are there"));
      head_ = read_.memory().first(static_cast<std::size_t>(length_));
      return;
    }
    const auto head = static_cast<std::size_t>(std::min<std::uint64_t>(length_, 2 * block));
    if (length_ <= 2 * block) {
      read_(0, {buffer_, head});
      head_ = {buffer_, head};
      return;
    }
    read_(0, {buffer_, block});
    read_(length_ - block, {buffer_ + block, block});
    head_ = {buffer_, block};
    tail_ = {buffer_ + block, block};
  }

  ReadAt read_;
  std::uint64_t length_;
  std::string_view file_, key_;
  std::span<const std::byte> head_, tail_;
  std::byte buffer_[2 * block];  // what is not read into is never used
};

}  // namespace detail

MGROUPS_END_NAMESPACE
