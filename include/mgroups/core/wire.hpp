// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <mgroups/core/box.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Writes what ranks tell each other: unsigned numbers as LEB128 (7 bits a byte, low bits first), texts with their length.
/// Both ends are the same program; nothing of this is ever stored.
class WireWriter {
 public:
  explicit WireWriter(std::vector<std::byte>& out) : out_(out) {}

  void number(std::uint64_t value) {
    if (value < 0x80) {
      out_.push_back(static_cast<std::byte>(value));
    } else {
      numbers(value);
    }
  }
  /// Numbers and dims (see below) one after the other, faster than one by one.
  template <class... Values>
  void numbers(const Values&... values) {
    std::byte block[sizeof...(Values) * longest * max_rank];  // what is not written is never read
    std::byte* end = block;
    ((end = encode(end, values)), ...);
    out_.insert(out_.end(), block, end);
  }
  void text(std::string_view value) {
    number(value.size());
    const auto bytes = std::as_bytes(std::span(value));
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }
  void bytes(std::span<const std::byte> value) {
    number(value.size());
    out_.insert(out_.end(), value.begin(), value.end());
  }
  /// Non-negative numbers, without their count.
  void dims(const Dims& values) { numbers(values); }
  /// A box of a rank that the reader knows.
  void box(const Box& value) { numbers(value.offsets, value.sizes); }

 private:
  static constexpr std::size_t longest = 10;  // bytes of a number

  static std::byte* encode(std::byte* at, std::uint64_t value) noexcept {
    for (; value >= 0x80; value >>= 7) *at++ = static_cast<std::byte>(value | 0x80);
    *at++ = static_cast<std::byte>(value);
    return at;
  }
  static std::byte* encode(std::byte* at, const Dims& values) noexcept {
    for (const std::int64_t value : values) at = encode(at, static_cast<std::uint64_t>(value));
    return at;
  }

  std::vector<std::byte>& out_;
};

/// Reads what `WireWriter` wrote. Throws Error where the bytes end too early.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] bool done() const noexcept { return at_ == bytes_.size(); }

  /// What has not been read yet.
  [[nodiscard]] std::span<const std::byte> rest() const noexcept { return bytes_.subspan(at_); }

  [[nodiscard]] std::uint64_t number() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) fail();
      const auto byte = static_cast<std::uint64_t>(bytes_[at_++]);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    return value;
  }
  [[nodiscard]] std::uint32_t small_number() { return static_cast<std::uint32_t>(number()); }
  /// Points into the bytes being read.
  [[nodiscard]] std::string_view text() {
    const auto bytes = take(number());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  /// Points into the bytes being read.
  [[nodiscard]] std::span<const std::byte> bytes() { return take(number()); }
  [[nodiscard]] Dims dims(int rank) {
    Dims values;
    for (int axis = 0; axis < rank; ++axis) values.push_back(static_cast<std::int64_t>(number()));
    return values;
  }
  [[nodiscard]] Box box(int rank) {
    Dims offsets = dims(rank);
    return {offsets, dims(rank)};
  }

 private:
  std::span<const std::byte> take(std::uint64_t n) {
    if (n > bytes_.size() - at_) fail();
    const auto out = bytes_.subspan(at_, static_cast<std::size_t>(n));
    at_ += static_cast<std::size_t>(n);
    return out;
  }

  [[noreturn]] static void fail() {
    throw MismatchedCall("a message between ranks is cut short; do all ranks run the same build?");
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

/// Messages to every rank in one block of memory: first those for rank 0, then those for rank 1, ...
struct Parcels {
  std::vector<std::byte> bytes;
  std::vector<std::size_t> counts;  ///< bytes for (or from) each rank

  explicit Parcels(int ranks) : counts(static_cast<std::size_t>(ranks), 0) {}

  /// Calls `f(rank, message)` for every rank in order.
  template <class F>
  void for_each(F&& f) const {
    std::size_t at = 0;
    for (std::size_t r = 0; r < counts.size(); ++r) {
      f(static_cast<int>(r), std::span(bytes).subspan(at, counts[r]));
      at += counts[r];
    }
  }
};

MGROUPS_END_NAMESPACE
