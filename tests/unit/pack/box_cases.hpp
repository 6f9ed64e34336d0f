// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

// Random strided views and the slowest correct copy between them, for the host tests and the device test.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/tensor_view.hpp>

namespace box_cases {

namespace mg = mgroups;

/// A view into a buffer that starts at address 0: `offset` is the byte offset of element (0, ..., 0).
struct Layout {
  mg::DType dtype = mg::DType::uint8;
  mg::Dims shape;
  mg::Dims strides;
  std::size_t offset = 0;
  std::size_t buffer_bytes = 0;

  [[nodiscard]] mg::TensorView view(std::byte* buffer, mg::MemorySpace space = mg::MemorySpace::host) const {
    return {buffer + offset, dtype, shape, strides, space};
  }
};

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  [[nodiscard]] std::int64_t operator()(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  [[nodiscard]] bool chance(int percent) { return (*this)(1, 100) <= percent; }

 private:
  std::mt19937_64 engine_;
};

[[nodiscard]] inline mg::DType random_dtype(Random& random) {
  constexpr mg::DType dtypes[] = {mg::DType::uint8, mg::DType::bfloat16, mg::DType::float32, mg::DType::int64,
                                  mg::DType::complex128};
  return dtypes[random(0, 4)];
}

[[nodiscard]] inline mg::Dims random_shape(Random& random, std::int64_t most_elements) {
  mg::Dims shape;
  const auto rank = static_cast<int>(random(0, 8));
  std::int64_t elements = 1;
  for (int axis = 0; axis < rank; ++axis) {
    std::int64_t size = random.chance(20) ? 1 : random(1, random.chance(25) ? 37 : 5);
    size = std::max<std::int64_t>(1, std::min(size, most_elements / elements));
    if (random.chance(2)) size = 0;
    shape.push_back(size);
    elements = std::max<std::int64_t>(1, elements * size);
  }
  return shape;
}

/// A slice, with steps, of a dense tensor whose axes are permuted. On the source side axes may also run backwards or be
/// expanded.
[[nodiscard]] inline Layout random_layout(Random& random, mg::DType dtype, const mg::Dims& shape, bool source_side) {
  Layout layout{dtype, shape, mg::Dims::filled(shape.rank(), 0)};
  std::vector<int> order(static_cast<std::size_t>(shape.rank()));
  std::iota(order.begin(), order.end(), 0);
  if (random.chance(40)) {
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<std::size_t>(random(0, static_cast<std::int64_t>(i) - 1))]);
    }
  }
  std::int64_t dense = 1, first = 0;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    const std::int64_t size = shape[*axis];
    if (source_side && random.chance(6)) continue;
    const std::int64_t step = random.chance(15) ? random(2, 3) : 1;
    const std::int64_t before = random.chance(25) ? random(0, 3) : 0, after = random.chance(25) ? random(0, 3) : 0;
    const bool backwards = source_side && size > 0 && random.chance(8);
    layout.strides[*axis] = (backwards ? -step : step) * dense;
    first += (before + (backwards ? step * (size - 1) : 0)) * dense;
    dense *= std::max<std::int64_t>(1, before + size * step + after);
  }
  const auto element = static_cast<std::int64_t>(mg::size_of(dtype));
  const std::int64_t misalignment = random.chance(30) ? random(0, 17) : 0;
  layout.offset = static_cast<std::size_t>(first * element + misalignment);
  layout.buffer_bytes = static_cast<std::size_t>(dense * element + misalignment);
  return layout;
}

/// Every element carries its position in the buffer, scrambled, so that no two neighbours have equal bytes for long.
inline void fill_with_positions(std::vector<std::byte>& buffer, std::uint64_t salt) {
  for (std::size_t i = 0; i < buffer.size(); ++i) {
    const std::uint64_t x = (i / 8 + 1 + salt) * 0x9e3779b97f4a7c15u;
    buffer[i] = static_cast<std::byte>((x ^ (x >> 29)) >> (8 * (i % 8)));
  }
}

/// One element at a time, by multi-index. Calls `element(source offset, destination offset)` in bytes from the views'
/// addresses.
template <class Element>
void for_each_element(const mg::Dims& shape, std::int64_t element_bytes, const mg::Dims& source_strides,
                      const mg::Dims& destination_strides, Element&& element) {
  const std::int64_t elements = mg::numel(shape);
  for (std::int64_t i = 0; i < elements; ++i) {
    std::int64_t rest = i, source = 0, destination = 0;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      source += rest % shape[axis] * source_strides[axis];
      destination += rest % shape[axis] * destination_strides[axis];
      rest /= shape[axis];
    }
    element(source * element_bytes, destination * element_bytes);
  }
}

inline void naive_copy(const mg::TensorView& source, const mg::TensorView& destination) {
  const std::size_t bytes = mg::size_of(source.dtype);
  for_each_element(source.shape, static_cast<std::int64_t>(bytes), source.strides, destination.strides,
                   [&](std::int64_t from, std::int64_t to) {
                     std::memcpy(static_cast<std::byte*>(destination.data) + to,
                                 static_cast<const std::byte*>(source.data) + from, bytes);
                   });
}

}  // namespace box_cases
