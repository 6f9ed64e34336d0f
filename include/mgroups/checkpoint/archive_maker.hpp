// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <optional>

#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/format/torch_dist/archive.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Makes archives. Tensors of one shape often follow each other: the last archive is kept.
class ArchiveMaker {
 public:
  /// Valid until the next call.
  [[nodiscard]] TensorArchive& operator()(DType dtype, const Dims& shape) {
    if (!last_ || dtype_ != dtype || shape_ != shape) {
      last_.emplace(dtype, shape);
      dtype_ = dtype;
      shape_ = shape;
    }
    return *last_;
  }

 private:
  std::optional<TensorArchive> last_;
  DType dtype_{};
  Dims shape_;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
