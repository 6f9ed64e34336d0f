// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <compare>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <span>

#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// The most axes that a grid of ranks may have.
inline constexpr int max_grid_axes = 12;

/// The members of a group in group order: a random-access range of world ranks, computed from a first rank and strides. A
/// value type of fixed size whatever the group's size is.
class Members {
 public:
  /// `size` steps of `stride` ranks.
  struct Dimension {
    int size = 1;
    int stride = 1;
  };

  class iterator {
   public:
    using value_type = int;
    using reference = int;
    using pointer = void;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;
    using iterator_concept = std::random_access_iterator_tag;

    constexpr iterator() = default;
    constexpr iterator(const Members* members, int index) noexcept : members_(members), index_(index) {}

    [[nodiscard]] constexpr int operator*() const noexcept { return (*members_)[index_]; }
    [[nodiscard]] constexpr int operator[](difference_type n) const noexcept { return *(*this + n); }
    constexpr iterator& operator+=(difference_type n) noexcept {
      index_ += static_cast<int>(n);
      return *this;
    }
    constexpr iterator& operator-=(difference_type n) noexcept { return *this += -n; }
    constexpr iterator& operator++() noexcept { return *this += 1; }
    constexpr iterator& operator--() noexcept { return *this += -1; }
    constexpr iterator operator++(int) noexcept {
      const iterator before = *this;
      ++*this;
      return before;
    }
    constexpr iterator operator--(int) noexcept {
      const iterator before = *this;
      --*this;
      return before;
    }
    [[nodiscard]] friend constexpr iterator operator+(iterator it, difference_type n) noexcept { return it += n; }
    [[nodiscard]] friend constexpr iterator operator+(difference_type n, iterator it) noexcept { return it += n; }
    [[nodiscard]] friend constexpr iterator operator-(iterator it, difference_type n) noexcept { return it -= n; }
    [[nodiscard]] friend constexpr difference_type operator-(iterator a, iterator b) noexcept { return a.index_ - b.index_; }
    [[nodiscard]] friend constexpr bool operator==(iterator a, iterator b) noexcept { return a.index_ == b.index_; }
    [[nodiscard]] friend constexpr auto operator<=>(iterator a, iterator b) noexcept { return a.index_ <=> b.index_; }

   private:
    const Members* members_ = nullptr;
    int index_ = 0;
  };

  /// No member.
  constexpr Members() = default;
  /// `first` plus every combination of steps; the first dimension varies fastest. Each stride must be at least the extent of
  /// the dimensions before it, so that members ascend; otherwise InvalidArgument.
  constexpr Members(int first, std::span<const Dimension> dimensions) : first_(first), size_(1) {
    for (const Dimension& dimension : dimensions) add(dimension);
  }
  constexpr Members(int first, std::initializer_list<Dimension> dimensions)
      : Members(first, std::span(dimensions.begin(), dimensions.size())) {}
  /// A list in group order, which is only borrowed and must outlive this view. Its ranks must differ.
  [[nodiscard]] static constexpr Members listed(std::span<const int> ranks) noexcept {
    Members out;
    out.list_ = ranks.data();
    out.size_ = static_cast<int>(ranks.size());
    return out;
  }

  [[nodiscard]] constexpr int size() const noexcept { return size_; }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] constexpr iterator begin() const noexcept { return {this, 0}; }
  [[nodiscard]] constexpr iterator end() const noexcept { return {this, size_}; }

  /// World rank of member `index`.
  [[nodiscard]] constexpr int operator[](int index) const noexcept {
    if (list_ != nullptr) return list_[index];
    int rank = first_;
    for (int i = 0; i < dimension_count_; ++i) {
      rank += index % dimensions_[i].size * dimensions_[i].stride;
      index /= dimensions_[i].size;
    }
    return rank;
  }

  /// Index of a world rank among the members, or -1 where it is none. O(axes), O(size) for a list.
  [[nodiscard]] constexpr int index_of(int world_rank) const noexcept {
    if (list_ != nullptr) {
      for (int i = 0; i < size_; ++i) {
        if (list_[i] == world_rank) return i;
      }
      return -1;
    }
    if (size_ == 0 || world_rank < first_) return -1;
    int rest = world_rank - first_;
    int index = 0;
    for (int i = dimension_count_ - 1; i >= 0; --i) {
      const int step = rest / dimensions_[i].stride;
      if (step >= dimensions_[i].size) return -1;
      rest -= step * dimensions_[i].stride;
      index = index * dimensions_[i].size + step;
    }
    return rest == 0 ? index : -1;
  }
  [[nodiscard]] constexpr bool contains(int world_rank) const noexcept { return index_of(world_rank) >= 0; }

  /// The same ranks in the same order.
  [[nodiscard]] friend constexpr bool operator==(const Members& a, const Members& b) noexcept {
    if (a.size_ != b.size_) return false;
    for (int i = 0; i < a.size_; ++i) {
      if (a[i] != b[i]) return false;
    }
    return true;
  }

 private:
  constexpr void add(Dimension next) {
    if (next.size < 1) {
      size_ = 0;
      return;
    }
    if (next.size == 1) return;
    int extent = 1;
    for (int i = 0; i < dimension_count_; ++i) extent += (dimensions_[i].size - 1) * dimensions_[i].stride;
    if (next.stride < extent || dimension_count_ == max_grid_axes) {
      throw InvalidArgument(concat("a group of ", size_, " members that span ", extent, " ranks cannot be repeated every ",
                                   next.stride, " ranks: members would overlap or not ascend; give small strides first"));
    }
    size_ *= next.size;
    // Neighbours that form one arithmetic progression are one dimension.
    if (dimension_count_ > 0) {
      Dimension& last = dimensions_[dimension_count_ - 1];
      if (next.stride == last.size * last.stride) {
        last.size *= next.size;
        return;
      }
    }
    dimensions_[dimension_count_++] = next;
  }

  const int* list_ = nullptr;
  int first_ = 0;
  int size_ = 0;
  int dimension_count_ = 0;
  Dimension dimensions_[max_grid_axes] = {};
};

MGROUPS_END_NAMESPACE
