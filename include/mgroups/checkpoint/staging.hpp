// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <mgroups/core/align_up.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/pack/pack.hpp>
#include <mgroups/shard/sharded_object.hpp>
#include <mgroups/shard/state_dict.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// A copy of a rank's state, in memory that is kept from save to save. `prepare` lays it out; then any number of threads
/// `copy` at once, until nothing is left.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Lays out a copy of `source`, which must live until all has been copied; copies objects at once. Takes memory where the
  /// state has grown.
  void prepare(const LocalState& source) {
    source_ = &source;
    layouts_.clear();
    objects_.clear();
    pieces_.clear();
    slices_.clear();
    state_ = {};
    state_.layout_id = source.layout_id;
    std::size_t bytes = 0;
    for (const LocalShard& shard : source.tensors) bytes = align_up(bytes, alignment) + shard.data.nbytes();
    if (bytes > capacity_) {
      memory_.reset();
      memory_.reset(new std::byte[bytes + alignment]);
      capacity_ = bytes;
    }
    std::byte* const begin = aligned_begin();
    std::size_t at = 0;
    for (std::size_t i = 0; i < source.tensors.size(); ++i) {
      const LocalShard& shard = source.tensors[i];
      at = align_up(at, alignment);
      layouts_.push_back(*shard.layout);
      TensorView copy = shard.data;
      copy.data = begin + at;
      copy.strides = row_major_strides(copy.shape);
      state_.tensors.push_back({&layouts_.back(), copy});
      add_slices(i, shard.data);
      at += shard.data.nbytes();
    }
    for (const ShardedObject* piece : source.objects) {
      objects_.push_back(*piece->data);
      pieces_.push_back(*piece);
      pieces_.back().data = &objects_.back();
      state_.objects.push_back(&pieces_.back());
    }
    if (source.common != nullptr) {
      common_ = *source.common;
      state_.common = &common_;
    }
    next_ = 0;
  }

  /// Copies slice after slice until none is left. By several threads at once; what goes wrong is thrown by `check`.
  void copy() noexcept {
    try {
      for (std::size_t i = next_++; i < slices_.size(); i = next_++) copy_slice(slices_[i]);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
  }
  /// Throws what went wrong in any thread, when every one has returned from `copy`.
  void check() {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  /// The copy, when every thread has returned from `copy`. Valid until the next `prepare`.
  [[nodiscard]] const LocalState& state() const noexcept { return state_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    std::uint64_t total = 0;
    for (const LocalShard& shard : state_.tensors) total += shard.data.nbytes();
    return total;
  }

 private:
  static constexpr std::size_t alignment = 64, slice_bytes = std::size_t{4} << 20, whole = 0;
  struct Slice {
    std::size_t tensor;
    std::size_t begin;
    std::size_t bytes;  // `whole`: the tensor is strided and copied at once
  };

  void copy_slice(const Slice& slice) const {
    const TensorView& from = source_->tensors[slice.tensor].data;
    const TensorView& to = state_.tensors[slice.tensor].data;
    if (slice.bytes == whole) return copy_box(from, to);
    std::memcpy(static_cast<std::byte*>(to.data) + slice.begin, static_cast<const std::byte*>(from.data) + slice.begin,
                slice.bytes);
  }
  [[nodiscard]] std::byte* aligned_begin() const noexcept {
    void* begin = memory_.get();
    std::size_t space = capacity_ + alignment;
    return memory_ ? static_cast<std::byte*>(std::align(alignment, capacity_, begin, space)) : nullptr;
  }
  void add_slices(std::size_t tensor, const TensorView& view) {
    const std::size_t bytes = view.nbytes();
    if (bytes == 0) return;
    if (!view.contiguous()) {
      slices_.push_back({tensor, 0, whole});
      return;
    }
    for (std::size_t begin = 0; begin < bytes; begin += slice_bytes) {
      slices_.push_back({tensor, begin, std::min(slice_bytes, bytes - begin)});
    }
  }

  const LocalState* source_ = nullptr;
  LocalState state_;
  std::deque<ShardLayout> layouts_;
  std::deque<Object> objects_;
  std::deque<ShardedObject> pieces_;
  Object common_;
  std::vector<Slice> slices_;
  std::atomic<std::size_t> next_{0};
  std::mutex mutex_;
  std::exception_ptr error_;
  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
