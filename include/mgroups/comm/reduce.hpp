// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <mgroups/comm/buffer.hpp>
#include <mgroups/comm/reducible.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/half.hpp>
#include <mgroups/version.hpp>

// Elementwise reduction on hosts; what each operation means is told in comm/reducible.hpp.

MGROUPS_BEGIN_NAMESPACE

namespace detail {

// The inputs of one reduction, element i of input k being the k-th rank's.
struct ReduceInputs {
  std::span<const void* const> data;
  std::size_t count;
};

template <class Accumulator, class Element>
Accumulator load_as(const Element& value) {
  if constexpr (std::same_as<Element, float16> || std::same_as<Element, bfloat16>) {
    return static_cast<Accumulator>(static_cast<float>(value));
  } else {
    return static_cast<Accumulator>(value);
  }
}

// Fixed strides, which compilers vectorise at -O2 already.
template <class F>
void for_each_index(std::size_t n, F f) {
  constexpr std::size_t stride = 16;
  std::size_t i = 0;
  for (; i + stride <= n; i += stride) {
    for (std::size_t j = 0; j < stride; ++j) f(i + j);
  }
  for (; i < n; ++i) f(i);
}

// All inputs of a block are read before it is written, so that `out` may be one of them.
template <class Element, class Accumulator, class Combine, class Finish>
void reduce_blocks(const ReduceInputs& in, void* out, Combine combine, Finish finish) {
  constexpr std::size_t block = 4096 / sizeof(Accumulator);
  Accumulator accumulators[block];
  Element* const result = static_cast<Element*>(out);
  for (std::size_t begin = 0; begin < in.count; begin += block) {
    const std::size_t n = std::min(block, in.count - begin);
    const Element* first = static_cast<const Element*>(in.data[0]) + begin;
    for_each_index(n, [&](std::size_t i) { accumulators[i] = load_as<Accumulator>(first[i]); });
    for (const void* input : in.data.subspan(1)) {
      const Element* values = static_cast<const Element*>(input) + begin;
      for_each_index(n, [&](std::size_t i) { accumulators[i] = combine(accumulators[i], load_as<Accumulator>(values[i])); });
    }
    for_each_index(n, [&](std::size_t i) { result[begin + i] = finish(accumulators[i]); });
  }
}

template <class Element, class Accumulator>
void reduce_ordered(ReduceOp op, const ReduceInputs& in, void* out) {
  const auto finish = [](Accumulator value) { return static_cast<Element>(value); };
  // `x != x` is true of a NaN alone and carries it into the result.
  if (op == ReduceOp::min) {
    reduce_blocks<Element, Accumulator>(
        in, out, [](Accumulator a, Accumulator x) { return x < a || x != x ? x : a; }, finish);
  } else {
    reduce_blocks<Element, Accumulator>(
        in, out, [](Accumulator a, Accumulator x) { return x > a || x != x ? x : a; }, finish);
  }
}

template <class Element, class Accumulator>
void reduce_floating(ReduceOp op, const ReduceInputs& in, void* out) {
  const auto add = [](Accumulator a, Accumulator x) { return a + x; };
  const auto finish = [](Accumulator value) { return static_cast<Element>(value); };
  switch (op) {
    case ReduceOp::sum: return reduce_blocks<Element, Accumulator>(in, out, add, finish);
    case ReduceOp::product:
      return reduce_blocks<Element, Accumulator>(
          in, out, [](Accumulator a, Accumulator x) { return a * x; }, finish);
    case ReduceOp::avg: {
      const auto ranks = static_cast<Accumulator>(in.data.size());
      return reduce_blocks<Element, Accumulator>(in, out, add,
                                                 [ranks](Accumulator value) { return static_cast<Element>(value / ranks); });
    }
    default: return reduce_ordered<Element, Accumulator>(op, in, out);
  }
}

template <class Element>
void reduce_integer(ReduceOp op, const ReduceInputs& in, void* out) {
  // Unsigned arithmetic wraps; below 32 bits it must not be promoted to int, whose overflow is undefined.
  using Bits = std::make_unsigned_t<Element>;
  using Word = std::conditional_t<(sizeof(Element) < 4), std::uint32_t, Bits>;
  using Wide = std::conditional_t<std::is_signed_v<Element>, std::int64_t, std::uint64_t>;
  switch (op) {
    case ReduceOp::sum:
      return reduce_blocks<Bits, Word>(
          in, out, [](Word a, Word x) { return a + x; }, [](Word value) { return static_cast<Bits>(value); });
    case ReduceOp::product:
      return reduce_blocks<Bits, Word>(
          in, out, [](Word a, Word x) { return a * x; }, [](Word value) { return static_cast<Bits>(value); });
    case ReduceOp::avg: {
      const auto ranks = static_cast<Wide>(in.data.size());
      return reduce_blocks<Element, std::uint64_t>(
          in, out, [](std::uint64_t a, std::uint64_t x) { return a + x; },
          [ranks](std::uint64_t value) { return static_cast<Element>(static_cast<Wide>(value) / ranks); });
    }
    default: return reduce_ordered<Element, Element>(op, in, out);
  }
}

inline void reduce_bool(ReduceOp op, const ReduceInputs& in, void* out) {
  using Byte = unsigned char;
  const auto finish = [](Byte value) { return static_cast<Byte>(value != 0 ? 1 : 0); };
  if (op == ReduceOp::sum || op == ReduceOp::max) {
    reduce_blocks<Byte, Byte>(
        in, out, [](Byte a, Byte x) { return static_cast<Byte>(a | x); }, finish);
  } else {
    const auto both = [](Byte a, Byte x) { return static_cast<Byte>(a != 0 && x != 0 ? 1 : 0); };
    reduce_blocks<Byte, Byte>(in, out, both, finish);
  }
}

template <class Element>
void multiply_complex(const ReduceInputs& in, void* out) {
  reduce_blocks<Element, Element>(
      in, out, [](const Element& a, const Element& x) { return a * x; }, [](const Element& value) { return value; });
}

}  // namespace detail

/// out[i] = inputs[0][i] op inputs[1][i] op ..., for `count` elements of `type` in host memory, combined in the order of the
/// inputs. `inputs` is not empty; `out` may be one of them, and overlaps none otherwise. Local. Throws UnsupportedError
/// where `reduction_fault` has something to say.
inline void reduce_elements(ElementType type, ReduceOp op, std::span<const void* const> inputs, void* out,
                            std::size_t count) {
  if (const auto fault = reduction_fault(type, op)) throw UnsupportedError(*fault);
  const detail::ReduceInputs in{inputs, count};
  // Sums of complex numbers are sums of their parts.
  const detail::ReduceInputs parts{inputs, 2 * count};
  switch (*type.dtype()) {
    case DType::float32: return detail::reduce_floating<float, float>(op, in, out);
    case DType::float64: return detail::reduce_floating<double, double>(op, in, out);
    case DType::float16: return detail::reduce_floating<float16, float>(op, in, out);
    case DType::bfloat16: return detail::reduce_floating<bfloat16, float>(op, in, out);
    case DType::int8: return detail::reduce_integer<std::int8_t>(op, in, out);
    case DType::int16: return detail::reduce_integer<std::int16_t>(op, in, out);
    case DType::int32: return detail::reduce_integer<std::int32_t>(op, in, out);
    case DType::int64: return detail::reduce_integer<std::int64_t>(op, in, out);
    case DType::uint8: return detail::reduce_integer<std::uint8_t>(op, in, out);
    case DType::uint16: return detail::reduce_integer<std::uint16_t>(op, in, out);
    case DType::uint32: return detail::reduce_integer<std::uint32_t>(op, in, out);
    case DType::uint64: return detail::reduce_integer<std::uint64_t>(op, in, out);
    case DType::bool_: return detail::reduce_bool(op, in, out);
    case DType::complex32: return detail::reduce_floating<float16, float>(op, parts, out);
    case DType::bcomplex32: return detail::reduce_floating<bfloat16, float>(op, parts, out);
    case DType::complex64:
      if (op == ReduceOp::product) return detail::multiply_complex<std::complex<float>>(in, out);
      return detail::reduce_floating<float, float>(op, parts, out);
    case DType::complex128:
      if (op == ReduceOp::product) return detail::multiply_complex<std::complex<double>>(in, out);
      return detail::reduce_floating<double, double>(op, parts, out);
    default: return;
  }
}

MGROUPS_END_NAMESPACE
