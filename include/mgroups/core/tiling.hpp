// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <mgroups/core/box.hpp>
#include <mgroups/core/box_list.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Why boxes do not tile a shape.
struct TilingFault {
  bool overlap = false;  ///< true: boxes `first` and `second` share `where`; false: nobody covers `where`
  std::size_t first = 0;
  std::size_t second = 0;
  Box where;
};

namespace detail {

/// Looks for two overlapping boxes among `indices`, which it reorders.
///
/// Along an axis, the boxes fall into clusters of touching intervals, and boxes of different clusters cannot overlap; so
/// an axis with more than one cluster divides the problem. Grids, uneven splits and everything else that straight cuts
/// make is solved that way in O(n log n) per axis. What no axis divides is swept along the first axis, each box against
/// those open at its beginning.
class OverlapSearch {
 public:
  explicit OverlapSearch(const BoxList& boxes) : boxes_(boxes) {}

  std::optional<std::pair<std::size_t, std::size_t>> run(std::span<std::uint32_t> indices, int first_axis = 0) {
    const int rank = boxes_.rank();
    int tried = 0;
    while (indices.size() >= 2) {
      if (tried == rank) return sweep(indices);
      const int axis = (first_axis + tried++) % rank;
      sort_along(indices, axis);
      if (cluster_end(indices, axis) == indices.size()) continue;
      // Only clusters of at most half the boxes are recursed into, which bounds the depth; a larger one goes round this
      // loop.
      std::span<std::uint32_t> larger, rest = indices;
      while (!rest.empty()) {
        const auto cluster = rest.first(cluster_end(rest, axis));
        rest = rest.subspan(cluster.size());
        if (cluster.size() * 2 > indices.size()) {
          larger = cluster;
        } else if (auto found = run(cluster, (axis + 1) % rank)) {
          return found;
        }
      }
      indices = larger;
      first_axis = (axis + 1) % rank;
      tried = 0;
    }
    return std::nullopt;
  }

 private:
  void sort_along(std::span<std::uint32_t> indices, int axis) {
    const auto before = [&](std::uint32_t a, std::uint32_t b) { return boxes_.offset(a, axis) < boxes_.offset(b, axis); };
    if (!std::is_sorted(indices.begin(), indices.end(), before)) std::sort(indices.begin(), indices.end(), before);
  }

  [[nodiscard]] std::size_t cluster_end(std::span<const std::uint32_t> sorted, int axis) const {
    std::int64_t end = boxes_.end(sorted[0], axis);
    std::size_t i = 1;
    while (i < sorted.size() && boxes_.offset(sorted[i], axis) < end) end = std::max(end, boxes_.end(sorted[i++], axis));
    return i;
  }

  std::optional<std::pair<std::size_t, std::size_t>> sweep(std::span<std::uint32_t> indices) {
    if (boxes_.rank() == 0) return std::pair<std::size_t, std::size_t>(indices[0], indices[1]);
    sort_along(indices, 0);
    std::vector<std::uint32_t> open;
    for (const std::uint32_t i : indices) {
      std::erase_if(open, [&](std::uint32_t j) { return boxes_.end(j, 0) <= boxes_.offset(i, 0); });
      for (const std::uint32_t j : open) {
        if (boxes_.overlap(i, j)) return std::pair<std::size_t, std::size_t>(std::min(i, j), std::max(i, j));
      }
      open.push_back(i);
    }
    return std::nullopt;
  }

  const BoxList& boxes_;
};

/// A box that no box of the list covers. Only for messages: stops refining after some thousand pieces.
inline Box find_hole(const BoxList& boxes, const Dims& shape) {
  std::vector<Box> left{whole(shape)};
  for (std::size_t i = 0; i < boxes.size() && left.size() < 4096; ++i) {
    const Box box = boxes.box(i);
    std::vector<Box> next;
    for (const Box& piece : left) {
      const auto common = intersection(piece, box);
      if (!common) {
        next.push_back(piece);
        continue;
      }
      Box rest = piece;
      for (int axis = 0; axis < rest.rank(); ++axis) {
        const std::int64_t begin = rest.offsets[axis], end = begin + rest.sizes[axis];
        const std::int64_t cut_begin = common->offsets[axis], cut_end = cut_begin + common->sizes[axis];
        Box side = rest;
        if (begin < cut_begin) {
          side.sizes[axis] = cut_begin - begin;
          next.push_back(side);
        }
        if (cut_end < end) {
          side.offsets[axis] = cut_end;
          side.sizes[axis] = end - cut_end;
          next.push_back(side);
        }
        rest.offsets[axis] = cut_begin;
        rest.sizes[axis] = cut_end - cut_begin;
      }
    }
    left = std::move(next);
  }
  return left.empty() ? whole(shape) : *std::min_element(left.begin(), left.end());
}

}  // namespace detail

/// Why the boxes do not cover a tensor of `shape` exactly once, or nothing when they do. Boxes without elements cover
/// nothing and are ignored. Every box must lie within the shape (`box_fault`). O(n log n) per axis for all that straight
/// cuts make. Local.
[[nodiscard]] inline std::optional<TilingFault> find_tiling_fault(const BoxList& boxes, const Dims& shape) {
  std::vector<std::uint32_t> indices;
  indices.reserve(boxes.size());
  std::int64_t covered = 0, total = numel(shape);
  bool too_much = false;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const std::int64_t volume = boxes.volume(i);
    if (volume == 0) continue;
    indices.push_back(static_cast<std::uint32_t>(i));
    too_much = too_much || volume > total - covered;
    if (!too_much) covered += volume;
  }
  if (const auto pair = detail::OverlapSearch(boxes).run(indices)) {
    const auto common = intersection(boxes.box(pair->first), boxes.box(pair->second));
    return TilingFault{true, pair->first, pair->second, common.value_or(boxes.box(pair->first))};
  }
  if (covered == total) return std::nullopt;
  return TilingFault{false, 0, 0, detail::find_hole(boxes, shape)};
}

MGROUPS_END_NAMESPACE
