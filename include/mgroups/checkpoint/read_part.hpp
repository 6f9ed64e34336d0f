// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <mgroups/checkpoint/read_cost.hpp>
#include <mgroups/core/crc32.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/io/file.hpp>
#include <mgroups/pack/convert.hpp>
#include <mgroups/pack/pack.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Copies, or converts where the dtypes differ, a tensor in memory into another of the same shape.
inline void place(const TensorView& source, const TensorView& target) {
  if (source.dtype == target.dtype) {
    copy_box(source, target);
  } else {
    convert_box(source, target);
  }
}

/// CRC-32 of bytes that are read from front to back. Reads in another order, or with gaps, leave it without a value.
class RunningCrc {
 public:
  explicit RunningCrc(std::uint64_t begin) : next_(begin) {}
  void add(std::uint64_t offset, std::span<const std::byte> bytes) {
    in_order_ = in_order_ && offset == next_;
    if (!in_order_) return;
    value_ = crc32(bytes, value_);
    next_ += bytes.size();
  }
  /// The CRC-32, if everything up to `end` has been seen.
  [[nodiscard]] std::optional<std::uint32_t> value_at(std::uint64_t end) const {
    return in_order_ && next_ == end ? std::optional(value_) : std::nullopt;
  }

 private:
  std::uint64_t next_;
  std::uint32_t value_ = 0;
  bool in_order_ = true;
};

/// Reads strided tensors out of a file into strided tensors in memory, with one bounded buffer.
///
/// What is contiguous on both sides is read straight into its place. For the rest, neighbouring rows are read together,
/// gaps between them included, as long as the gaps are cheaper to read than another call.
class PartReader {
 public:
  explicit PartReader(std::size_t buffer_bytes) : capacity_(buffer_bytes), buffer_(new std::byte[buffer_bytes]) {}

  /// `stored` gives dtype, shape and strides (none negative) as they lie in the file; its first element is at byte
  /// `offset`. `target` has the same shape. The caller has made sure that all of it lies within the file. `crc`, if given,
  /// sees every byte that is read. Local, blocking.
  void read(File& file, std::uint64_t offset, const TensorView& stored, const TensorView& target,
            RunningCrc* crc = nullptr) {
    if (stored.numel() == 0) return;
    crc_ = crc;
    Level level{.offset = offset, .stored = stored, .target = target};
    sort_axes(level);
    read_level(file, level, 0);
  }

  [[nodiscard]] std::span<std::byte> buffer() noexcept { return {buffer_.get(), capacity_}; }

 private:
  struct Level {
    std::uint64_t offset;
    TensorView stored, target;
  };

  void read_bytes(File& file, std::uint64_t offset, std::span<std::byte> out) {
    if (crc_ == nullptr) return file.read_at(offset, out);
    // Slices small enough to be still in the cache when their checksum is computed.
    constexpr std::size_t slice = std::size_t{512} << 10;
    while (!out.empty()) {
      const auto part = out.first(std::min(slice, out.size()));
      file.read_at(offset, part);
      crc_->add(offset, part);
      offset += part.size();
      out = out.subspan(part.size());
    }
  }

  /// Largest stored stride first, so that walking the axes in order walks the file forwards whatever the tensor's layout is.
  static void sort_axes(Level& level) {
    std::array<int, max_rank> order{};
    int n = 0;
    for (int axis = 0; axis < level.stored.shape.rank(); ++axis) {
      if (level.stored.shape[axis] != 1) order[static_cast<std::size_t>(n++)] = axis;
    }
    std::stable_sort(order.begin(), order.begin() + n,
                     [&](int a, int b) { return level.stored.strides[a] > level.stored.strides[b]; });
    const auto permuted = [&](const Dims& dims) {
      Dims out;
      for (int i = 0; i < n; ++i) out.push_back(dims[order[static_cast<std::size_t>(i)]]);
      return out;
    };
    const Dims target_strides = level.target.strides;
    level.target.strides = permuted(target_strides);
    level.stored.strides = permuted(level.stored.strides);
    level.target.shape = level.stored.shape = permuted(level.stored.shape);
  }

  /// Bytes from the first element of the axes from `axis` on to behind the last one.
  static std::int64_t span_of(const TensorView& stored, int axis) {
    std::int64_t last = 0;
    for (; axis < stored.shape.rank(); ++axis) last += (stored.shape[axis] - 1) * stored.strides[axis];
    return (last + 1) * static_cast<std::int64_t>(size_of(stored.dtype));
  }

  /// Axes before `axis` have size one by now.
  void read_level(File& file, const Level& level, int axis) {
    const TensorView& stored = level.stored;
    const std::int64_t span = span_of(stored, axis);
    if (stored.dtype == level.target.dtype && stored.contiguous() && level.target.contiguous()) {
      read_bytes(file, level.offset, {static_cast<std::byte*>(level.target.data), static_cast<std::size_t>(span)});
      return;
    }
    const auto item = static_cast<std::int64_t>(size_of(stored.dtype));
    const std::int64_t size = axis < stored.shape.rank() ? stored.shape[axis] : 1;
    const std::int64_t stride = axis < stored.shape.rank() ? stored.strides[axis] * item : 0;
    const std::int64_t row = axis < stored.shape.rank() ? span_of(stored, axis + 1) : item;
    const bool seek = size > 1 && stride - row > cheap_gap;
    if (!seek && static_cast<std::uint64_t>(span) <= capacity_) {
      const std::span<std::byte> bytes = buffer().first(static_cast<std::size_t>(span));
      read_bytes(file, level.offset, bytes);
      TensorView source = stored;
      source.data = bytes.data();
      place(source, level.target);
      return;
    }
    const std::int64_t fitting = stride > 0 && row <= static_cast<std::int64_t>(capacity_)
                                     ? (static_cast<std::int64_t>(capacity_) - row) / stride + 1
                                     : 1;
    const std::int64_t rows = seek ? 1 : std::clamp<std::int64_t>(fitting, 1, size);
    for (std::int64_t begin = 0; begin < size; begin += rows) {
      Level part = level;
      part.offset += static_cast<std::uint64_t>(begin * stride);
      part.stored.shape[axis] = std::min(rows, size - begin);
      part.target.shape[axis] = part.stored.shape[axis];
      part.target.data = static_cast<std::byte*>(level.target.data) +
                         begin * level.target.strides[axis] * static_cast<std::int64_t>(size_of(level.target.dtype));
      read_level(file, part, part.stored.shape[axis] == 1 ? axis + 1 : axis);
    }
  }

  std::size_t capacity_;
  std::unique_ptr<std::byte[]> buffer_;
  RunningCrc* crc_ = nullptr;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
