// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/core/box.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/shard/sharded_tensor.hpp>
#include <mgroups/shard/state_dict.hpp>

/// How the tensors lie on the ranks: split along an axis, copied to every rank, or dealt out whole.
enum class Cut { axis0, axis1, copies, dealt };

inline Cut cut_from(std::string_view name) {
  if (name == "axis0") return Cut::axis0;
  if (name == "axis1") return Cut::axis1;
  if (name == "copies") return Cut::copies;
  if (name == "dealt") return Cut::dealt;
  throw mgroups::InvalidArgument(mgroups::concat("'", name, "' is no cut; take axis0, axis1, copies or dealt"));
}

/// The state that is measured: `tensors` matrices of float32.
struct StateSizes {
  Cut cut = Cut::axis0;
  int ranks = 1;
  std::int64_t tensors = 1;
  std::int64_t bytes_each = 0;
  std::int64_t row_bytes = 64;
};

/// The bits of an element, by its tensor's number and its place in the global tensor; peers.py has the same. No two places
/// of a tensor have the same bits, so that a byte that is not where it belongs shows.
inline std::uint32_t element_bits(std::int64_t tensor, std::int64_t place) {
  std::uint32_t bits = static_cast<std::uint32_t>(place) + static_cast<std::uint32_t>(tensor) * 0x9E3779B1u;
  bits *= 0x85EBCA6Bu;
  return bits ^ (bits >> 13);
}

/// One rank's part of that state.
class NumberedState {
 public:
  mgroups::ShardedStateDict<mgroups::TensorView> dict;

  NumberedState(const StateSizes& sizes, int rank) : columns_(sizes.row_bytes / 4) {
    const bool split0 = sizes.cut == Cut::axis0, split1 = sizes.cut == Cut::axis1, dealt = sizes.cut == Cut::dealt;
    const std::int64_t rows = sizes.bytes_each / sizes.row_bytes / (split0 ? sizes.ranks : 1);
    const std::int64_t columns = columns_ / (split1 ? sizes.ranks : 1);
    const std::int64_t held = dealt ? mgroups::split_range(sizes.tensors, sizes.ranks, rank).size() : sizes.tensors;
    memory_.resize(static_cast<std::size_t>(held * rows * columns));
    std::uint32_t* at = memory_.data();
    for (std::int64_t i = 0; i < held; ++i, at += rows * columns) {
      const std::int64_t tensor = dealt ? i * sizes.ranks + rank : i;
      const mgroups::TensorView view{at, mgroups::DType::float32, {rows, columns}, {columns, 1}};
      const std::string key = mgroups::concat("layer.", tensor, ".weight");
      if (split0 || split1) {
        dict.add(mgroups::make_sharded_grid(key, view, {{split0 ? 0 : 1, rank, sizes.ranks}}));
      } else {
        dict.add(mgroups::make_whole(key, view, {.replica_id = dealt ? 0 : rank}));
      }
      parts_.push_back({at, tensor, split0 ? rank * rows : 0, split1 ? rank * columns : 0, rows, columns});
    }
  }

  /// Bytes of the elements that this rank holds.
  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(memory_.size()) * 4; }

  /// Gives every element its value.
  void fill() {
    for_each([](std::uint32_t& element, std::int64_t tensor, std::int64_t place) {
      element = element_bits(tensor, place);
      return true;
    });
  }

  /// Forgets all values.
  void clear() { std::fill(memory_.begin(), memory_.end(), 0u); }

  /// Throws where an element has another value than `fill` gives it.
  void check() {
    for_each([](const std::uint32_t& element, std::int64_t tensor, std::int64_t place) {
      if (element == element_bits(tensor, place)) return true;
      throw mgroups::CheckpointError(mgroups::concat("element ", place, " of tensor 'layer.", tensor,
                                                     ".weight' was loaded with bits ", element, "; it must have ",
                                                     element_bits(tensor, place)));
    });
  }

 private:
  struct Part {
    std::uint32_t* data;
    std::int64_t tensor, first_row, first_column, rows, columns;
  };

  template <class Visit>
  void for_each(Visit&& visit) {
    for (const Part& part : parts_) {
      std::uint32_t* at = part.data;
      for (std::int64_t row = part.first_row; row < part.first_row + part.rows; ++row) {
        for (std::int64_t i = 0; i < part.columns; ++i) visit(*at++, part.tensor, row * columns_ + part.first_column + i);
      }
    }
  }

  std::int64_t columns_;
  std::vector<std::uint32_t> memory_;
  std::vector<Part> parts_;
};
