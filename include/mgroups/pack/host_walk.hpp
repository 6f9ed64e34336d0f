// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <mgroups/core/dims.hpp>
#include <mgroups/pack/box_copy.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Calls `visit(source, destination)` at every index of the first `rank` axes of `box`, outermost slowest, stepping
/// addresses rather than dividing.
template <class Visit>
void for_each_index(const BoxCopy& box, int rank, Visit&& visit) {
  const std::byte* source = box.source;
  std::byte* destination = box.destination;
  std::int64_t index[max_rank] = {};
  for (;;) {
    visit(source, destination);
    int axis = rank - 1;
    for (; axis >= 0; --axis) {
      const BoxAxis& a = box.axes[axis];
      if (++index[axis] < a.size) {
        source += a.source_stride;
        destination += a.destination_stride;
        break;
      }
      index[axis] = 0;
      source -= a.source_stride * (a.size - 1);
      destination -= a.destination_stride * (a.size - 1);
    }
    if (axis < 0) return;
  }
}

/// Elements of `Size` bytes along one axis.
template <std::size_t Size>
void copy_elements(const std::byte* source, std::int64_t source_stride, std::byte* destination,
                   std::int64_t destination_stride, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(destination + i * destination_stride, source + i * source_stride, Size);
  }
}

/// Asks for the cache line `distance` bytes on, which need not exist.
inline void prefetch(const std::byte* address, std::int64_t distance) {
#if defined(__GNUC__)
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::intptr_t>(address) + distance));
#else
  static_cast<void>(address), static_cast<void>(distance);
#endif
}

/// The block of a transpose at `source`: `height` elements dense on the source side times `width` dense on the destination
/// side. A whole block goes through a buffer, so that each cache line is read once and written once however the strides
/// alias.
template <std::size_t Size>
void transpose_block(const std::byte* source, std::int64_t source_stride, std::byte* destination,
                     std::int64_t destination_stride, std::int64_t height, std::int64_t width) {
  constexpr std::int64_t size = static_cast<std::int64_t>(Size);
  constexpr std::int64_t edge = 64 / size < 16 ? 16 : 64 / size;
  if (height == edge && width == edge) {
    alignas(64) std::byte block[static_cast<std::size_t>(edge * edge * size)];
    for (std::int64_t c = 0; c < edge; ++c) {
      const std::byte* line = source + c * source_stride;
      prefetch(line, edge * source_stride);
      for (std::int64_t r = 0; r < edge; ++r) std::memcpy(block + (r * edge + c) * size, line + r * size, Size);
    }
    for (std::int64_t r = 0; r < edge; ++r) {
      std::memcpy(destination + r * destination_stride, block + r * edge * size, static_cast<std::size_t>(edge * size));
    }
    return;
  }
  for (std::int64_t r = 0; r < height; ++r) {
    copy_elements<Size>(source + r * size, source_stride, destination + r * destination_stride, size, width);
  }
}

/// A plane whose source is dense along `rows` and whose destination is dense along `columns`: a transpose. Blocks are
/// visited tile by tile: a tile's pages fit into the second-level TLB, without which every block pays a page walk per line.
template <std::size_t Size>
void transpose_plane(const std::byte* source, std::byte* destination, const BoxAxis& rows, const BoxAxis& columns) {
  constexpr std::int64_t size = static_cast<std::int64_t>(Size);
  constexpr std::int64_t edge = 64 / size < 16 ? 16 : 64 / size;
  constexpr std::int64_t tile = 512;
  for (std::int64_t row_tile = 0; row_tile < rows.size; row_tile += tile) {
    const std::int64_t row_end = std::min(row_tile + tile, rows.size);
    for (std::int64_t column_tile = 0; column_tile < columns.size; column_tile += tile) {
      const std::int64_t column_end = std::min(column_tile + tile, columns.size);
      for (std::int64_t row = row_tile; row < row_end; row += edge) {
        for (std::int64_t column = column_tile; column < column_end; column += edge) {
          transpose_block<Size>(source + row * size + column * columns.source_stride, columns.source_stride,
                                destination + row * rows.destination_stride + column * size, rows.destination_stride,
                                std::min(edge, row_end - row), std::min(edge, column_end - column));
        }
      }
    }
  }
}

/// Lines of a constant few bytes. The order of axes is free, so the axis along which the source is densest is moved next to
/// the innermost one, along which the destination is.
template <std::size_t Size>
void copy_short_lines(BoxCopy box) {
  constexpr std::int64_t size = static_cast<std::int64_t>(Size);
  const auto distance = [](std::int64_t stride) { return stride < 0 ? -stride : stride; };
  const int last = box.rank - 1;
  int densest = last;
  for (int axis = 0; axis < last; ++axis) {
    if (distance(box.axes[axis].source_stride) < distance(box.axes[densest].source_stride)) densest = axis;
  }
  const BoxAxis columns = box.axes[last];
  if (densest != last && box.axes[densest].source_stride == size && columns.destination_stride == size) {
    std::swap(box.axes[densest], box.axes[last - 1]);
    const BoxAxis rows = box.axes[last - 1];
    for_each_index(box, last - 1, [&](const std::byte* source, std::byte* destination) {
      transpose_plane<Size>(source, destination, rows, columns);
    });
    return;
  }
  for_each_index(box, last, [&](const std::byte* source, std::byte* destination) {
    if (columns.destination_stride == size) {
      copy_elements<Size>(source, columns.source_stride, destination, size, columns.size);
    } else if (columns.source_stride == size) {
      copy_elements<Size>(source, size, destination, columns.destination_stride, columns.size);
    } else {
      copy_elements<Size>(source, columns.source_stride, destination, columns.destination_stride, columns.size);
    }
  });
}

/// Copies a box in host memory, line by line; how lines are cut into runs does not matter here.
inline void copy_on_host(const BoxCopy& box) {
  if (box.run_count == 0) return;
  if (box.rank == 0) {
    std::memcpy(box.destination, box.source, static_cast<std::size_t>(box.line_bytes));
    return;
  }
  switch (box.line_bytes) {
    case 1: return copy_short_lines<1>(box);
    case 2: return copy_short_lines<2>(box);
    case 4: return copy_short_lines<4>(box);
    case 8: return copy_short_lines<8>(box);
    case 16: return copy_short_lines<16>(box);
    default: break;
  }
  const BoxAxis inner = box.axes[box.rank - 1];
  const auto line_bytes = static_cast<std::size_t>(box.line_bytes);
  for_each_index(box, box.rank - 1, [&](const std::byte* source, std::byte* destination) {
    for (std::int64_t i = 0; i < inner.size; ++i) {
      std::memcpy(destination + i * inner.destination_stride, source + i * inner.source_stride, line_bytes);
    }
  });
}

/// Copies that part of a box which begins in bytes [begin, end) of it, counted along its longest axis, or along its line
/// where it has no axis: parts of a partition of [0, bytes) together copy everything once.
inline void copy_part_on_host(BoxCopy box, std::int64_t begin, std::int64_t end) {
  if (begin <= 0 && end >= box.bytes()) return copy_on_host(box);
  const auto up = [](std::int64_t value, std::int64_t unit) { return value <= 0 ? 0 : (value - 1) / unit + 1; };
  if (box.rank == 0) {
    constexpr std::int64_t page = 4096;
    begin = std::min(up(begin, page) * page, box.line_bytes);
    end = std::min(up(end, page) * page, box.line_bytes);
    if (begin < end) std::memcpy(box.destination + begin, box.source + begin, static_cast<std::size_t>(end - begin));
    return;
  }
  const auto longest =
      std::max_element(box.axes, box.axes + box.rank, [](const BoxAxis& a, const BoxAxis& b) { return a.size < b.size; });
  const std::int64_t slice_bytes = box.bytes() / longest->size;
  begin = std::min(up(begin, slice_bytes), longest->size);
  end = std::min(up(end, slice_bytes), longest->size);
  if (begin >= end) return;
  box.source += begin * longest->source_stride;
  box.destination += begin * longest->destination_stride;
  box.run_count = box.run_count / longest->size * (end - begin);
  longest->size = end - begin;
  copy_on_host(box);
}

}  // namespace detail

MGROUPS_END_NAMESPACE
