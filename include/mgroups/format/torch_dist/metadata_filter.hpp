// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/core/box.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Which tensors of a checkpoint somebody is going to read, and which parts of them. What is not wanted need not be kept.
class MetadataFilter {
 public:
  /// The parts of one tensor.
  class Wanted {
   public:
    /// Whether a chunk that begins at `offsets` has an element in some part.
    [[nodiscard]] bool overlaps(std::span<const std::int64_t> offsets, std::span<const std::int64_t> sizes) const noexcept {
      return whole_ || std::any_of(parts_.begin(), parts_.end(), [&](const Box& part) {
               if (part.offsets.size() != offsets.size()) return true;
               for (int axis = 0; axis < part.offsets.rank(); ++axis) {
                 const auto i = static_cast<std::size_t>(axis);
                 const std::int64_t begin = std::max(offsets[i], part.offsets[axis]);
                 if (sizes[i] <= begin - offsets[i] || part.sizes[axis] <= begin - part.offsets[axis]) return false;
               }
               return true;
             });
    }
    /// Whether only some chunks may be wanted.
    [[nodiscard]] bool partial() const noexcept { return !whole_; }

   private:
    friend class MetadataFilter;
    bool whole_ = false;
    std::vector<Box> parts_;
  };

  /// Wants all of a tensor.
  void want(std::string_view key) { entry(key).whole_ = true; }
  /// Wants a part of a tensor, in the stored tensor's indices. A part of another number of axes than the tensor has wants
  /// all of it. From the ninth part of one tensor on, a box around some of them stands for them: more may be kept than is
  /// needed.
  void want(std::string_view key, const Box& part) {
    Wanted& wanted = entry(key);
    if (wanted.whole_) return;
    for (const Box& known : wanted.parts_) {
      if (known.offsets.rank() != part.offsets.rank()) {
        wanted.whole_ = true;
        return;
      }
    }
    // An empty part has a number of axes, too.
    if (wanted.parts_.size() < most_parts) {
      if (std::find(wanted.parts_.begin(), wanted.parts_.end(), part) == wanted.parts_.end()) wanted.parts_.push_back(part);
    } else if (!part.empty()) {
      wanted.parts_.back() = bounding_box(wanted.parts_.back(), part);
    }
  }

  /// Nothing where the tensor is not wanted at all.
  [[nodiscard]] const Wanted* find(std::string_view key) const {
    const auto found = wanted_.find(key);
    return found != wanted_.end() ? &found->second : nullptr;
  }

 private:
  static constexpr std::size_t most_parts = 8;

  [[nodiscard]] Wanted& entry(std::string_view key) {
    const auto found = wanted_.find(key);
    return found != wanted_.end() ? found->second : wanted_.emplace(std::string(key), Wanted()).first->second;
  }

  std::map<std::string, Wanted, std::less<>> wanted_;
};

MGROUPS_END_NAMESPACE
