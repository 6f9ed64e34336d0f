// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <mgroups/core/dtype.hpp>
#include <mgroups/core/memory.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// How the elements of several ranks become one. On which element types each works, and how: `comm/reducible.hpp`.
enum class ReduceOp : std::uint8_t { sum, product, min, max, avg };

inline constexpr ReduceOp sum = ReduceOp::sum;
inline constexpr ReduceOp product = ReduceOp::product;
inline constexpr ReduceOp min = ReduceOp::min;
inline constexpr ReduceOp max = ReduceOp::max;
inline constexpr ReduceOp avg = ReduceOp::avg;

[[nodiscard]] constexpr std::string_view name(ReduceOp op) noexcept {
  constexpr std::string_view names[] = {"sum", "product", "min", "max", "avg"};
  return names[static_cast<int>(op)];
}

/// A C++ type whose bytes mean the same on another rank: trivially copyable, and neither an address nor a view of something
/// elsewhere. (A pointer inside a struct cannot be seen from here and remains the caller's responsibility.)
template <class T>
concept transportable =
    std::is_object_v<T> && std::is_trivially_copyable_v<T> && !std::is_volatile_v<T> && !std::is_pointer_v<T> &&
    !std::is_member_pointer_v<T> && !std::is_null_pointer_v<T> && !std::ranges::view<std::remove_cv_t<T>>;

/// What an element on the wire is: a DType, or opaque bytes of a known size that can be moved but not reduced.
class ElementType {
 public:
  /// An opaque byte.
  constexpr ElementType() = default;
  constexpr ElementType(DType dtype) noexcept : size_(size_of(dtype)), dtype_(static_cast<int>(dtype)) {}
  [[nodiscard]] static constexpr ElementType opaque(std::size_t bytes) noexcept {
    ElementType type;
    type.size_ = bytes;
    return type;
  }

  /// Bytes of one element.
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  /// Nothing for opaque elements.
  [[nodiscard]] constexpr std::optional<DType> dtype() const noexcept {
    if (dtype_ < 0) return std::nullopt;
    return static_cast<DType>(dtype_);
  }
  [[nodiscard]] friend constexpr bool operator==(ElementType, ElementType) noexcept = default;

 private:
  std::size_t size_ = 1;
  int dtype_ = -1;
};

/// The element type of a C++ type; opaque where it is not an element of a tensor.
template <transportable T>
inline constexpr ElementType element_type_of = [] {
  if constexpr (tensor_element<T>) {
    return ElementType(dtype_of<T>);
  } else {
    return ElementType::opaque(sizeof(T));
  }
}();

/// `4 float32`, `3 elements of 12 bytes`.
[[nodiscard]] inline std::string elements_text(std::size_t count, ElementType type) {
  if (const auto dtype = type.dtype()) return concat(count, ' ', name(*dtype));
  return concat(count, count == 1 ? " element of " : " elements of ", type.size(), type.size() == 1 ? " byte" : " bytes");
}

/// Elements that a verb writes, without their C++ type. `count` is in elements. Nothing is owned.
struct buffer {
  constexpr buffer() = default;
  constexpr buffer(void* first, std::size_t n, ElementType element, MemorySpace where = MemorySpace::host) noexcept
      : data(first), count(n), type(element), space(where) {}
  template <transportable T, std::size_t Extent>
    requires(!std::is_const_v<T>)
  constexpr buffer(std::span<T, Extent> values) noexcept : buffer(values.data(), values.size(), element_type_of<T>) {}
  template <transportable T>
    requires(!std::is_const_v<T>)
  constexpr buffer(device_span<T> values) noexcept
      : buffer(values.data(), values.size(), element_type_of<T>, MemorySpace::device) {}

  [[nodiscard]] constexpr std::size_t bytes() const noexcept { return count * type.size(); }

  void* data = nullptr;
  std::size_t count = 0;
  ElementType type;
  MemorySpace space = MemorySpace::host;
};

/// Elements that a verb only reads.
struct const_buffer {
  constexpr const_buffer() = default;
  constexpr const_buffer(const void* first, std::size_t n, ElementType element,
                         MemorySpace where = MemorySpace::host) noexcept
      : data(first), count(n), type(element), space(where) {}
  constexpr const_buffer(const buffer& other) noexcept : const_buffer(other.data, other.count, other.type, other.space) {}
  template <transportable T, std::size_t Extent>
  constexpr const_buffer(std::span<T, Extent> values) noexcept
      : const_buffer(values.data(), values.size(), element_type_of<std::remove_const_t<T>>) {}
  template <transportable T>
  constexpr const_buffer(device_span<T> values) noexcept
      : const_buffer(values.data(), values.size(), element_type_of<std::remove_const_t<T>>, MemorySpace::device) {}

  [[nodiscard]] constexpr std::size_t bytes() const noexcept { return count * type.size(); }

  const void* data = nullptr;
  std::size_t count = 0;
  ElementType type;
  MemorySpace space = MemorySpace::host;
};

MGROUPS_END_NAMESPACE
