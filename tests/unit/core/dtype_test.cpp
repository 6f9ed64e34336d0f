// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/core/dtype.hpp>

#include <doctest/doctest.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <string_view>

namespace mg = mgroups;
using mg::DType;

static_assert(mg::dtype_of<float> == DType::float32 && mg::dtype_of<const double> == DType::float64);
static_assert(mg::dtype_of<bool> == DType::bool_);
static_assert(mg::dtype_of<mg::float16> == DType::float16 && mg::dtype_of<mg::bfloat16> == DType::bfloat16);
static_assert(mg::dtype_of<std::complex<float>> == DType::complex64 &&
              mg::dtype_of<std::complex<double>> == DType::complex128);
static_assert(mg::dtype_of<std::int8_t> == DType::int8 && mg::dtype_of<std::uint8_t> == DType::uint8);
static_assert(mg::dtype_of<std::int16_t> == DType::int16 && mg::dtype_of<std::uint16_t> == DType::uint16);
static_assert(mg::dtype_of<std::int32_t> == DType::int32 && mg::dtype_of<std::uint32_t> == DType::uint32);
static_assert(mg::dtype_of<long> == DType::int64 && mg::dtype_of<long long> == DType::int64);
static_assert(mg::dtype_of<unsigned long> == DType::uint64 && mg::dtype_of<unsigned long long> == DType::uint64);
static_assert(!mg::tensor_element<char> && !mg::tensor_element<wchar_t> && !mg::tensor_element<void*>);
static_assert(!mg::tensor_element<long double> && !mg::tensor_element<std::byte> && !mg::tensor_element<float&>);

TEST_CASE("sizes are those of torch's element types") {
  struct Row {
    DType dtype;
    std::string_view name;
    std::size_t size;
  };
  constexpr Row rows[] = {
      {DType::float32, "float32", 4},
      {DType::float64, "float64", 8},
      {DType::float16, "float16", 2},
      {DType::bfloat16, "bfloat16", 2},
      {DType::int8, "int8", 1},
      {DType::int16, "int16", 2},
      {DType::int32, "int32", 4},
      {DType::int64, "int64", 8},
      {DType::uint8, "uint8", 1},
      {DType::uint16, "uint16", 2},
      {DType::uint32, "uint32", 4},
      {DType::uint64, "uint64", 8},
      {DType::bool_, "bool", 1},
      {DType::complex32, "complex32", 4},
      {DType::complex64, "complex64", 8},
      {DType::complex128, "complex128", 16},
      {DType::float8_e4m3fn, "float8_e4m3fn", 1},
      {DType::float8_e5m2, "float8_e5m2", 1},
      {DType::float8_e4m3fnuz, "float8_e4m3fnuz", 1},
      {DType::float8_e5m2fnuz, "float8_e5m2fnuz", 1},
      {DType::float8_e8m0fnu, "float8_e8m0fnu", 1},
      {DType::float4_e2m1fn_x2, "float4_e2m1fn_x2", 1},
      {DType::bits8, "bits8", 1},
      {DType::bits16, "bits16", 2},
      {DType::bits1x8, "bits1x8", 1},
      {DType::bits2x4, "bits2x4", 1},
      {DType::bits4x2, "bits4x2", 1},
      {DType::bcomplex32, "bcomplex32", 4},
  };
  CHECK(std::size(rows) == mg::dtype_count);
  std::set<std::string_view> names;
  for (const Row& row : rows) {
    CHECK(mg::name(row.dtype) == row.name);
    CHECK(mg::size_of(row.dtype) == row.size);
    CHECK(mg::dtype_from_name(row.name) == row.dtype);
    names.insert(row.name);
  }
  CHECK(names.size() == std::size(rows));
}

TEST_CASE("other spellings name no dtype") {
  for (const std::string_view text : {"", "float", "torch.float32", "Float32", "float32 ", "bool_"}) {
    CHECK_MESSAGE(!mg::dtype_from_name(text), text);
  }
}
