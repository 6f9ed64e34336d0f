// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include <mgroups/core/align_up.hpp>
#include <mgroups/version.hpp>

// The parts of the zip format (PKWARE's APPNOTE) that torch.save uses: stored records with data descriptors, zip64
// where a number does not fit into 32 bits, and padding that puts each record's data at a multiple of 64 bytes.

MGROUPS_BEGIN_NAMESPACE

namespace detail::zip {

inline constexpr std::uint32_t local_signature = 0x04034b50, descriptor_signature = 0x08074b50,
                               central_signature = 0x02014b50, end64_signature = 0x06064b50, locator_signature = 0x07064b50,
                               end_signature = 0x06054b50;
inline constexpr std::size_t local_bytes = 30, central_bytes = 46, end64_bytes = 56, locator_bytes = 20, end_bytes = 22;
inline constexpr std::uint32_t in_zip64 = 0xFFFFFFFF;
inline constexpr std::uint16_t zip64_tag = 0x0001, padding_tag = 0x4246;  // "FB"
inline constexpr std::uint64_t alignment = 64;
inline constexpr std::uint16_t utf8_flag = 0x0800, descriptor_flag = 0x0008;
inline constexpr std::uint16_t made_by_unix = 0x031E, version_zip64 = 45;

/// Writes little-endian numbers and texts one behind the other into memory that is large enough.
class Cursor {
 public:
  explicit Cursor(std::byte* at) noexcept : at_(at) {}
  [[nodiscard]] std::byte* at() const noexcept { return at_; }

  Cursor& u16(std::uint64_t value) noexcept { return number(value, 2); }
  Cursor& u32(std::uint64_t value) noexcept { return number(value, 4); }
  Cursor& u64(std::uint64_t value) noexcept { return number(value, 8); }
  Cursor& text(std::string_view text) noexcept { return bytes(std::as_bytes(std::span(text))); }
  Cursor& bytes(std::span<const std::byte> data) noexcept {
    if (!data.empty()) std::memcpy(at_, data.data(), data.size());
    at_ += data.size();
    return *this;
  }
  Cursor& fill(char c, std::size_t n) noexcept {
    std::memset(at_, c, n);
    at_ += n;
    return *this;
  }

 private:
  Cursor& number(std::uint64_t value, int width) noexcept {
    if constexpr (std::endian::native == std::endian::little) {
      std::memcpy(at_, &value, static_cast<std::size_t>(width));
    } else {
      for (int i = 0; i < width; ++i) at_[i] = static_cast<std::byte>(value >> (8 * i));
    }
    at_ += width;
    return *this;
  }
  std::byte* at_;
};

/// A record as it is written. Its name in the archive is `<prefix>/<name>`.
struct Record {
  std::string_view name;
  std::uint64_t size = 0;
  std::uint64_t header = 0;  // where its local header starts
  std::uint32_t crc = 0;

  [[nodiscard]] bool large() const noexcept { return size >= in_zip64; }
  [[nodiscard]] std::size_t name_bytes(std::string_view prefix) const noexcept { return prefix.size() + 1 + name.size(); }
  /// Bytes of the local header with its padding.
  [[nodiscard]] std::uint64_t local_size(std::string_view prefix) const noexcept {
    const std::uint64_t bare = header + local_bytes + name_bytes(prefix) + (large() ? 20 : 0) + 4;
    return align_up(bare, alignment) - header;
  }
  /// Bytes of what follows the data.
  [[nodiscard]] std::uint64_t descriptor_size() const noexcept { return size == 0 ? 0 : large() ? 24 : 16; }
  [[nodiscard]] std::size_t central_size(std::string_view prefix) const noexcept {
    const std::size_t extra = (large() ? 16u : 0u) + (header >= in_zip64 ? 8u : 0u);
    return central_bytes + name_bytes(prefix) + (extra > 0 ? 4 + extra : 0);
  }
};

/// The local header, as torch writes it: checksum and sizes come behind the data.
inline void put_local(Cursor& out, std::string_view prefix, const Record& record) noexcept {
  const std::uint64_t total = record.local_size(prefix), name_bytes = record.name_bytes(prefix);
  const std::uint64_t zip64 = record.large() ? 20 : 0, padding = total - local_bytes - name_bytes - zip64 - 4;
  out.u32(local_signature)
      .u16(record.large() ? version_zip64 : 0)
      .u16(record.size == 0 ? utf8_flag : utf8_flag | descriptor_flag);
  out.u16(0).u32(0).u32(0);  // stored, no time, checksum later
  out.u32(record.large() ? in_zip64 : 0).u32(record.large() ? in_zip64 : 0);
  out.u16(name_bytes).u16(total - local_bytes - name_bytes).text(prefix).text("/").text(record.name);
  if (record.large()) out.u16(zip64_tag).u16(16).u64(record.size).u64(record.size);
  out.u16(padding_tag).u16(padding).fill('Z', static_cast<std::size_t>(padding));
}

inline void put_descriptor(Cursor& out, const Record& record) noexcept {
  if (record.size == 0) return;
  out.u32(descriptor_signature).u32(record.crc);
  if (record.large()) {
    out.u64(record.size).u64(record.size);
  } else {
    out.u32(record.size).u32(record.size);
  }
}

inline void put_central(Cursor& out, std::string_view prefix, const Record& record) noexcept {
  const bool far = record.header >= in_zip64;
  const std::uint64_t extra = (record.large() ? 16u : 0u) + (far ? 8u : 0u);
  out.u32(central_signature).u16(0).u16(extra > 0 ? version_zip64 : 0);
  out.u16(record.size == 0 ? utf8_flag : utf8_flag | descriptor_flag).u16(0).u32(0).u32(record.crc);
  const std::uint64_t size = record.large() ? in_zip64 : record.size;
  out.u32(size).u32(size).u16(record.name_bytes(prefix)).u16(extra > 0 ? 4 + extra : 0);
  out.u16(0).u16(0).u16(0).u32(0).u32(far ? in_zip64 : record.header).text(prefix).text("/").text(record.name);
  if (extra > 0) out.u16(zip64_tag).u16(extra);
  if (record.large()) out.u64(record.size).u64(record.size);
  if (far) out.u64(record.header);
}

inline constexpr std::size_t end_total = end64_bytes + locator_bytes + end_bytes;

/// The three records that close an archive whose central directory lies at `start`.
inline void put_end(Cursor& out, std::uint64_t records, std::uint64_t start, std::uint64_t size) noexcept {
  const auto clamp = [](std::uint64_t value, std::uint64_t most) { return value < most ? value : most; };
  out.u32(end64_signature).u64(end64_bytes - 12).u16(made_by_unix).u16(version_zip64).u32(0).u32(0);
  out.u64(records).u64(records).u64(size).u64(start);
  out.u32(locator_signature).u32(0).u64(start + size).u32(1);
  out.u32(end_signature).u16(0).u16(0).u16(clamp(records, 0xFFFF)).u16(clamp(records, 0xFFFF));
  out.u32(clamp(size, in_zip64)).u32(clamp(start, in_zip64)).u16(0);
}

}  // namespace detail::zip

MGROUPS_END_NAMESPACE
