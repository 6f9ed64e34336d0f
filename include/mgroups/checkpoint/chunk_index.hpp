// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <mgroups/core/box.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Finds the stored chunks of one tensor that a box touches, without looking at all of them: they are sorted along the
/// axis that tells them apart best.
class ChunkIndex {
 public:
  explicit ChunkIndex(const TensorEntry& tensor) : tensor_(&tensor), order_(tensor.chunk_count()) {
    for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<std::uint32_t>(i);
    std::size_t most = 0;
    std::vector<std::int64_t> begins(order_.size());
    for (int axis = 0; axis < tensor.shape.rank() && most < order_.size(); ++axis) {
      for (std::size_t i = 0; i < begins.size(); ++i) begins[i] = begin_of(i, axis);
      std::sort(begins.begin(), begins.end());
      const auto distinct = static_cast<std::size_t>(std::unique(begins.begin(), begins.end()) - begins.begin());
      if (distinct > most) {
        most = distinct;
        axis_ = axis;
      }
    }
    if (tensor.shape.empty()) return;
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return begin_of(a, axis_) < begin_of(b, axis_); });
    for (std::size_t i = 0; i < order_.size(); ++i) {
      longest_ = std::max(longest_, tensor.sizes(i)[static_cast<std::size_t>(axis_)]);
    }
  }

  /// Calls `f(chunk number, common part)` for every chunk that shares an element with `box`, in ascending order along one
  /// axis.
  template <class F>
  void for_each_overlap(const Box& box, F&& f) const {
    const bool sorted = !tensor_->shape.empty();
    auto at = order_.begin();
    if (sorted) {
      const std::int64_t earliest = box.offsets[axis_] - longest_ + 1;
      at = std::partition_point(at, order_.end(), [&](std::uint32_t i) { return begin_of(i, axis_) < earliest; });
    }
    for (; at != order_.end(); ++at) {
      if (sorted && begin_of(*at, axis_) >= box.offsets[axis_] + box.sizes[axis_]) return;
      if (const auto common = intersection(box, tensor_->chunk_box(*at))) f(static_cast<std::size_t>(*at), *common);
    }
  }

 private:
  [[nodiscard]] std::int64_t begin_of(std::size_t chunk, int axis) const noexcept {
    return tensor_->offsets(chunk)[static_cast<std::size_t>(axis)];
  }

  const TensorEntry* tensor_;
  std::vector<std::uint32_t> order_;
  int axis_ = 0;
  std::int64_t longest_ = 0;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
