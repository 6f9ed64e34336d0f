// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <optional>
#include <string_view>

#include <mgroups/core/dtype.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

struct StorageType {
  DType dtype;
  std::string_view class_name;  // in module `torch`
};

// The dtypes with a storage class of their own; all newer ones lie in an UntypedStorage and name themselves.
inline constexpr StorageType storage_types[] = {
    {DType::float32, "FloatStorage"},
    {DType::float64, "DoubleStorage"},
    {DType::float16, "HalfStorage"},
    {DType::bfloat16, "BFloat16Storage"},
    {DType::int64, "LongStorage"},
    {DType::int32, "IntStorage"},
    {DType::int16, "ShortStorage"},
    {DType::int8, "CharStorage"},
    {DType::uint8, "ByteStorage"},
    {DType::bool_, "BoolStorage"},
    {DType::complex64, "ComplexFloatStorage"},
    {DType::complex128, "ComplexDoubleStorage"},
};

/// The storage class of a dtype, or an empty text where it has none.
[[nodiscard]] constexpr std::string_view storage_class(DType dtype) noexcept {
  for (const StorageType& type : storage_types) {
    if (type.dtype == dtype) return type.class_name;
  }
  return {};
}

[[nodiscard]] constexpr std::optional<DType> storage_dtype(std::string_view class_name) noexcept {
  for (const StorageType& type : storage_types) {
    if (type.class_name == class_name) return type.dtype;
  }
  return std::nullopt;
}

}  // namespace detail

MGROUPS_END_NAMESPACE
