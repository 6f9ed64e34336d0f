// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstdint>

#include <mgroups/version.hpp>

// Functions that device code shares with the host. std::bit_cast is not one of them for nvcc; the builtin that it wraps is.
#if defined(__CUDACC__)
#define MGROUPS_HOST_DEVICE __host__ __device__
#else
#define MGROUPS_HOST_DEVICE
#endif

MGROUPS_BEGIN_NAMESPACE

/// The upper half of an IEEE binary32: 8 exponent bits, 7 of mantissa. Storage and conversion only; arithmetic is done in
/// float. Conversion from float rounds to nearest, ties to even; a NaN stays a (quiet) NaN.
struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;
  MGROUPS_HOST_DEVICE explicit constexpr bfloat16(float value) {
    const auto b = __builtin_bit_cast(std::uint32_t, value);
    if ((b & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<std::uint16_t>((b >> 16) | 0x40u);
    } else {
      bits = static_cast<std::uint16_t>((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
    }
  }
  MGROUPS_HOST_DEVICE explicit constexpr operator float() const {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
  }
};

/// IEEE 754 binary16. Storage and conversion only; arithmetic is done in float. Conversion from float rounds to nearest,
/// ties to even, overflows to infinity and keeps subnormals; a NaN stays a (quiet) NaN.
struct float16 {
  std::uint16_t bits = 0;

  float16() = default;
  MGROUPS_HOST_DEVICE explicit constexpr float16(float value) {
    const auto b = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t sign = (b >> 16) & 0x8000u;
    const std::uint32_t magnitude = b & 0x7fffffffu;
    std::uint32_t out = 0;
    if (magnitude > 0x7f800000u) {
      out = 0x7e00u | ((magnitude >> 13) & 0x1ffu);
    } else if (magnitude >= 0x477ff000u) {  // 65520 and more round to infinity
      out = 0x7c00u;
    } else if (magnitude >= 0x38800000u) {  // normal: rebias the exponent from 127 to 15, round off 13 bits
      out = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    } else if (magnitude > 0x33000000u) {  // subnormal: units of 2^-24; at or below half a unit the result is zero
      const std::uint32_t shift = 126u - (magnitude >> 23);
      const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
      const std::uint32_t half = 1u << (shift - 1u);
      const std::uint32_t truncated = mantissa >> shift;
      const std::uint32_t rest = mantissa & ((1u << shift) - 1u);
      out = truncated + ((rest > half || (rest == half && (truncated & 1u) != 0u)) ? 1u : 0u);
    }
    bits = static_cast<std::uint16_t>(sign | out);
  }
  MGROUPS_HOST_DEVICE explicit constexpr operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1fu;
    const std::uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 0x1fu) return __builtin_bit_cast(float, sign | 0x7f800000u | (mantissa << 13));
    if (exponent != 0u) return __builtin_bit_cast(float, sign | ((exponent + 112u) << 23) | (mantissa << 13));
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0u ? -magnitude : magnitude;
  }
};

static_assert(sizeof(bfloat16) == 2 && sizeof(float16) == 2);

MGROUPS_END_NAMESPACE
