// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include <mgroups/core/half.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Element types of tensors, named as PyTorch names them. The numeric values travel between ranks and are never written to
/// a file.
enum class DType : std::uint8_t {
  float32, float64, float16, bfloat16,
  int8, int16, int32, int64,
  uint8, uint16, uint32, uint64,
  bool_,
  complex32, complex64, complex128,
  float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz, float8_e8m0fnu,
  float4_e2m1fn_x2,  ///< one byte holds two values; sizes count bytes, as torch's do
  bits8, bits16, bits1x8, bits2x4, bits4x2,
  bcomplex32,
};

inline constexpr int dtype_count = static_cast<int>(DType::bcomplex32) + 1;

namespace detail {

struct DTypeRow {
  std::string_view name;
  std::uint8_t size;
};

inline constexpr DTypeRow dtype_rows[dtype_count] = {
    {"float32", 4},       {"float64", 8},     {"float16", 2},         {"bfloat16", 2},        {"int8", 1},
    {"int16", 2},         {"int32", 4},       {"int64", 8},           {"uint8", 1},           {"uint16", 2},
    {"uint32", 4},        {"uint64", 8},      {"bool", 1},            {"complex32", 4},       {"complex64", 8},
    {"complex128", 16},   {"float8_e4m3fn", 1}, {"float8_e5m2", 1},   {"float8_e4m3fnuz", 1}, {"float8_e5m2fnuz", 1},
    {"float8_e8m0fnu", 1}, {"float4_e2m1fn_x2", 1}, {"bits8", 1},     {"bits16", 2},          {"bits1x8", 1},
    {"bits2x4", 1},       {"bits4x2", 1},     {"bcomplex32", 4},
};

}  // namespace detail

/// PyTorch's spelling without the `torch.` prefix.
[[nodiscard]] constexpr std::string_view name(DType dtype) noexcept {
  return detail::dtype_rows[static_cast<int>(dtype)].name;
}

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(DType dtype) noexcept {
  return detail::dtype_rows[static_cast<int>(dtype)].size;
}

/// The dtype that `name` gives this spelling to, or nothing.
[[nodiscard]] constexpr std::optional<DType> dtype_from_name(std::string_view text) noexcept {
  for (int i = 0; i < dtype_count; ++i) {
    if (detail::dtype_rows[i].name == text) return static_cast<DType>(i);
  }
  return std::nullopt;
}

namespace detail {

template <class T>
consteval std::optional<DType> dtype_of_type() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, bool>) return DType::bool_;
  else if constexpr (std::is_same_v<U, float>) return DType::float32;
  else if constexpr (std::is_same_v<U, double>) return DType::float64;
  else if constexpr (std::is_same_v<U, mgroups::float16>) return DType::float16;
  else if constexpr (std::is_same_v<U, mgroups::bfloat16>) return DType::bfloat16;
  else if constexpr (std::is_same_v<U, std::complex<float>>) return DType::complex64;
  else if constexpr (std::is_same_v<U, std::complex<double>>) return DType::complex128;
  else if constexpr (std::is_same_v<U, char> || std::is_same_v<U, wchar_t>) return std::nullopt;
  else if constexpr (std::is_integral_v<U>) {
    constexpr bool is_signed = std::is_signed_v<U>;
    if constexpr (sizeof(U) == 1) return is_signed ? DType::int8 : DType::uint8;
    else if constexpr (sizeof(U) == 2) return is_signed ? DType::int16 : DType::uint16;
    else if constexpr (sizeof(U) == 4) return is_signed ? DType::int32 : DType::uint32;
    else return is_signed ? DType::int64 : DType::uint64;
  } else {
    return std::nullopt;
  }
}

}  // namespace detail

/// True for C++ types that are elements of a tensor. `char` is text and `wchar_t` has no fixed size: neither is one.
template <class T>
concept tensor_element = detail::dtype_of_type<T>().has_value();

/// The dtype of a C++ element type.
template <tensor_element T>
inline constexpr DType dtype_of = *detail::dtype_of_type<T>();

MGROUPS_END_NAMESPACE
