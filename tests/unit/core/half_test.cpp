// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/core/half.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

using mgroups::bfloat16;
using mgroups::float16;

static_assert(std::is_trivially_copyable_v<float16> && std::is_trivially_copyable_v<bfloat16>);
static_assert(float16(1.0f).bits == 0x3c00 && bfloat16(1.0f).bits == 0x3f80);
static_assert(static_cast<float>(float16(65504.0f)) == 65504.0f);

namespace {

template <class Half>
Half from_bits(std::uint32_t bits) {
  Half out;
  out.bits = static_cast<std::uint16_t>(bits);
  return out;
}

template <class Half>
float value(std::uint32_t bits) {
  return static_cast<float>(from_bits<Half>(bits));
}

std::uint32_t bits_of(float number) { return std::bit_cast<std::uint32_t>(number); }

/// All patterns go to float and back unchanged; NaNs stay NaNs of the same sign, made quiet. Between two neighbours, the
/// middle goes to the even one and what is next to the middle to the nearer one.
template <class Half>
void check_all_patterns(std::uint32_t infinity, std::uint32_t quiet) {
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const float number = value<Half>(bits);
    const std::uint32_t magnitude = bits & 0x7fffu;
    const std::uint32_t back = Half(number).bits;
    if (magnitude > infinity) {
      wrong += !std::isnan(number) || back != (bits | quiet);
    } else {
      wrong += back != bits || std::signbit(number) != (bits >= 0x8000u);
    }
  }
  CHECK(wrong == 0);
  for (std::uint32_t bits = 0; bits + 1 < infinity; ++bits) {
    const float low = value<Half>(bits), high = value<Half>(bits + 1), middle = low / 2 + high / 2;
    wrong += !(low < high);
    if (!(low < middle && middle < high)) continue;  // a bfloat16 subnormal's half is no float
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    wrong += Half(middle).bits != even || Half(-middle).bits != (even | 0x8000u);
    wrong += Half(std::nextafter(middle, low)).bits != bits || Half(std::nextafter(middle, high)).bits != bits + 1;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("float16: all 65536 patterns") { check_all_patterns<float16>(0x7c00, 0x200); }
TEST_CASE("bfloat16: all 65536 patterns") { check_all_patterns<bfloat16>(0x7f80, 0x40); }

TEST_CASE("float16: values of IEEE 754 binary16") {
  CHECK(value<float16>(0x0001) == 0x1p-24f);
  CHECK(value<float16>(0x03ff) == 0x3ffp-24f);
  CHECK(value<float16>(0x0400) == 0x1p-14f);
  CHECK(value<float16>(0x3555) == 0x1.554p-2f);
  CHECK(value<float16>(0xc000) == -2.0f);
  CHECK(value<float16>(0x7bff) == 65504.0f);
  CHECK(value<float16>(0x7c00) == std::numeric_limits<float>::infinity());
  CHECK(float16(65519.996f).bits == 0x7bff);
  CHECK(float16(65520.0f).bits == 0x7c00);
  CHECK(float16(-1e30f).bits == 0xfc00);
  CHECK(float16(0x1p-25f).bits == 0);
  CHECK(float16(std::nextafter(0x1p-25f, 1.0f)).bits == 1);
  CHECK(float16(-1e-30f).bits == 0x8000);
  CHECK(float16(0x1.ffep-15f).bits == 0x0400);  // rounds from the subnormals up to the smallest normal number
  CHECK(float16(0.1f).bits == 0x2e66);
}

TEST_CASE("bfloat16: the upper half of a float") {
  CHECK(value<bfloat16>(0x3f80) == 1.0f);
  CHECK(value<bfloat16>(0xc049) == -3.140625f);
  CHECK(bfloat16(3.14159265f).bits == 0x4049);
  CHECK(bfloat16(std::numeric_limits<float>::max()).bits == 0x7f80);
  CHECK(bfloat16(-std::numeric_limits<float>::infinity()).bits == 0xff80);
  CHECK(bfloat16(std::numeric_limits<float>::denorm_min()).bits == 0);
  CHECK(bfloat16(std::bit_cast<float>(0x7f800001u)).bits == 0x7fc0);  // its payload would vanish: still a NaN
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) wrong += bits_of(value<bfloat16>(bits)) != bits << 16;
  CHECK(wrong == 0);
}

#if defined(__FLT16_MAX__) && !defined(__clang__)
TEST_CASE("float16 agrees with the compiler's _Float16") {
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto native = static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(bits)));
    wrong += std::isnan(native) ? !std::isnan(value<float16>(bits)) : bits_of(native) != bits_of(value<float16>(bits));
  }
  CHECK(wrong == 0);
  // Floats spread over all exponents, with every kind of tail.
  for (std::uint64_t i = 0; i < (std::uint64_t{1} << 32); i += 4099) {
    const float number = std::bit_cast<float>(static_cast<std::uint32_t>(i));
    if (std::isnan(number)) continue;
    wrong += std::bit_cast<std::uint16_t>(static_cast<_Float16>(number)) != float16(number).bits;
  }
  CHECK(wrong == 0);
}
#endif
