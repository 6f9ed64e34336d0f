// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <mgroups/core/box.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Many boxes of one rank in one block of memory: 16 bytes per box and axis, where a `Box` has room for `max_rank` axes.
class BoxList {
 public:
  BoxList() = default;
  explicit BoxList(int rank) : rank_(rank) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  void clear() noexcept {
    coordinates_.clear();
    size_ = 0;
  }
  /// Empties the list and sets the rank of the boxes to come.
  void reset(int rank) noexcept {
    clear();
    rank_ = rank;
  }

  void push_back(const Box& box) {
    coordinates_.insert(coordinates_.end(), box.offsets.begin(), box.offsets.end());
    coordinates_.insert(coordinates_.end(), box.sizes.begin(), box.sizes.end());
    ++size_;
  }

  /// Appends a box whose offsets, then sizes, `next()` returns one by one.
  template <class Next>
  void append(Next&& next) {
    for (int i = 0; i < 2 * rank_; ++i) coordinates_.push_back(next());
    ++size_;
  }

  [[nodiscard]] std::int64_t offset(std::size_t i, int axis) const noexcept { return row(i)[axis]; }
  [[nodiscard]] std::int64_t extent(std::size_t i, int axis) const noexcept { return row(i)[rank_ + axis]; }
  [[nodiscard]] std::int64_t end(std::size_t i, int axis) const noexcept { return offset(i, axis) + extent(i, axis); }

  [[nodiscard]] Box box(std::size_t i) const {
    Box out;
    for (int axis = 0; axis < rank_; ++axis) {
      out.offsets.push_back(offset(i, axis));
      out.sizes.push_back(extent(i, axis));
    }
    return out;
  }

  [[nodiscard]] std::int64_t volume(std::size_t i) const noexcept {
    std::int64_t total = 1;
    for (int axis = 0; axis < rank_; ++axis) total *= extent(i, axis);
    return total;
  }

  /// True when boxes `i` and `j` share an element.
  [[nodiscard]] bool overlap(std::size_t i, std::size_t j) const noexcept {
    for (int axis = 0; axis < rank_; ++axis) {
      if (offset(i, axis) >= end(j, axis) || offset(j, axis) >= end(i, axis)) return false;
    }
    return volume(i) > 0 && volume(j) > 0;
  }

 private:
  [[nodiscard]] const std::int64_t* row(std::size_t i) const noexcept {
    return coordinates_.data() + i * 2 * static_cast<std::size_t>(rank_);
  }

  int rank_ = 0;
  std::size_t size_ = 0;
  std::vector<std::int64_t> coordinates_;
};

MGROUPS_END_NAMESPACE
