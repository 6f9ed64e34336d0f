// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include "inspect.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <mgroups/checkpoint/reader.hpp>
#include <mgroups/checkpoint/safetensors_reader.hpp>
#include <mgroups/core/slabs.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/io/posix.hpp>

#include "support/progress.hpp"
#include "support/sha256.hpp"

namespace mg = mgroups;

namespace {

struct Tensor {
  std::string dtype;
  std::optional<mg::DType> readable;
  mg::Dims shape;
  std::size_t shards = 0;
  std::string sha256 = {};
};

/// A checkpoint of any format: its tensors, and a way to read them.
struct Contents {
  std::string format;
  std::map<std::string, Tensor> tensors;
  std::vector<std::string> objects;
  std::function<void(const std::string& key, const mg::Box& part, const mg::TensorView& target)> read;
};

Contents open_distributed(const std::string& path, const char* format) {
  const auto reader = std::make_shared<mg::CheckpointReader>(path);
  Contents out{.format = format, .tensors = {}, .objects = {}, .read = {}};
  for (const auto& [key, tensor] : reader->metadata().tensors) {
    out.tensors.emplace(key, Tensor{std::string(mg::name(tensor.dtype)), tensor.dtype, tensor.shape, tensor.chunk_count()});
  }
  for (const auto& [key, storage] : reader->metadata().objects) out.objects.push_back(key);
  out.read = [reader](const std::string& key, const mg::Box& part, const mg::TensorView& target) {
    reader->read(key, part, target);
  };
  return out;
}

Contents open_safetensors_files(const std::string& path) {
  const auto reader = std::make_shared<mg::SafetensorsReader>(path);
  Contents out{.format = "safetensors", .tensors = {}, .objects = {}, .read = {}};
  for (const auto& [key, tensor] : reader->model().tensors) {
    out.tensors.emplace(key, Tensor{tensor.dtype ? std::string(mg::name(*tensor.dtype)) : tensor.stored_type, tensor.dtype,
                                    tensor.shape, tensor.parts.size()});
  }
  out.read = [reader](const std::string& key, const mg::Box& part, const mg::TensorView& target) {
    reader->read(key, part, target);
  };
  return out;
}

Contents open(const std::string& path) {
  mg::FileSystem& files = mg::posix_file_system();
  const std::string directory = mg::committed_path(files, path);
  const auto has_file = [&](const char* name) {
    return files.status(mg::join_path(directory, name)).kind == mg::FileKind::file;
  };
  if (files.status(directory).kind == mg::FileKind::file) return open_safetensors_files(path);
  if (has_file(".metadata")) return open_distributed(path, has_file("metadata.json") ? "torch_dist" : "dcp");
  if (files.status(directory).kind == mg::FileKind::directory) {
    for (const std::string& name : files.list(directory)) {
      if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) return open_safetensors_files(path);
    }
  }
  return open_distributed(path, "");  // says what is missing
}

std::string sha256_of_tensor(const Contents& contents, const std::string& key, const Tensor& tensor, Progress& progress) {
  if (!tensor.readable)
    throw mg::UnsupportedError(mg::concat("tensor '", key, "' is of type ", tensor.dtype, ", which cannot be read"));
  Sha256 hash;
  const auto size = static_cast<std::int64_t>(mg::size_of(*tensor.readable));
  std::vector<std::byte> bytes;
  mg::for_each_slab(mg::whole(tensor.shape), (std::int64_t{32} << 20) / size, [&](const mg::Box& part) {
    bytes.resize(static_cast<std::size_t>(part.volume() * size));
    contents.read(key, part, {bytes.data(), *tensor.readable, part.sizes, mg::row_major_strides(part.sizes)});
    hash.add(bytes);
    progress.bytes() += bytes.size();
  });
  return hash.finish();
}

void keep_only(Contents& contents, const std::vector<std::string>& keys) {
  if (keys.empty()) return;
  std::vector<std::string> known;
  for (const auto& [key, tensor] : contents.tensors) known.push_back(key);
  known.insert(known.end(), contents.objects.begin(), contents.objects.end());
  for (const std::string& key : keys) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string nearest = mg::nearest_name(key, known);
    throw mg::InvalidArgument(
        mg::concat("there is no key '", key, "'", nearest.empty() ? "" : mg::concat("; the nearest is '", nearest, "'")));
  }
  const auto unwanted = [&](const std::string& key) { return std::find(keys.begin(), keys.end(), key) == keys.end(); };
  std::erase_if(contents.tensors, [&](const auto& entry) { return unwanted(entry.first); });
  std::erase_if(contents.objects, unwanted);
}

void print_json(const Contents& contents) {
  nlohmann::json out{{"format", contents.format}, {"tensors", nlohmann::json::object()}, {"objects", contents.objects}};
  for (const auto& [key, tensor] : contents.tensors) {
    nlohmann::json row{{"dtype", tensor.dtype},
                       {"shape", std::vector<std::int64_t>(tensor.shape.begin(), tensor.shape.end())},
                       {"shards", tensor.shards}};
    if (!tensor.sha256.empty()) row["sha256"] = tensor.sha256;
    out["tensors"][key] = std::move(row);
  }
  // Keys are whatever the file holds; bytes that are no UTF-8 must not end the listing.
  std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

void print_text(const Contents& contents) {
  std::size_t widest = 3, widest_shape = 5;
  double bytes = 0;
  for (const auto& [key, tensor] : contents.tensors) {
    widest = std::max(widest, key.size());
    widest_shape = std::max(widest_shape, mg::to_string(tensor.shape).size());
    bytes += static_cast<double>(mg::numel(tensor.shape)) *
             static_cast<double>(tensor.readable ? mg::size_of(*tensor.readable) : 1);
  }
  widest = std::min<std::size_t>(widest, 80);
  const int width = static_cast<int>(widest), shape_width = static_cast<int>(widest_shape);
  if (!contents.tensors.empty())
    std::printf("%-*s  %-15s  %-*s  %6s\n", width, "key", "dtype", shape_width, "shape", "shards");
  for (const auto& [key, tensor] : contents.tensors) {
    std::printf("%-*s  %-15s  %-*s  %6zu%s%s\n", width, key.c_str(), tensor.dtype.c_str(), shape_width,
                mg::to_string(tensor.shape).c_str(), tensor.shards, tensor.sha256.empty() ? "" : "  ",
                tensor.sha256.c_str());
  }
  for (const std::string& key : contents.objects) std::printf("%-*s  object\n", width, key.c_str());
  std::printf("%s: %zu tensors, %.1f MB, %zu objects\n", contents.format.c_str(), contents.tensors.size(), bytes / 1e6,
              contents.objects.size());
}

}  // namespace

void inspect(const InspectOptions& options) {
  Contents contents = open(options.path);
  keep_only(contents, options.keys);
  if (options.sha256) {
    std::uint64_t total = 0;
    for (const auto& [key, tensor] : contents.tensors) {
      total += static_cast<std::uint64_t>(mg::numel(tensor.shape)) * (tensor.readable ? mg::size_of(*tensor.readable) : 1);
    }
    Progress progress("reading", total);
    for (auto& [key, tensor] : contents.tensors) tensor.sha256 = sha256_of_tensor(contents, key, tensor, progress);
  }
  options.json ? print_json(contents) : print_text(contents);
}
