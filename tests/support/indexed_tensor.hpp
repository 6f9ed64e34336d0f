// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include <mgroups/core/box.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/tensor_view.hpp>

/// A local tensor that owns its memory, with any strides. Bytes that belong to no element keep `filler`, so that a stray
/// write shows.
class IndexedTensor {
 public:
  static constexpr std::byte filler{0xa5};

  /// `order`: axes from the slowest to the fastest in memory; `gap`: elements left out after each row.
  IndexedTensor(mgroups::DType dtype, const mgroups::Dims& shape, const std::vector<int>& order, std::int64_t gap) {
    view_.dtype = dtype;
    view_.shape = shape;
    view_.strides = mgroups::Dims::filled(shape.rank(), 1);
    std::int64_t stride = 1;
    for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
      view_.strides[*axis] = stride;
      stride = stride * std::max<std::int64_t>(shape[*axis], 1) + gap;
    }
    bytes_.assign(static_cast<std::size_t>(stride) * mgroups::size_of(dtype), filler);
    view_.data = bytes_.data();
  }

  /// Row-major, or with permuted axes and gaps between rows when `strided`.
  static IndexedTensor random(mgroups::DType dtype, const mgroups::Dims& shape, bool strided, std::mt19937& random) {
    std::vector<int> order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    if (strided) std::shuffle(order.begin(), order.end(), random);
    return IndexedTensor(dtype, shape, order, strided ? 1 + static_cast<std::int64_t>(random() % 3) : 0);
  }

  // The view points into the vector's memory, which moving keeps.
  IndexedTensor(IndexedTensor&&) = default;
  IndexedTensor(const IndexedTensor&) = delete;

  const mgroups::TensorView& view() const { return view_; }

  /// Gives every element the value that belongs to its place in the global tensor.
  void fill(std::uint64_t salt, const mgroups::Box& box, const mgroups::Dims& global_shape) {
    each(box, global_shape, [&](std::byte* element, std::uint64_t index) {
      const std::uint64_t value = value_at(salt, index);
      for (std::size_t at = 0; at < mgroups::size_of(view_.dtype); ++at) {
        element[at] = static_cast<std::byte>(value >> (8 * (at % 8)));
      }
    });
  }

  /// Elements whose bytes are not those of their place, and bytes beside the elements that have changed.
  std::int64_t count_wrong(std::uint64_t salt, const mgroups::Box& box, const mgroups::Dims& global_shape) const {
    std::int64_t wrong = 0;
    std::vector<std::byte> rest = bytes_;
    each(box, global_shape, [&](const std::byte* element, std::uint64_t index) {
      const std::uint64_t value = value_at(salt, index);
      bool right = true;
      for (std::size_t at = 0; at < mgroups::size_of(view_.dtype); ++at) {
        right = right && element[at] == static_cast<std::byte>(value >> (8 * (at % 8)));
        rest[static_cast<std::size_t>(element - bytes_.data()) + at] = filler;
      }
      wrong += right ? 0 : 1;
    });
    for (const std::byte byte : rest) wrong += byte == filler ? 0 : 1;
    return wrong;
  }

 private:
  /// The global index itself, in all its bytes: a neighbour's value differs in the lowest one.
  static std::uint64_t value_at(std::uint64_t salt, std::uint64_t index) { return index + salt * 1000003u; }

  template <class F>
  void each(const mgroups::Box& box, const mgroups::Dims& global_shape, F&& f) const {
    const mgroups::Dims global_strides = mgroups::row_major_strides(global_shape);
    const int prepended = global_shape.rank() - view_.shape.rank();
    const auto size = static_cast<std::int64_t>(mgroups::size_of(view_.dtype));
    for (std::int64_t i = 0; i < view_.numel(); ++i) {
      std::int64_t rest = i, at = 0, global = 0;
      for (int axis = 0; axis < prepended; ++axis) global += box.offsets[axis] * global_strides[axis];
      for (int axis = view_.shape.rank() - 1; axis >= 0; --axis) {
        const std::int64_t index = rest % view_.shape[axis];
        rest /= view_.shape[axis];
        at += index * view_.strides[axis];
        global += (box.offsets[axis + prepended] + index) * global_strides[axis + prepended];
      }
      f(const_cast<std::byte*>(bytes_.data()) + at * size, static_cast<std::uint64_t>(global));
    }
  }

  std::vector<std::byte> bytes_;
  mgroups::TensorView view_;
};
