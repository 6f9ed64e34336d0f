// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include <mgroups/core/dims.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/half.hpp>
#include <mgroups/core/memory.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/pack/box_copy.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

template <class Property>
class run_iterator;

struct RunSource {
  using value_type = const std::byte*;
  MGROUPS_HOST_DEVICE static value_type of(const BoxCopy& box, std::int64_t run) { return box.source_of(run); }
};
struct RunDestination {
  using value_type = std::byte*;
  MGROUPS_HOST_DEVICE static value_type of(const BoxCopy& box, std::int64_t run) { return box.destination_of(run); }
};
struct RunSize {
  using value_type = std::size_t;
  MGROUPS_HOST_DEVICE static value_type of(const BoxCopy& box, std::int64_t run) {
    return static_cast<std::size_t>(box.bytes_of(run));
  }
};

}  // namespace detail

/// Source address, destination address and byte count of each run of a RunSet.
using source_iterator = detail::run_iterator<detail::RunSource>;
using destination_iterator = detail::run_iterator<detail::RunDestination>;
using size_iterator = detail::run_iterator<detail::RunSize>;

/// The runs of many box copies, numbered through. A view of a table of boxes and of `box_count + 1` exclusive prefix sums of
/// their run counts; that of run `i` is found by binary search. Nothing per run is ever stored. Passed to kernels by value.
class RunSet {
 public:
  RunSet() = default;

  /// A table in host memory that describes data in `data_space`. Throws InvalidArgument when the sums do not belong to the
  /// boxes.
  RunSet(std::span<const BoxCopy> boxes, std::span<const std::int64_t> first_run, MemorySpace data_space = MemorySpace::host)
      : boxes_(boxes.data()),
        first_run_(first_run.data()),
        box_count_(static_cast<std::int64_t>(boxes.size())),
        run_count_(first_run.empty() ? 0 : first_run.back()),
        data_space_(data_space) {
    if (first_run.size() != boxes.size() + 1 || first_run.front() != 0) {
      throw InvalidArgument(concat(first_run.size(), " prefix sums do not belong to ", boxes.size(),
                                   " boxes; give one more than boxes, the first of them 0"));
    }
  }

  /// The same runs, their table copied to device memory.
  [[nodiscard]] RunSet with_device_table(const BoxCopy* boxes, const std::int64_t* first_run) const {
    RunSet out = *this;
    out.boxes_ = boxes;
    out.first_run_ = first_run;
    out.table_space_ = MemorySpace::device;
    return out;
  }

  [[nodiscard]] MGROUPS_HOST_DEVICE std::int64_t run_count() const { return run_count_; }
  [[nodiscard]] MGROUPS_HOST_DEVICE std::int64_t box_count() const { return box_count_; }
  [[nodiscard]] MGROUPS_HOST_DEVICE const BoxCopy* boxes() const { return boxes_; }
  [[nodiscard]] MGROUPS_HOST_DEVICE const std::int64_t* first_run() const { return first_run_; }
  /// Where the data lie that are copied, and where the table lies that describes them.
  [[nodiscard]] MemorySpace data_space() const { return data_space_; }
  [[nodiscard]] MemorySpace table_space() const { return table_space_; }

  /// Random access iterators at run 0; they dereference the table, so in the memory space where that lies.
  [[nodiscard]] MGROUPS_HOST_DEVICE inline source_iterator sources() const;
  [[nodiscard]] MGROUPS_HOST_DEVICE inline destination_iterator destinations() const;
  [[nodiscard]] MGROUPS_HOST_DEVICE inline size_iterator sizes() const;

  /// The box that run `run` belongs to, for 0 <= run < run_count(): the last one whose first run is not behind it.
  [[nodiscard]] MGROUPS_HOST_DEVICE std::int64_t box_of(std::int64_t run) const {
    std::int64_t low = 0, high = box_count_;
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      if (first_run_[middle] <= run) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }

 private:
  const BoxCopy* boxes_ = nullptr;
  const std::int64_t* first_run_ = nullptr;
  std::int64_t box_count_ = 0;
  std::int64_t run_count_ = 0;
  MemorySpace data_space_ = MemorySpace::host;
  MemorySpace table_space_ = MemorySpace::host;
};

namespace detail {

/// A random access iterator over one property of the runs of a RunSet, computed where it is dereferenced.
template <class Property>
class run_iterator {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = typename Property::value_type;
  using difference_type = std::ptrdiff_t;
  using reference = value_type;
  using pointer = void;

  run_iterator() = default;
  MGROUPS_HOST_DEVICE run_iterator(const RunSet& runs, std::int64_t index) : runs_(runs), index_(index) {}

  [[nodiscard]] MGROUPS_HOST_DEVICE value_type operator*() const {
    const std::int64_t box = runs_.box_of(index_);
    return Property::of(runs_.boxes()[box], index_ - runs_.first_run()[box]);
  }
  [[nodiscard]] MGROUPS_HOST_DEVICE value_type operator[](difference_type n) const { return *(*this + n); }

  MGROUPS_HOST_DEVICE run_iterator& operator+=(difference_type n) {
    index_ += n;
    return *this;
  }
  MGROUPS_HOST_DEVICE run_iterator& operator-=(difference_type n) { return *this += -n; }
  MGROUPS_HOST_DEVICE run_iterator& operator++() { return *this += 1; }
  MGROUPS_HOST_DEVICE run_iterator& operator--() { return *this += -1; }
  MGROUPS_HOST_DEVICE run_iterator operator++(int) {
    run_iterator old = *this;
    ++*this;
    return old;
  }
  MGROUPS_HOST_DEVICE run_iterator operator--(int) {
    run_iterator old = *this;
    --*this;
    return old;
  }

  // Written out, not by <=>, whose result type device code cannot inspect.
  [[nodiscard]] MGROUPS_HOST_DEVICE friend run_iterator operator+(run_iterator a, difference_type n) { return a += n; }
  [[nodiscard]] MGROUPS_HOST_DEVICE friend run_iterator operator+(difference_type n, run_iterator a) { return a += n; }
  [[nodiscard]] MGROUPS_HOST_DEVICE friend run_iterator operator-(run_iterator a, difference_type n) { return a -= n; }
  [[nodiscard]] MGROUPS_HOST_DEVICE friend difference_type operator-(const run_iterator& a, const run_iterator& b) {
    return a.index_ - b.index_;
  }
  [[nodiscard]] MGROUPS_HOST_DEVICE friend bool operator==(const run_iterator& a, const run_iterator& b) {
    return a.index_ == b.index_;
  }
  [[nodiscard]] MGROUPS_HOST_DEVICE friend bool operator<(const run_iterator& a, const run_iterator& b) {
    return a.index_ < b.index_;
  }
  [[nodiscard]] MGROUPS_HOST_DEVICE friend bool operator>(const run_iterator& a, const run_iterator& b) { return b < a; }
  [[nodiscard]] MGROUPS_HOST_DEVICE friend bool operator<=(const run_iterator& a, const run_iterator& b) { return !(b < a); }
  [[nodiscard]] MGROUPS_HOST_DEVICE friend bool operator>=(const run_iterator& a, const run_iterator& b) { return !(a < b); }

 private:
  RunSet runs_;
  std::int64_t index_ = 0;
};

}  // namespace detail

MGROUPS_HOST_DEVICE inline source_iterator RunSet::sources() const { return {*this, 0}; }
MGROUPS_HOST_DEVICE inline destination_iterator RunSet::destinations() const { return {*this, 0}; }
MGROUPS_HOST_DEVICE inline size_iterator RunSet::sizes() const { return {*this, 0}; }

/// Collects box copies into the table that a RunSet looks at. The tensors' memory, not the views, must outlive its use.
class RunTable {
 public:
  /// Lines longer than `max_run_bytes` are cut. Throws InvalidArgument when it is below 1.
  explicit RunTable(std::int64_t max_run_bytes = unlimited_run) : max_run_bytes_(max_run_bytes) {
    if (max_run_bytes < 1)
      throw InvalidArgument(concat("runs of at most ", max_run_bytes, " bytes hold nothing; allow at least 1"));
  }

  /// Adds the copy of `source` to `destination`; throws what make_box_copy does, and leaves the table as it was. Copies into
  /// one table must not overlap each other. All its tensors lie in one memory space.
  void add(const TensorView& source, const TensorView& destination) {
    const BoxCopy box = make_box_copy(source, destination, max_run_bytes_);
    if (source.space != destination.space) {
      throw InvalidArgument("source and destination lie in different memory spaces; move one of them first");
    }
    if (box.run_count == 0) return;
    if (!boxes_.empty() && source.space != space_) {
      throw InvalidArgument(
          "a run table holds copies in host memory or in device memory, not both; make one table for each");
    }
    const auto total = checked_add(first_run_.back(), box.run_count);
    if (!total) throw InvalidArgument("the runs of this table are more than 63 bits can count; make several tables");
    if (first_run_.size() == first_run_.capacity()) first_run_.reserve(2 * first_run_.size());
    boxes_.push_back(box);
    first_run_.push_back(*total);
    bytes_ += box.bytes();
    space_ = source.space;
  }

  /// Makes room for `boxes` copies.
  void reserve(std::size_t boxes) {
    boxes_.reserve(boxes);
    first_run_.reserve(boxes + 1);
  }

  /// Forgets the copies and keeps the memory.
  void clear() {
    boxes_.clear();
    first_run_.assign(1, 0);
    bytes_ = 0;
    space_ = MemorySpace::host;
  }

  /// Valid until the table changes.
  [[nodiscard]] RunSet runs() const { return {boxes_, first_run_, space_}; }
  /// Bytes that all runs together copy.
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  std::vector<BoxCopy> boxes_;
  std::vector<std::int64_t> first_run_{0};
  std::int64_t max_run_bytes_;
  std::int64_t bytes_ = 0;
  MemorySpace space_ = MemorySpace::host;
};

MGROUPS_END_NAMESPACE
