// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <mgroups/checkpoint/flavour.hpp>
#include <mgroups/core/box.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/shard/sharded_object.hpp>

struct TensorInfo {
  std::string dtype;
  std::optional<mgroups::DType> readable;  ///< none: of a type that can be listed but not read
  mgroups::Dims shape;
  std::size_t shards = 0;
  std::string error = {};  ///< why it cannot be read; empty where nothing is known against it
  std::string sha256 = {};
};

/// A checkpoint of any format: what it holds, and ways to read it.
struct Contents {
  std::string format;
  std::optional<mgroups::Flavour> flavour;  ///< none: safetensors
  std::map<std::string, TensorInfo> tensors;
  std::map<std::string, std::string> objects;   ///< each with what is wrong with it; mostly nothing
  std::vector<std::string> extra_files;         ///< that lie beside it and are no part of it
  std::map<std::string, std::string> metadata;  ///< of safetensors files: `__metadata__`
  std::function<void(const std::string& key, const mgroups::Box& part, const mgroups::TensorView& target)> read;
  std::function<mgroups::Object(const std::string& key)> read_object;
  std::function<mgroups::Object()> read_common;

  [[nodiscard]] std::uint64_t bytes_of(const TensorInfo& tensor) const {
    return static_cast<std::uint64_t>(mgroups::numel(tensor.shape)) *
           (tensor.readable ? mgroups::size_of(*tensor.readable) : 1);
  }
  [[nodiscard]] std::uint64_t bytes() const {
    std::uint64_t total = 0;
    for (const auto& [key, tensor] : tensors) total += bytes_of(tensor);
    return total;
  }
  /// Calls `sink` with the row-major bytes of a tensor, a few megabytes at a time.
  void read_all(const std::string& key, const std::function<void(std::span<const std::byte>)>& sink) const;
};

/// Opens a torch_dist or DCP directory, a safetensors file, or a folder of those. Throws mgroups::Error with what is there
/// instead.
[[nodiscard]] Contents open_contents(const std::string& path);

/// True where `path` is, or holds, safetensors files and no distributed checkpoint.
[[nodiscard]] bool is_safetensors(const std::string& path);
