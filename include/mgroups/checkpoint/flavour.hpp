// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/format/json.hpp>
#include <mgroups/shard/sharded_object.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Which of the two directories that hold `.metadata` a checkpoint is. Tensors are the same in both.
enum class Flavour : std::uint8_t {
  torch_dist,  ///< Megatron-Core's: `metadata.json`, `common.pt`, objects in pieces under "key/shard_0_1"
  dcp,         ///< PyTorch's own: plain keys, and nothing beside `.metadata`
};

namespace detail {

inline constexpr std::string_view metadata_name = ".metadata";
inline constexpr std::string_view marker_name = "metadata.json";
inline constexpr std::string_view common_name = "common.pt";
/// Megatron-Core's list of SHA-256 values.
inline constexpr std::string_view manifest_name = "integrity.json";
/// Where Megatron-Core from 0.19 on keeps its common state.
inline constexpr std::string_view common_key = "common_state/shard_0_1";

/// The file `metadata.json`, by which Megatron-Core knows a `torch_dist` checkpoint. Readers up to 0.18 refuse other keys
/// than these.
inline constexpr std::string_view torch_dist_marker =
    R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1})";
/// That of a checkpoint without `common.pt`.
inline constexpr std::string_view torch_dist_short_marker =
    R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1})";

[[nodiscard]] constexpr Object::Form form_of(Flavour flavour) noexcept {
  return flavour == Flavour::torch_dist ? Object::Form::listed : Object::Form::plain;
}

/// What the content of `metadata.json` says. Throws UnsupportedError where it names another storage than `torch_dist`.
[[nodiscard]] inline Flavour parse_marker(std::span<const std::byte> content, const std::string& path) {
  std::optional<std::string> backend;
  try {
    const auto document =
        JsonDocument::parse(std::string(reinterpret_cast<const char*>(content.data()), content.size()), path);
    if (const JsonValue root = document.root(); root.is_object()) {
      if (const auto value = root.find("sharded_backend"); value && value->is_string()) backend = value->as_string();
    }
  } catch (const FormatError&) {
    // Megatron-Core takes a file that it cannot parse for somebody else's.
  }
  if (!backend) return Flavour::dcp;
  if (*backend != "torch_dist") {
    throw UnsupportedError(
        concat(path, " says that the checkpoint is stored as ", in_quotes(*backend), "; only torch_dist is read"),
        {.verb = "load", .file = path});
  }
  return Flavour::torch_dist;
}

}  // namespace detail

MGROUPS_END_NAMESPACE
