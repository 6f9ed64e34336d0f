// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <mgroups/shard/layout_id.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Remembers which shards this rank wrote in its last save, for saves of the same layout over and over: give the same one to
/// each of them (`SaveOptions::plan_cache`), on every rank or on none. What is compared is the hash that a state dict makes
/// of its layout while shards are added, so that an unchanged layout costs one reduction of a number. Where any rank's
/// layout, rank or world size differs, the save is planned anew.
class PlanCache {
 public:
  [[nodiscard]] bool is_for(const LayoutId& layout, int rank, int ranks) const noexcept {
    return layout == layout_ && rank == rank_ && ranks == ranks_;
  }
  void set(const LayoutId& layout, int rank, int ranks, std::vector<std::uint32_t> writes) noexcept {
    layout_ = layout;
    rank_ = rank;
    ranks_ = ranks;
    writes_ = std::move(writes);
  }
  /// Numbers of the tensors and, after them, objects that this rank writes.
  [[nodiscard]] const std::vector<std::uint32_t>& writes() const noexcept { return writes_; }

 private:
  LayoutId layout_;
  int rank_ = -1;
  int ranks_ = 0;
  std::vector<std::uint32_t> writes_;
};

MGROUPS_END_NAMESPACE
