// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/half.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/pack/box_copy.hpp>
#include <mgroups/pack/float8.hpp>
#include <mgroups/pack/host_walk.hpp>
#include <mgroups/pack/pack.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

// Elements are converted by way of one of five types, each of which holds its sources exactly: one load per source type
// and one store per pair of these and a destination type, instead of one loop per pair of dtypes.
struct ComplexValue {
  double real, imaginary;
};
enum class ViaType : std::uint8_t { none, float_, double_, int64, uint64, complex };

inline constexpr std::int64_t convert_block = 256;

union ConvertBlock {
  float float_[convert_block];
  double double_[convert_block];
  std::int64_t int64[convert_block];
  std::uint64_t uint64[convert_block];
  ComplexValue complex[convert_block];
};

/// An element of `Bytes` bytes that is no C++ type of its own.
template <const Float8Format& Format>
struct Float8 {
  std::uint8_t code;
};
template <class Part>
struct ComplexOf {
  Part real, imaginary;
};
struct BoolByte {
  std::uint8_t byte;
};

template <class T>
struct is_float8 : std::false_type {};
template <const Float8Format& Format>
struct is_float8<Float8<Format>> : std::true_type {};
template <class T>
struct is_complex_of : std::false_type {};
template <class Part>
struct is_complex_of<ComplexOf<Part>> : std::true_type {};

/// Calls `use` with a value of the C++ type that stands for `dtype`; returns false where conversion has no such type.
template <class Use>
bool with_element_type(DType dtype, Use&& use) {
  switch (dtype) {
    case DType::float32: use(float{}); return true;
    case DType::float64: use(double{}); return true;
    case DType::float16: use(float16{}); return true;
    case DType::bfloat16: use(bfloat16{}); return true;
    case DType::int8: use(std::int8_t{}); return true;
    case DType::int16: use(std::int16_t{}); return true;
    case DType::int32: use(std::int32_t{}); return true;
    case DType::int64: use(std::int64_t{}); return true;
    case DType::uint8: use(std::uint8_t{}); return true;
    case DType::uint16: use(std::uint16_t{}); return true;
    case DType::uint32: use(std::uint32_t{}); return true;
    case DType::uint64: use(std::uint64_t{}); return true;
    case DType::bool_: use(BoolByte{}); return true;
    case DType::complex32: use(ComplexOf<float16>{}); return true;
    case DType::complex64: use(ComplexOf<float>{}); return true;
    case DType::complex128: use(ComplexOf<double>{}); return true;
    case DType::float8_e4m3fn: use(Float8<float8_e4m3fn_format>{}); return true;
    case DType::float8_e5m2: use(Float8<float8_e5m2_format>{}); return true;
    case DType::float8_e4m3fnuz: use(Float8<float8_e4m3fnuz_format>{}); return true;
    case DType::float8_e5m2fnuz: use(Float8<float8_e5m2fnuz_format>{}); return true;
    default: return false;
  }
}

template <class T>
consteval ViaType via_type_of() {
  if constexpr (is_complex_of<T>::value)
    return ViaType::complex;
  else if constexpr (std::same_as<T, double>)
    return ViaType::double_;
  else if constexpr (std::same_as<T, std::uint64_t>)
    return ViaType::uint64;
  else if constexpr (std::integral<T> || std::same_as<T, BoolByte>)
    return ViaType::int64;
  else
    return ViaType::float_;
}

template <const Float8Format& Format>
inline constexpr Float8Table float8_table{Format};

template <class T>
[[nodiscard]] auto load_element(T value) {
  if constexpr (is_complex_of<T>::value) {
    return ComplexValue{static_cast<double>(load_element(value.real)), static_cast<double>(load_element(value.imaginary))};
  } else if constexpr (std::same_as<T, float16> || std::same_as<T, bfloat16>) {
    return static_cast<float>(value);
  } else if constexpr (std::same_as<T, BoolByte>) {
    return static_cast<std::int64_t>(value.byte != 0);
  } else if constexpr (std::floating_point<T> || std::same_as<T, std::uint64_t>) {
    return value;
  } else {
    return static_cast<std::int64_t>(value);
  }
}
template <const Float8Format& Format>
[[nodiscard]] float load_element(Float8<Format> value) {
  return float8_table<Format>.values[value.code];
}

/// Truncates towards zero; beyond the range the nearest end of it, for NaN zero.
template <std::integral T, std::floating_point Via>
[[nodiscard]] T saturated(Via value) {
  constexpr Via lowest = static_cast<Via>(std::numeric_limits<T>::min());
  constexpr Via beyond = static_cast<Via>(std::numeric_limits<T>::max() / 2 + 1) * Via{2};  // a power of two: exact
  if (value >= beyond) return std::numeric_limits<T>::max();
  if (value <= lowest) return std::numeric_limits<T>::min();
  return value == value ? static_cast<T>(value) : T{0};
}

template <class T>
struct StoreElement {
  template <class Via>
  [[nodiscard]] static T of(Via value) {
    if constexpr (is_complex_of<T>::value) {
      using Part = decltype(T::real);
      if constexpr (std::same_as<Via, ComplexValue>) {
        return {StoreElement<Part>::of(value.real), StoreElement<Part>::of(value.imaginary)};
      } else {
        return {StoreElement<Part>::of(value), StoreElement<Part>::of(Via{0})};
      }
    } else if constexpr (std::same_as<T, float16> || std::same_as<T, bfloat16>) {
      return T(static_cast<float>(value));
    } else if constexpr (std::same_as<T, BoolByte>) {
      return {static_cast<std::uint8_t>(value != Via{0})};
    } else if constexpr (std::integral<T> && std::floating_point<Via>) {
      return saturated<T>(value);
    } else {
      return static_cast<T>(value);
    }
  }
};
template <const Float8Format& Format>
struct StoreElement<Float8<Format>> {
  template <class Via>
  [[nodiscard]] static Float8<Format> of(Via value) {
    return {encode_float8(Format, static_cast<float>(value))};
  }
};

using LoadElements = void (*)(const std::byte* from, std::int64_t stride, std::int64_t count, ConvertBlock& block);
using StoreElements = void (*)(const ConvertBlock& block, std::byte* to, std::int64_t stride, std::int64_t count);

template <class T, auto Member>
void load_elements(const std::byte* from, std::int64_t stride, std::int64_t count, ConvertBlock& block) {
  const auto load = [&](std::int64_t step) {
    for (std::int64_t i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, from + i * step, sizeof(T));
      (block.*Member)[i] = load_element(value);
    }
  };
  if (stride == static_cast<std::int64_t>(sizeof(T))) {
    load(static_cast<std::int64_t>(sizeof(T)));
  } else {
    load(stride);
  }
}

template <class T, auto Member>
void store_elements(const ConvertBlock& block, std::byte* to, std::int64_t stride, std::int64_t count) {
  const auto store = [&](std::int64_t step) {
    for (std::int64_t i = 0; i < count; ++i) {
      const T value = StoreElement<T>::of((block.*Member)[i]);
      std::memcpy(to + i * step, &value, sizeof(T));
    }
  };
  if (stride == static_cast<std::int64_t>(sizeof(T))) {
    store(static_cast<std::int64_t>(sizeof(T)));
  } else {
    store(stride);
  }
}

struct Loader {
  LoadElements load = nullptr;
  ViaType via = ViaType::none;
};

[[nodiscard]] inline Loader loader_of(DType dtype) {
  Loader out;
  with_element_type(dtype, [&]<class T>(T) {
    constexpr ViaType via = via_type_of<T>();
    out.via = via;
    if constexpr (via == ViaType::complex)
      out.load = load_elements<T, &ConvertBlock::complex>;
    else if constexpr (via == ViaType::double_)
      out.load = load_elements<T, &ConvertBlock::double_>;
    else if constexpr (via == ViaType::uint64)
      out.load = load_elements<T, &ConvertBlock::uint64>;
    else if constexpr (via == ViaType::int64)
      out.load = load_elements<T, &ConvertBlock::int64>;
    else
      out.load = load_elements<T, &ConvertBlock::float_>;
  });
  return out;
}

/// Nothing where `dtype` has no conversion, or where complex numbers would lose their imaginary part.
[[nodiscard]] inline StoreElements storer_of(DType dtype, ViaType via) {
  StoreElements out = nullptr;
  with_element_type(dtype, [&]<class T>(T) {
    switch (via) {
      case ViaType::float_: out = store_elements<T, &ConvertBlock::float_>; break;
      case ViaType::double_: out = store_elements<T, &ConvertBlock::double_>; break;
      case ViaType::int64: out = store_elements<T, &ConvertBlock::int64>; break;
      case ViaType::uint64: out = store_elements<T, &ConvertBlock::uint64>; break;
      case ViaType::complex:
        if constexpr (is_complex_of<T>::value) out = store_elements<T, &ConvertBlock::complex>;
        break;
      case ViaType::none: break;
    }
  });
  return out;
}

}  // namespace detail

/// True when `convert_box` can convert elements of `from` to `to`: all integers, bool, floats of 16 bits and more and the
/// four float8 formats among each other, all of these to complex, complex to complex, and every dtype to itself.
[[nodiscard]] inline bool can_convert(DType from, DType to) {
  return from == to || detail::storer_of(to, detail::loader_of(from).via) != nullptr;
}

/// Copies every element of `source` to the same index of `destination`, of equal shape and any dtype, with the results of
/// torch's `copy_` (2.14): host memory, no shared bytes, strides as in make_box_copy. Float to a narrower float rounds to
/// nearest, ties to even (float64 to types below float32 by way of float32), and overflows to infinity; float8_e4m3fn
/// saturates at 448 instead, the "fnuz" formats become NaN. Integer to narrower integer keeps the low bits. Float to integer
/// truncates towards zero; what torch leaves undefined is defined here: out of range gives the nearest end of the range, NaN
/// gives 0. To bool: true unless zero. Local, blocking. Throws UnsupportedError for a pair that `can_convert` denies,
/// InvalidArgument otherwise.
inline void convert_box(const TensorView& source, const TensorView& destination) {
  if (source.dtype == destination.dtype) return copy_box(source, destination);
  detail::check_on_host(source, "convert_box()");
  detail::check_on_host(destination, "convert_box()");
  const detail::Loader loader = detail::loader_of(source.dtype);
  const detail::StoreElements store = detail::storer_of(destination.dtype, loader.via);
  if (store == nullptr) {
    const bool drops = loader.via == detail::ViaType::complex && can_convert(DType::float32, destination.dtype);
    throw UnsupportedError(concat("elements of ", name(source.dtype), " cannot be converted to ", name(destination.dtype),
                                  drops ? ", which has no imaginary part" : "", "; load them as ", name(source.dtype)));
  }
  const BoxCopy box = detail::strided_pair(source, destination);
  if (box.run_count == 0) return;
  const BoxAxis line = box.rank > 0 ? box.axes[box.rank - 1] : BoxAxis{1, 0, 0};
  detail::ConvertBlock block;
  detail::for_each_index(box, std::max(box.rank - 1, 0), [&](const std::byte* from, std::byte* to) {
    for (std::int64_t done = 0; done < line.size; done += detail::convert_block) {
      const std::int64_t count = std::min(detail::convert_block, line.size - done);
      loader.load(from + done * line.source_stride, line.source_stride, count, block);
      store(block, to + done * line.destination_stride, line.destination_stride, count);
    }
  });
}

MGROUPS_END_NAMESPACE
