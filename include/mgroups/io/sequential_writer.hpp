// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <mgroups/core/block_checksums.hpp>
#include <mgroups/core/crc32.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/io/file.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Writes a file from front to back. Small pieces are collected into large writes; large pieces go out from where they lie.
/// The buffer is the only memory it takes. Blocking; one thread at a time.
class SequentialWriter {
 public:
  /// `file` must be new. `expected_bytes` are reserved at once, so that a full disk shows before the first byte.
  /// `checksums`, if given, sees every byte that is written.
  SequentialWriter(std::unique_ptr<File> file, std::uint64_t expected_bytes, std::size_t buffer_bytes,
                   BlockChecksums* checksums = nullptr)
      : file_(std::move(file)), checksums_(checksums), capacity_(buffer_bytes), buffer_(new std::byte[buffer_bytes]) {
    file_->preallocate(expected_bytes);
  }

  /// Bytes appended so far: where the next one goes.
  [[nodiscard]] std::uint64_t position() const noexcept { return written_ + buffered_; }

  void append(std::span<const std::byte> data) {
    if (is_direct(data)) {
      flush();
      static_cast<void>(write(data));
      return;
    }
    const auto room = reserve(data.size());
    std::copy(data.begin(), data.end(), room.begin());
  }
  /// As `append`; returns the CRC-32 of `data`, which is computed once, whether or not checksums are kept.
  std::uint32_t append_checked(std::span<const std::byte> data) {
    if (checksums_ != nullptr && is_direct(data)) {
      flush();
      return write(data);
    }
    const std::uint32_t crc = crc32(data);
    append(data);
    if (checksums_ != nullptr && buffered_ > 0) {
      note_buffered(buffered_ - data.size());
      if (checksums_->append_known(data.size(), crc)) noted_ = buffered_;
    }
    return crc;
  }

  /// `n` bytes of the buffer, appended by this call and to be filled by the caller before the next one. At most
  /// `buffer_bytes`.
  [[nodiscard]] std::span<std::byte> reserve(std::size_t n) {
    if (n > capacity_) {
      throw InvalidArgument(concat("a buffer of ", capacity_, " bytes has no room for ", n, "; append them instead"));
    }
    if (n > capacity_ - buffered_) flush();
    const std::span<std::byte> out(buffer_.get() + buffered_, n);
    buffered_ += n;
    return out;
  }

  /// Zeros up to the next multiple of `alignment`, a power of two and small.
  void align(std::uint64_t alignment) {
    const auto gap = static_cast<std::size_t>(-position() & (alignment - 1));
    std::ranges::fill(reserve(gap), std::byte{0});
  }

  /// Returns when everything is on stable storage and the file is closed.
  void finish() {
    flush();
    file_->sync();
    file_->close();
  }

 private:
  // From here on a copy into the buffer costs more than the call it saves.
  static constexpr std::size_t direct_bytes = std::size_t{256} << 10;

  void flush() {
    if (buffered_ == 0) return;
    note_buffered(buffered_);
    write_at_end({buffer_.get(), buffered_});
    buffered_ = noted_ = 0;
  }
  /// Shows the checksums the first `end` bytes of the buffer.
  void note_buffered(std::size_t end) {
    if (checksums_ != nullptr) static_cast<void>(checksums_->append({buffer_.get() + noted_, end - noted_}));
    noted_ = end;
  }
  /// Returns the CRC-32 of the data where checksums are kept, else 0.
  [[nodiscard]] std::uint32_t write(std::span<const std::byte> data) {
    const std::uint32_t crc = checksums_ != nullptr ? checksums_->append(data) : 0;
    write_at_end(data);
    return crc;
  }
  void write_at_end(std::span<const std::byte> data) {
    file_->write_at(written_, data);
    written_ += data.size();
  }
  [[nodiscard]] bool is_direct(std::span<const std::byte> data) const noexcept {
    return data.size() >= std::min(direct_bytes, capacity_);
  }

  std::unique_ptr<File> file_;
  BlockChecksums* checksums_;
  std::size_t capacity_;
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t buffered_ = 0;
  std::size_t noted_ = 0;  // of these, what the checksums have seen
  std::uint64_t written_ = 0;
};

MGROUPS_END_NAMESPACE
