// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <mgroups/format/torch_dist/archive.hpp>
#include <mgroups/format/torch_dist/pickle.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// The file `metadata.json`, by which Megatron-Core knows a `torch_dist` checkpoint. Readers up to 0.18 refuse other keys
/// than these.
inline constexpr std::string_view torch_dist_marker =
    R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1})";

/// The file `common.pt` of a checkpoint whose state is all sharded: an empty dict. Megatron-Core does not load without the
/// file.
[[nodiscard]] inline std::vector<std::byte> empty_common_state() {
  std::vector<std::byte> pickle;
  PickleWriter writer(pickle);
  writer.protocol().empty_dict().stop();
  return write_object_archive(pickle, "common");
}

MGROUPS_END_NAMESPACE
