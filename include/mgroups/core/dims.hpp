// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <ranges>
#include <span>
#include <string>

#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// The most axes that a tensor may have.
inline constexpr int max_rank = 16;

/// One number per axis: a shape, an offset or strides. A value type without allocation; `Dims{}` belongs to a
/// zero-dimensional tensor.
class Dims {
 public:
  constexpr Dims() = default;
  constexpr Dims(std::initializer_list<std::int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  explicit constexpr Dims(std::span<const std::int64_t> values) {
    for (const std::int64_t value : values) push_back(value);
  }

  /// `rank` axes, each holding `value`.
  [[nodiscard]] static constexpr Dims filled(int rank, std::int64_t value) {
    Dims dims;
    for (int i = 0; i < rank; ++i) dims.push_back(value);
    return dims;
  }

  [[nodiscard]] constexpr int rank() const noexcept { return rank_; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return static_cast<std::size_t>(rank_); }
  [[nodiscard]] constexpr bool empty() const noexcept { return rank_ == 0; }
  [[nodiscard]] constexpr std::int64_t operator[](int axis) const noexcept { return values_[axis]; }
  [[nodiscard]] constexpr std::int64_t& operator[](int axis) noexcept { return values_[axis]; }
  [[nodiscard]] constexpr const std::int64_t* begin() const noexcept { return values_; }
  [[nodiscard]] constexpr const std::int64_t* end() const noexcept { return values_ + rank_; }
  [[nodiscard]] constexpr const std::int64_t* data() const noexcept { return values_; }

  /// Throws InvalidArgument beyond `max_rank` axes.
  constexpr void push_back(std::int64_t value) {
    if (rank_ == max_rank) {
      throw InvalidArgument(concat("a tensor has more than ", max_rank, " axes; join some of them"));
    }
    values_[rank_++] = value;
  }

  [[nodiscard]] friend constexpr bool operator==(const Dims& a, const Dims& b) noexcept {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  [[nodiscard]] friend constexpr std::strong_ordering operator<=>(const Dims& a, const Dims& b) noexcept {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::int64_t values_[max_rank] = {};
  int rank_ = 0;
};

/// `[2, 3]`.
[[nodiscard]] inline std::string to_string(const Dims& dims) { return list_text(dims, max_rank); }

/// a * b for non-negative numbers, or nothing when it does not fit.
[[nodiscard]] constexpr std::optional<std::int64_t> checked_mul(std::int64_t a, std::int64_t b) noexcept {
  if (a != 0 && b > std::numeric_limits<std::int64_t>::max() / a) return std::nullopt;
  return a * b;
}

/// a + b for non-negative numbers, or nothing when it does not fit.
[[nodiscard]] constexpr std::optional<std::int64_t> checked_add(std::int64_t a, std::int64_t b) noexcept {
  if (b > std::numeric_limits<std::int64_t>::max() - a) return std::nullopt;
  return a + b;
}

/// Number of elements of a shape of non-negative sizes, 1 for zero axes, or nothing when it does not fit into 63 bits.
/// A size of zero makes it 0 whatever the others are.
[[nodiscard]] constexpr std::optional<std::int64_t> checked_numel(const Dims& shape) noexcept {
  for (const std::int64_t size : shape) {
    if (size == 0) return 0;
  }
  std::int64_t total = 1;
  for (const std::int64_t size : shape) {
    const auto next = checked_mul(total, size);
    if (!next) return std::nullopt;
    total = *next;
  }
  return total;
}

/// Number of elements of a shape that is already known to fit.
[[nodiscard]] constexpr std::int64_t numel(const Dims& shape) noexcept {
  std::int64_t total = 1;
  for (const std::int64_t size : shape) total *= size;
  return total;
}

/// Row-major strides in elements. An axis of size zero counts as one, as in PyTorch.
[[nodiscard]] constexpr Dims row_major_strides(const Dims& shape) {
  Dims strides = Dims::filled(shape.rank(), 1);
  for (int axis = shape.rank() - 2; axis >= 0; --axis) {
    strides[axis] = strides[axis + 1] * std::max<std::int64_t>(shape[axis + 1], 1);
  }
  return strides;
}

/// True when elements in row-major order lie back to back. Strides of axes of size one do not matter.
[[nodiscard]] constexpr bool is_contiguous(const Dims& shape, const Dims& strides) noexcept {
  std::int64_t expected = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (shape[axis] == 0) return true;
    if (shape[axis] != 1) {
      if (strides[axis] != expected) return false;
      expected *= shape[axis];
    }
  }
  return true;
}

MGROUPS_END_NAMESPACE
