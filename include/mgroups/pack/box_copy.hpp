// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/half.hpp>
#include <mgroups/core/memory.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// One axis of a box copy: its size and how far apart neighbours are on both sides, in bytes.
struct BoxAxis {
  std::int64_t size = 0;
  std::int64_t source_stride = 0;
  std::int64_t destination_stride = 0;
};

namespace detail {

/// a / b for a >= 0, b > 0. A 64-bit division costs a GPU a long subroutine and most indices fit into 32 bits.
MGROUPS_HOST_DEVICE inline std::int64_t divide_index(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<std::int64_t>(static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b));
  return a / b;
}

}  // namespace detail

/// One strided box that is copied from one tensor to another. A *line* is what is contiguous on both sides, the axes step
/// from line to line (outermost first), and a line is cut into *runs* of `run_bytes`, the last of which may be shorter.
/// Trivially copyable, readable by device code. Made by `make_box_copy`, which guarantees: sizes of axes are at least 2,
/// neighbouring axes cannot be joined, and no byte of the destination is written twice.
struct BoxCopy {
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  std::int64_t line_bytes = 0;
  std::int64_t run_bytes = 0;
  std::int64_t runs_per_line = 0;
  std::int64_t run_count = 0;  ///< of the whole box; 0 when it holds no element
  std::int32_t rank = 0;       ///< axes in use
  BoxAxis axes[max_rank];

  /// Bytes of the whole box.
  [[nodiscard]] MGROUPS_HOST_DEVICE std::int64_t bytes() const {
    return runs_per_line == 0 ? 0 : run_count / runs_per_line * line_bytes;
  }

  /// Where run `run` begins on the source side, for 0 <= run < run_count. One division per axis but the outermost.
  [[nodiscard]] MGROUPS_HOST_DEVICE const std::byte* source_of(std::int64_t run) const {
    std::int64_t offset = within_line(run);
    for (int axis = rank - 1; axis > 0; --axis) {
      const std::int64_t outer = detail::divide_index(run, axes[axis].size);
      offset += (run - outer * axes[axis].size) * axes[axis].source_stride;
      run = outer;
    }
    if (rank > 0) offset += run * axes[0].source_stride;
    return source + offset;
  }

  /// Where run `run` begins on the destination side.
  [[nodiscard]] MGROUPS_HOST_DEVICE std::byte* destination_of(std::int64_t run) const {
    std::int64_t offset = within_line(run);
    for (int axis = rank - 1; axis > 0; --axis) {
      const std::int64_t outer = detail::divide_index(run, axes[axis].size);
      offset += (run - outer * axes[axis].size) * axes[axis].destination_stride;
      run = outer;
    }
    if (rank > 0) offset += run * axes[0].destination_stride;
    return destination + offset;
  }

  /// Bytes of run `run`.
  [[nodiscard]] MGROUPS_HOST_DEVICE std::int64_t bytes_of(std::int64_t run) const {
    const std::int64_t rest = line_bytes - within_line(run);
    return rest < run_bytes ? rest : run_bytes;
  }

 private:
  /// Offset of `run` in its line; leaves the line's number in `run`.
  MGROUPS_HOST_DEVICE std::int64_t within_line(std::int64_t& run) const {
    if (runs_per_line == 1) return 0;
    const std::int64_t line = detail::divide_index(run, runs_per_line);
    const std::int64_t offset = (run - line * runs_per_line) * run_bytes;
    run = line;
    return offset;
  }
};

namespace detail {

/// Number of elements of a view that can be copied. Throws InvalidArgument when its fields contradict each other.
inline std::int64_t check_copyable(const TensorView& view, std::string_view role) {
  if (view.strides.rank() != view.shape.rank()) {
    throw InvalidArgument(concat("the ", role, " has shape ", to_string(view.shape), " but strides ",
                                 to_string(view.strides), "; give one stride per axis"));
  }
  for (const std::int64_t size : view.shape) {
    if (size < 0)
      throw InvalidArgument(concat("the ", role, " has the negative size ", size, " in shape ", to_string(view.shape)));
  }
  const auto elements = checked_numel(view.shape);
  const auto element_size = static_cast<std::int64_t>(size_of(view.dtype));
  if (elements == 0) return 0;
  auto reach = elements ? checked_mul(*elements, element_size) : std::nullopt;
  for (int axis = 0; reach && axis < view.shape.rank(); ++axis) {
    const std::int64_t stride = view.strides[axis];
    if (view.shape[axis] == 1) continue;
    const auto distance = stride == std::numeric_limits<std::int64_t>::min()
                              ? std::nullopt
                              : checked_mul(stride < 0 ? -stride : stride, element_size);
    const auto span = distance ? checked_mul(*distance, view.shape[axis]) : std::nullopt;
    reach = span ? checked_add(*reach, *span) : std::nullopt;
  }
  if (!reach) {
    throw InvalidArgument(concat("the ", role, " of ", name(view.dtype), " with shape ", to_string(view.shape),
                                 " and strides ", to_string(view.strides), " does not fit into 63-bit addresses"));
  }
  if (view.data == nullptr) {
    throw InvalidArgument(concat("the ", role, " with shape ", to_string(view.shape), " has no address"));
  }
  return *elements;
}

/// Refuses a destination whose elements may share bytes. `axes` are ordered by falling destination stride. An axis must step
/// over all that the axes inside it reach, which holds for every slice and permutation of a dense tensor.
inline void check_written_once(const BoxCopy& box, const TensorView& destination) {
  auto reach = static_cast<std::int64_t>(size_of(destination.dtype));
  for (int axis = box.rank - 1; axis >= 0; --axis) {
    const BoxAxis& a = box.axes[axis];
    if (a.destination_stride < reach) {
      throw InvalidArgument(concat("the destination with shape ", to_string(destination.shape), " and strides ",
                                   to_string(destination.strides),
                                   a.destination_stride < 0 ? " runs backwards" : " overlaps itself",
                                   "; copy into a tensor whose elements have their own bytes and rising addresses"));
    }
    reach += a.destination_stride * (a.size - 1);
  }
}

/// The axes of a copy of every element, checked: size-one axes dropped, ordered for rising destination addresses, neighbours
/// joined where both sides allow. Lines and runs are left to the caller. `run_count` is the number of elements.
[[nodiscard]] inline BoxCopy strided_pair(const TensorView& source, const TensorView& destination) {
  if (source.shape != destination.shape) {
    throw InvalidArgument(concat("a source of shape ", to_string(source.shape),
                                 " cannot be copied to a destination of shape ", to_string(destination.shape),
                                 "; take the part() that both have in common"));
  }
  BoxCopy box;
  box.run_count = check_copyable(source, "source");
  check_copyable(destination, "destination");
  if (box.run_count == 0) return box;
  box.source = static_cast<const std::byte*>(source.data);
  box.destination = static_cast<std::byte*>(destination.data);

  const auto source_size = static_cast<std::int64_t>(size_of(source.dtype));
  const auto destination_size = static_cast<std::int64_t>(size_of(destination.dtype));
  for (int axis = 0; axis < source.shape.rank(); ++axis) {
    if (source.shape[axis] == 1) continue;
    box.axes[box.rank++] = {source.shape[axis], source.strides[axis] * source_size,
                            destination.strides[axis] * destination_size};
  }
  for (int axis = 1; axis < box.rank; ++axis) {
    for (int at = axis; at > 0 && box.axes[at - 1].destination_stride < box.axes[at].destination_stride; --at) {
      std::swap(box.axes[at - 1], box.axes[at]);
    }
  }
  check_written_once(box, destination);

  int joined = 0;
  for (int axis = 1; axis < box.rank; ++axis) {
    BoxAxis& outer = box.axes[joined];
    const BoxAxis inner = box.axes[axis];
    if (outer.source_stride == inner.source_stride * inner.size &&
        outer.destination_stride == inner.destination_stride * inner.size) {
      outer = {outer.size * inner.size, inner.source_stride, inner.destination_stride};
    } else {
      box.axes[++joined] = inner;
    }
  }
  if (box.rank > 0) box.rank = joined + 1;
  return box;
}

/// Cuts the lines of `box`, so far one run each, into runs of at most `max_run_bytes`.
inline void cut_lines(BoxCopy& box, std::int64_t max_run_bytes) {
  const std::int64_t lines = box.run_count;
  box.run_bytes = box.line_bytes < max_run_bytes ? box.line_bytes : max_run_bytes;
  box.runs_per_line = (box.line_bytes - 1) / box.run_bytes + 1;
  box.run_count = lines * box.runs_per_line;
}

}  // namespace detail

/// No limit on the length of a run.
inline constexpr std::int64_t unlimited_run = std::numeric_limits<std::int64_t>::max();

/// Describes the copy of every element of `source` to the same index of `destination`: equal dtype and shape, any strides on
/// the source side (zero and negative ones too), positive ones that reach no byte twice on the destination side. The two
/// must not share bytes. Only addresses are computed: both may lie in device memory. No element: no run. A long line can be
/// cut into runs of `max_run_bytes` (a multiple of 16 keeps the runs aligned), so that no worker is handed all of it. Local,
/// does not allocate. Throws InvalidArgument.
[[nodiscard]] inline BoxCopy make_box_copy(const TensorView& source, const TensorView& destination,
                                           std::int64_t max_run_bytes = unlimited_run) {
  if (source.dtype != destination.dtype) {
    throw InvalidArgument(concat("a source of ", name(source.dtype), " cannot be copied to a destination of ",
                                 name(destination.dtype), " byte by byte; convert_box() converts"));
  }
  if (max_run_bytes < 1)
    throw InvalidArgument(concat("runs of at most ", max_run_bytes, " bytes hold nothing; allow at least 1"));
  BoxCopy box = detail::strided_pair(source, destination);
  if (box.run_count == 0) return box;

  box.line_bytes = static_cast<std::int64_t>(size_of(source.dtype));
  if (box.rank > 0) {
    const BoxAxis& inner = box.axes[box.rank - 1];
    if (inner.source_stride == box.line_bytes && inner.destination_stride == box.line_bytes) {
      box.line_bytes *= inner.size;
      box.run_count /= inner.size;
      --box.rank;
    }
  }
  if (box.rank == 0) {
    const auto from = reinterpret_cast<std::uintptr_t>(box.source), to = reinterpret_cast<std::uintptr_t>(box.destination);
    const auto length = static_cast<std::uintptr_t>(box.line_bytes);
    if (source.space == destination.space && (from < to ? to - from : from - to) < length) {
      throw InvalidArgument(concat("source and destination share bytes of the ", box.line_bytes,
                                   " to be copied; copy through a buffer of your own"));
    }
  }
  detail::cut_lines(box, max_run_bytes);
  return box;
}

MGROUPS_END_NAMESPACE
