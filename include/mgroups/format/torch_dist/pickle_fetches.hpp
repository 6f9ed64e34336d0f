// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <mgroups/core/little_endian.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// The numbers of the memo that some opcode of a pickle fetches: all that a machine must remember. CPython stores every
/// value under a number and fetches few of them. A pass over the opcodes that ends where it does not understand one, as the
/// machine will.
class PickleFetches {
 public:
  explicit PickleFetches(std::span<const std::byte> input) : input_(input) {
    scan();
    before_.reserve(bits_.size());
    for (const std::uint64_t word : bits_) {
      before_.push_back(count_);
      count_ += static_cast<std::uint32_t>(std::popcount(word));
    }
    first_.fill(none);
    for (std::uint32_t i = 0; i < first_.size(); ++i) first_[i] = slot_of(i);
  }

  static constexpr std::uint32_t none = 0xFFFFFFFFu;

  /// How many different numbers are fetched.
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  [[nodiscard]] bool contains(std::uint64_t number) const noexcept {
    const std::uint64_t word = number / 64;
    return word < bits_.size() && (bits_[static_cast<std::size_t>(word)] >> number % 64 & 1) != 0;
  }
  /// A place below `count()` for each number that is fetched; `none` for others.
  [[nodiscard]] std::uint32_t slot(std::uint64_t number) const noexcept {
    return number < first_.size() ? first_[static_cast<std::size_t>(number)] : slot_of(number);
  }

 private:
  // What follows an opcode: 0 to 8 bytes; or a length in so many bytes, and as many bytes as it says; or other things.
  static constexpr std::uint8_t counted = 0x10, lines = 0x20, fetch_short = 0x40, fetch_long = 0x41, unknown = 0xFF;
  static constexpr std::array<std::uint8_t, 256> arguments = [] {
    std::array<std::uint8_t, 256> out{};
    out.fill(unknown);
    const auto set = [&](std::string_view opcodes, std::uint8_t what) {
      for (const char opcode : opcodes) out[static_cast<std::uint8_t>(opcode)] = what;
    };
    set("(012\x94N\x88\x89)t\x85\x86\x87]ae}su\x8f\x90\x91\x93R\x81\x92"
        "bQ",
        0);
    set("Kq\x80", 1);
    set("M", 2);
    set("Jr", 4);
    set("G\x95", 8);
    set("\x8cU\x8a"
        "C",
        counted | 1);
    set("XTB\x8b", counted | 4);
    set("\x8d\x8e\x96", counted | 8);
    set("c", lines);
    set("h", fetch_short);
    set("j", fetch_long);
    return out;
  }();

  void scan() {
    std::size_t at = 0;
    while (at < input_.size()) {
      const std::uint8_t what = arguments[std::to_integer<std::uint8_t>(input_[at++])];
      if (what <= 8) {
        at += what;
      } else if (what == fetch_short) {
        if (const auto number = uint_at(at, 1)) note(*number);
        at += 1;
      } else if (what == fetch_long) {
        if (const auto number = uint_at(at, 4)) note(*number);
        at += 4;
      } else if (what == lines) {
        for (int i = 0; i < 2 && at < input_.size(); ++i) {
          const auto rest = input_.subspan(at);
          at += static_cast<std::size_t>(std::find(rest.begin(), rest.end(), std::byte{'\n'}) - rest.begin()) + 1;
        }
      } else {
        if (what == unknown) return;
        const std::size_t width = what & 0xFu;
        const auto length = uint_at(at, width);
        at += width;
        if (!length || *length > input_.size() - at) return;
        at += static_cast<std::size_t>(*length);
      }
    }
  }
  [[nodiscard]] std::optional<std::uint64_t> uint_at(std::size_t at, std::size_t width) const noexcept {
    if (width > input_.size() - at) return std::nullopt;
    return little_endian(input_.subspan(at, width));
  }
  void note(std::uint64_t number) {
    if (number >= input_.size()) return;  // more values than bytes: the machine refuses it
    const auto word = static_cast<std::size_t>(number / 64);
    if (word >= bits_.size()) bits_.resize(std::max(word + 1, 2 * bits_.size()));
    bits_[word] |= std::uint64_t{1} << number % 64;
  }
  [[nodiscard]] std::uint32_t slot_of(std::uint64_t number) const noexcept {
    if (!contains(number)) return none;
    const std::uint64_t word = number / 64, bit = std::uint64_t{1} << number % 64;
    return before_[static_cast<std::size_t>(word)] +
           static_cast<std::uint32_t>(std::popcount(bits_[static_cast<std::size_t>(word)] & (bit - 1)));
  }

  std::span<const std::byte> input_;
  std::vector<std::uint64_t> bits_;
  std::vector<std::uint32_t> before_;  // of each word: how many bits are set in those before it
  std::uint32_t count_ = 0;
  std::array<std::uint32_t, 4096> first_;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
