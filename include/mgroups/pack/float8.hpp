// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// An 8-bit float: a sign, an exponent, a mantissa. The four formats are those of PyTorch: "fn" has no infinity and one NaN
/// per sign, "fnuz" has neither infinity nor negative zero, whose code is its only NaN.
struct Float8Format {
  int mantissa_bits;
  int bias;
  std::uint8_t largest;   ///< code of the largest finite number
  std::uint8_t overflow;  ///< code of what is larger: infinity, NaN, or the largest number, as torch 2.14 converts
  std::uint8_t nan;
  bool unsigned_zero;
};

inline constexpr Float8Format float8_e4m3fn_format{3, 7, 0x7e, 0x7e, 0x7f, false};
inline constexpr Float8Format float8_e5m2_format{2, 15, 0x7b, 0x7c, 0x7f, false};
inline constexpr Float8Format float8_e4m3fnuz_format{3, 8, 0x7f, 0x80, 0x80, true};
inline constexpr Float8Format float8_e5m2fnuz_format{2, 16, 0x7f, 0x80, 0x80, true};

[[nodiscard]] constexpr float decode_float8(const Float8Format& format, std::uint8_t code) {
  const std::uint32_t magnitude = code & 0x7fu;
  const bool negative = (code & 0x80u) != 0;
  float value = std::numeric_limits<float>::quiet_NaN();
  if (format.unsigned_zero ? code != 0x80u : magnitude <= format.largest) {
    const std::uint32_t exponent = magnitude >> format.mantissa_bits;
    const std::uint32_t mantissa = magnitude & ((1u << format.mantissa_bits) - 1u);
    const std::uint32_t significand = exponent == 0 ? mantissa : mantissa | (1u << format.mantissa_bits);
    const int power = static_cast<int>(exponent == 0 ? 1u : exponent) - format.bias - format.mantissa_bits;
    value = static_cast<float>(significand) * std::bit_cast<float>(static_cast<std::uint32_t>(power + 127) << 23);
  } else if (magnitude == format.overflow && !format.unsigned_zero) {
    value = std::numeric_limits<float>::infinity();
  }
  return negative && !(format.unsigned_zero && code == 0x80u) ? -value : value;
}

/// Rounds to nearest, ties to even.
[[nodiscard]] constexpr std::uint8_t encode_float8(const Float8Format& format, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 24) & 0x80u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const int drop = 23 - format.mantissa_bits;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  std::uint32_t code = 0;
  if (magnitude > 0x7f800000u) {
    code = format.nan;
  } else if (exponent >= 1 - format.bias) {
    const std::uint32_t rebiased = magnitude - (static_cast<std::uint32_t>(127 - format.bias) << 23);
    code = (rebiased + (1u << (drop - 1)) - 1u + ((rebiased >> drop) & 1u)) >> drop;
    if (code > format.largest) code = format.overflow;
  } else {
    const int shift = drop + (1 - format.bias - exponent);
    if (shift <= 24) {
      const std::uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
      const std::uint32_t half = 1u << (shift - 1), rest = significand & ((1u << shift) - 1u);
      code = significand >> shift;
      if (rest > half || (rest == half && (code & 1u) != 0)) ++code;
    }
  }
  if (format.unsigned_zero && code == 0) return 0;
  return static_cast<std::uint8_t>(code | sign);
}

/// All values of a format: decoding is a look-up.
struct Float8Table {
  float values[256] = {};
  explicit constexpr Float8Table(const Float8Format& format) {
    for (int code = 0; code < 256; ++code) values[code] = decode_float8(format, static_cast<std::uint8_t>(code));
  }
};

}  // namespace detail

MGROUPS_END_NAMESPACE
