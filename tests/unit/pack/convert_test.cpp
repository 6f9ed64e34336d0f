// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/pack/convert.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "box_cases.hpp"

namespace mg = mgroups;
using mg::DType;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float no_number = std::numeric_limits<float>::quiet_NaN();

template <class To, class From>
std::vector<To> converted(std::vector<From> from, DType from_dtype, DType to_dtype) {
  const mg::Dims shape{static_cast<std::int64_t>(from.size())};
  std::vector<To> to(from.size());
  mg::convert_box({from.data(), from_dtype, shape, {1}}, {to.data(), to_dtype, shape, {1}});
  return to;
}

template <class To, class From>
std::vector<To> converted(const std::vector<From>& from) {
  return converted<To>(from, mg::dtype_of<From>, mg::dtype_of<To>);
}

std::vector<float> values_of(const std::vector<mg::bfloat16>& halves) {
  std::vector<float> out;
  for (const mg::bfloat16 half : halves) out.push_back(static_cast<float>(half));
  return out;
}

}  // namespace

TEST_CASE("floats round to nearest even and overflow to infinity") {
  // bfloat16 keeps 8 significant bits: 1 + 2^-8 is a tie between 1 and 1 + 2^-7.
  CHECK(values_of(
            converted<mg::bfloat16>(std::vector<float>{1.0f + 0x1p-8f, 1.0f + 0x3p-8f, -1.0f - 0x1.8p-8f, 3.4e38f, inf})) ==
        std::vector<float>{1.0f, 1.0f + 0x1p-6f, -1.0f - 0x1p-7f, inf, inf});
  CHECK(converted<float>(std::vector<double>{0.1, 1e300, -1e300, 0x1.000001p0}) ==
        std::vector<float>{0.1f, inf, -inf, 1.0f});
  CHECK(converted<double>(std::vector<float>{0.1f, -0.0f, 1e-45f}) ==
        std::vector<double>{double{0.1f}, 0.0, double{1e-45f}});
  CHECK(std::isnan(converted<float>(std::vector<double>{std::nan("")})[0]));
  CHECK(std::isnan(static_cast<float>(converted<mg::bfloat16>(std::vector<float>{no_number})[0])));
}

TEST_CASE("floats to integers truncate; out of range is the nearest end, NaN is 0") {
  const std::vector<float> floats{1.9f, -1.9f, 0.0f, 127.9f, 128.0f, -128.9f, -129.0f, 1e30f, -1e30f, inf, -inf, no_number};
  CHECK(converted<std::int8_t>(floats) == std::vector<std::int8_t>{1, -1, 0, 127, 127, -128, -128, 127, -128, 127, -128, 0});
  CHECK(converted<std::uint8_t>(floats) == std::vector<std::uint8_t>{1, 0, 0, 127, 128, 0, 0, 255, 0, 255, 0, 0});
  constexpr auto low = std::numeric_limits<std::int64_t>::min(), high = std::numeric_limits<std::int64_t>::max();
  CHECK(converted<std::int64_t>(std::vector<double>{0x1p53, -0x1p63, 0x1p63, 0x1.fffffffffffffp62, std::nan("")}) ==
        std::vector<std::int64_t>{std::int64_t{1} << 53, low, high, high - 1023, 0});
  CHECK(converted<std::uint64_t>(std::vector<double>{0x1p63, 0x1p64, -1.0}) ==
        std::vector<std::uint64_t>{std::uint64_t{1} << 63, ~std::uint64_t{0}, 0});
}

TEST_CASE("integers keep the low bits, and are exact by way of no other type") {
  CHECK(converted<std::int8_t>(std::vector<std::int32_t>{300, -129, 127}) == std::vector<std::int8_t>{44, 127, 127});
  CHECK(converted<std::uint8_t>(std::vector<std::int64_t>{-1, 256}) == std::vector<std::uint8_t>{255, 0});
  CHECK(converted<std::int64_t>(std::vector<std::uint64_t>{~std::uint64_t{0}}) == std::vector<std::int64_t>{-1});
  CHECK(converted<std::uint64_t>(std::vector<std::int32_t>{-1}) == std::vector<std::uint64_t>{~std::uint64_t{0}});
  constexpr std::int64_t odd = (std::int64_t{1} << 62) + 1;
  CHECK(converted<std::uint64_t>(std::vector<std::int64_t>{odd}) == std::vector<std::uint64_t>{odd});
  // Rounded once: by way of double it would be a tie, and fall to the even neighbour.
  CHECK(converted<float>(std::vector<std::int64_t>{(std::int64_t{1} << 60) + (std::int64_t{1} << 36) + 1}) ==
        std::vector<float>{0x1.000002p60f});
  CHECK(converted<double>(std::vector<std::uint64_t>{~std::uint64_t{0}}) == std::vector<double>{0x1p64});
}

TEST_CASE("bool is true unless zero, and is read as 0 or 1") {
  const auto bools =
      converted<std::uint8_t>(std::vector<float>{0.0f, -0.0f, 0.5f, no_number, -3.0f}, DType::float32, DType::bool_);
  CHECK(bools == std::vector<std::uint8_t>{0, 0, 1, 1, 1});
  CHECK(converted<std::uint8_t>(std::vector<std::int64_t>{0, std::int64_t{1} << 40}, DType::int64, DType::bool_) ==
        std::vector<std::uint8_t>{0, 1});
  CHECK(converted<float>(std::vector<std::uint8_t>{0, 1, 255}, DType::bool_, DType::float32) == std::vector<float>{0, 1, 1});
}

TEST_CASE("complex numbers") {
  using C64 = std::complex<float>;
  using C128 = std::complex<double>;
  CHECK(converted<C128>(std::vector<C64>{{1.5f, -2.0f}}) == std::vector<C128>{{1.5, -2.0}});
  CHECK(converted<C64>(std::vector<C128>{{0.1, 1e300}}) == std::vector<C64>{{0.1f, inf}});
  CHECK(converted<C64>(std::vector<std::int16_t>{-7}) == std::vector<C64>{{-7.0f, 0.0f}});
  const auto half = converted<std::uint32_t>(std::vector<C64>{{1.0f, -2.0f}}, DType::complex64, DType::complex32);
  CHECK(half[0] == 0xc0003c00u);  // little endian: the real part comes first
  CHECK(converted<C64>(half, DType::complex32, DType::complex64) == std::vector<C64>{{1.0f, -2.0f}});
}

TEST_CASE("float8 formats, against their definitions") {
  // Largest, smallest normal and smallest subnormal of each: OCP 8-bit floating point specification 1.0, table 1, and
  // for "fnuz" the same formats with a bias one higher and no infinities (arXiv:2206.02915).
  // What lies beyond, as torch 2.14 converts it.
  struct Row {
    DType dtype;
    std::uint8_t largest, nan;
    float largest_value, normal, subnormal, overflow;
  };
  for (const Row& row : {Row{DType::float8_e4m3fn, 0x7e, 0x7f, 448.0f, 0x1p-6f, 0x1p-9f, 448.0f},
                         Row{DType::float8_e5m2, 0x7b, 0x7f, 57344.0f, 0x1p-14f, 0x1p-16f, inf},
                         Row{DType::float8_e4m3fnuz, 0x7f, 0x80, 240.0f, 0x1p-7f, 0x1p-10f, no_number},
                         Row{DType::float8_e5m2fnuz, 0x7f, 0x80, 57344.0f, 0x1p-15f, 0x1p-17f, no_number}}) {
    CAPTURE(mg::name(row.dtype));
    const bool fnuz = row.nan == 0x80;
    const auto decode = [&](std::vector<std::uint8_t> codes) { return converted<float>(codes, row.dtype, DType::float32); };
    const auto encode = [&](std::vector<float> values) {
      return converted<std::uint8_t>(values, DType::float32, row.dtype);
    };
    const auto mantissa_bits = row.normal == 2 * row.subnormal * 2 ? 2 : 3;
    const auto normal_code = static_cast<std::uint8_t>(1 << mantissa_bits);
    CHECK(decode({row.largest, normal_code, 1, 0}) ==
          std::vector<float>{row.largest_value, row.normal, row.subnormal, 0.0f});
    CHECK(std::isnan(decode({row.nan})[0]));
    CHECK(encode({no_number})[0] == row.nan);
    CHECK(encode({-0.0f})[0] == (fnuz ? 0 : 0x80));
    CHECK(encode({row.subnormal / 2, row.subnormal * 0.75f, row.subnormal * 1.5f}) == std::vector<std::uint8_t>{0, 1, 2});
    for (const float beyond : {row.largest_value * 1.2f, inf}) {
      const float value = decode(encode({beyond}))[0];
      const bool expected = std::isnan(row.overflow) ? std::isnan(value) : value == row.overflow;
      CHECK(expected);
    }
    // Every finite code goes there and back, rises with its code, and neighbours round to the nearer one, ties to even.
    std::vector<std::uint8_t> codes(row.largest + 1u);
    std::iota(codes.begin(), codes.end(), std::uint8_t{0});
    const std::vector<float> values = decode(codes);
    CHECK(encode(values) == codes);
    for (std::size_t i = 1; i < values.size(); ++i) {
      const float middle = (values[i - 1] + values[i]) / 2;
      const auto lower = codes[i - 1], upper = codes[i];
      const auto even = (lower & 1u) == 0 ? lower : upper;
      const bool rounds =
          encode({middle, std::nextafter(middle, 0.0f), std::nextafter(middle, inf), -middle}) ==
          std::vector<std::uint8_t>{even, lower, upper, static_cast<std::uint8_t>(fnuz && even == 0 ? 0 : even | 0x80)};
      CHECK_MESSAGE(rounds, "code " << i);
    }
  }
}

TEST_CASE("every pair of dtypes that is said to convert carries small whole numbers, strided, across blocks") {
  for (int from = 0; from < mg::dtype_count; ++from) {
    for (int to = 0; to < mg::dtype_count; ++to) {
      const auto a = static_cast<DType>(from), b = static_cast<DType>(to);
      if (!mg::can_convert(a, b) || !mg::can_convert(DType::int8, a) || !mg::can_convert(b, DType::complex128)) continue;
      CAPTURE(mg::name(a));
      CAPTURE(mg::name(b));
      const mg::Dims shape{3, 1, 301};
      const std::int64_t elements = mg::numel(shape);
      std::vector<std::int8_t> numbers(static_cast<std::size_t>(elements));
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int8_t>(i * 7 % 2);
      std::vector<std::byte> first(static_cast<std::size_t>(elements) * mg::size_of(a)),
          second(static_cast<std::size_t>(2 * elements) * mg::size_of(b));
      const mg::TensorView source{first.data(), a, shape, {1, 9, 3}};
      const mg::TensorView destination{second.data(), b, shape, {602, 0, 2}};
      std::vector<std::complex<double>> result(numbers.size());
      mg::convert_box(mg::view_of(numbers, shape), source);
      mg::convert_box(source, destination);
      mg::convert_box(destination, mg::view_of(result, shape));
      bool equal = true;
      for (std::size_t i = 0; i < numbers.size(); ++i) equal = equal && result[i] == std::complex<double>(numbers[i]);
      CHECK(equal);
    }
  }
  CHECK(mg::can_convert(DType::float32, DType::bfloat16));
  CHECK(mg::can_convert(DType::float8_e5m2, DType::int64));
  CHECK(mg::can_convert(DType::bits8, DType::bits8));
}

TEST_CASE("what cannot be converted is refused by a sentence") {
  std::byte a[64] = {}, b[64] = {};
  const auto view = [](void* data, DType dtype) { return mg::TensorView{data, dtype, {2}, {1}}; };
  CHECK_THROWS_WITH_AS(
      mg::convert_box(view(a, DType::complex64), view(b, DType::float32)),
      "elements of complex64 cannot be converted to float32, which has no imaginary part; load them as complex64",
      mg::UnsupportedError);
  CHECK_THROWS_WITH_AS(mg::convert_box(view(a, DType::float4_e2m1fn_x2), view(b, DType::float32)),
                       "elements of float4_e2m1fn_x2 cannot be converted to float32; load them as float4_e2m1fn_x2",
                       mg::UnsupportedError);
  CHECK_THROWS_AS(mg::convert_box(view(a, DType::float32), view(b, DType::bits16)), mg::UnsupportedError);
  CHECK_THROWS_AS(mg::convert_box(view(a, DType::float32), view(nullptr, DType::bfloat16)), mg::InvalidArgument);
  mg::TensorView away = view(b, DType::bfloat16);
  away.space = mg::MemorySpace::device;
  CHECK_THROWS_AS(mg::convert_box(view(a, DType::float32), away), mg::InvalidArgument);
  away = view(b, DType::bfloat16);
  away.strides = {0};
  CHECK_THROWS_AS(mg::convert_box(view(a, DType::float32), away), mg::InvalidArgument);
  const mg::TensorView none{nullptr, DType::float32, {0, 3}, {3, 1}}, nothing{nullptr, DType::int8, {0, 3}, {3, 1}};
  CHECK_NOTHROW(mg::convert_box(none, nothing));
  const mg::TensorView scalar{a, DType::float32, {}, {}}, scalar_half{b, DType::float16, {}, {}};
  const float one = 1.0f;
  std::memcpy(a, &one, 4);
  mg::convert_box(scalar, scalar_half);
  CHECK((b[0] == std::byte{0x00} && b[1] == std::byte{0x3c}));
}
