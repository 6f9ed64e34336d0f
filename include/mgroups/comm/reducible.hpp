// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <optional>
#include <string>

#include <mgroups/comm/buffer.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/version.hpp>

// What each reduction means on hosts:
//   float32, float64   in their own precision, in the order of the inputs
//   float16, bfloat16  accumulated in float32 and rounded once, at the end
//   integers           sum and product wrap around; avg sums in 64 bits and divides, rounding towards zero
//   bool               sum and max are "or", product and min are "and"; there is no avg
//   complex            sum, avg, and (but for the 4-byte ones) product; complex numbers have no min and max
//   min, max           a NaN in any input makes the result NaN
// Other element types are refused.

MGROUPS_BEGIN_NAMESPACE

/// Why elements of this type cannot be reduced with `op`: one sentence, or nothing when they can.
[[nodiscard]] inline std::optional<std::string> reduction_fault(ElementType type, ReduceOp op) {
  if (!type.dtype()) {
    return concat("elements of ", type.size(), " bytes that are no tensor element have no ", name(op),
                  "; reduce their members as spans of numbers");
  }
  const DType dtype = *type.dtype();
  switch (dtype) {
    case DType::float32:
    case DType::float64:
    case DType::float16:
    case DType::bfloat16:
    case DType::int8:
    case DType::int16:
    case DType::int32:
    case DType::int64:
    case DType::uint8:
    case DType::uint16:
    case DType::uint32:
    case DType::uint64: return std::nullopt;
    case DType::bool_:
      if (op != ReduceOp::avg) return std::nullopt;
      return std::string("bool has no avg; convert to a floating type first");
    case DType::complex64:
    case DType::complex128:
    case DType::complex32:
    case DType::bcomplex32:
      if (op == ReduceOp::sum || op == ReduceOp::avg) return std::nullopt;
      if (op == ReduceOp::product) {
        if (dtype == DType::complex64 || dtype == DType::complex128) return std::nullopt;
        return concat(name(dtype), " has no product; convert to complex64 first");
      }
      return concat(name(dtype), " has no ", name(op), ", because complex numbers are not ordered");
    default: return concat(name(dtype), " has no ", name(op), "; convert to float32 first");
  }
}

MGROUPS_END_NAMESPACE
