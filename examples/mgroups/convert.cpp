// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <mgroups/checkpoint/writer.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/format/safetensors.hpp>
#include <mgroups/io/commit.hpp>
#include <mgroups/io/posix.hpp>

#include "contents.hpp"
#include "support/progress.hpp"
#include "verbs.hpp"

namespace mg = mgroups;

namespace {

struct Outcome {
  std::uint64_t tensors = 0;
  std::uint64_t objects = 0;
  std::vector<std::string> dropped = {};
};

/// A folder that is replaced as a whole must be somebody's model, or nothing at all.
void check_replaceable(const std::string& directory) {
  mg::FileSystem& files = mg::posix_file_system();
  const mg::FileStatus status = files.status(directory);
  if (status.kind == mg::FileKind::none && status.dangling_link.empty()) return;
  if (status.kind == mg::FileKind::directory && (is_safetensors(directory) || files.list(directory).empty())) return;
  throw mg::CheckpointError(
      mg::concat(directory, " exists and holds no safetensors files; choose another name or remove it"));
}

Outcome to_safetensors(const Contents& source, const ConvertOptions& options, Progress& progress) {
  Outcome outcome;
  for (const auto& [key, error] : source.objects) outcome.dropped.push_back(key);
  if (!outcome.dropped.empty() && !options.drop_objects) {
    throw mg::UnsupportedError(mg::concat("safetensors files hold tensors only; give --drop-objects to leave out ",
                                          mg::list_text(outcome.dropped, 8)));
  }
  std::vector<mg::SafetensorsItem> items;
  for (const auto& [key, tensor] : source.tensors) {
    if (!tensor.error.empty() || !tensor.readable) {
      throw mg::UnsupportedError(mg::concat(
          "tensor '", key,
          "' cannot be read: ", tensor.error.empty() ? mg::concat("it is of type ", tensor.dtype) : tensor.error));
    }
    items.push_back({key, *tensor.readable, tensor.shape});
  }
  outcome.tensors = items.size();
  const auto produce = [&](std::size_t i, auto&& sink) {
    source.read_all(items[i].name, [&](std::span<const std::byte> bytes) {
      sink(bytes);
      progress.bytes() += bytes.size();
    });
  };
  mg::SafetensorsMetadata metadata{{"format", "pt"}};
  for (const auto& [key, value] : source.metadata) {
    if (!key.starts_with("DCP_")) metadata.insert_or_assign(key, value);
  }
  mg::FileSystem& files = mg::posix_file_system();
  if (options.target.ends_with(".safetensors")) {
    const mg::detail::SplitPath target = mg::detail::split_path(options.target);
    const std::string temporary =
        mg::join_path(target.parent, mg::concat(".", target.name, mg::detail::new_mark, mg::detail::random_nonce()));
    try {
      mg::write_safetensors(files, temporary, items, metadata, produce);
      files.rename(temporary, options.target);
    } catch (...) {
      files.remove_all(temporary);
      throw;
    }
    files.sync_directory(target.parent);
    return outcome;
  }
  check_replaceable(options.target);
  mg::DirectoryCommit commit(files, options.target);
  try {
    mg::write_safetensors_sharded(files, commit.path(), items, metadata, options.most_bytes, produce);
    commit.commit();
  } catch (...) {
    commit.abandon();
    throw;
  }
  return outcome;
}

Outcome to_distributed(const Contents& source, const ConvertOptions& options, Progress& progress) {
  const mg::Flavour flavour = options.format == "dcp" ? mg::Flavour::dcp : mg::Flavour::torch_dist;
  Outcome outcome;
  mg::CheckpointWriter writer(options.target, {.flavour = flavour, .progress = &progress.bytes()});
  for (const auto& [key, tensor] : source.tensors) {
    if (!tensor.readable || !tensor.error.empty()) source.read_all(key, [](auto) {});  // says why it cannot be read
    writer.add_tensor(key, *tensor.readable, tensor.shape, [&, &name = key](auto&& sink) { source.read_all(name, sink); });
    ++outcome.tensors;
  }
  // PyTorch's items of bytes without a place among pieces are what Megatron-Core keeps in its common state.
  const auto is_piece = [](const std::string& key) { return key.find("/shard_") != std::string::npos; };
  for (const auto& [key, error] : source.objects) {
    if (key == mg::detail::common_key || (source.flavour == mg::Flavour::dcp && !is_piece(key))) continue;
    try {
      writer.add_object(key, source.read_object(key));
      ++outcome.objects;
    } catch (const mg::UnsupportedError&) {
      if (!options.drop_objects) throw;
      outcome.dropped.push_back(key);
    }
  }
  if (source.read_common) {
    try {
      writer.set_common(source.read_common());
    } catch (const mg::UnsupportedError&) {
      if (!options.drop_objects) throw;
      outcome.dropped.emplace_back("the common state");
    }
  }
  writer.commit();
  return outcome;
}

}  // namespace

void convert(const ConvertOptions& options) {
  const Contents source = open_contents(options.source);
  Outcome outcome;
  {
    Progress progress("converting", source.bytes());
    outcome = options.format == "safetensors" ? to_safetensors(source, options, progress)
                                              : to_distributed(source, options, progress);
  }
  if (options.json) {
    const nlohmann::json out{{"source", source.format}, {"target", options.format},   {"tensors", outcome.tensors},
                             {"bytes", source.bytes()}, {"objects", outcome.objects}, {"dropped", outcome.dropped}};
    std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return;
  }
  std::printf("%s: %llu tensors, %.1f MB, %llu objects", options.target.c_str(),
              static_cast<unsigned long long>(outcome.tensors), static_cast<double>(source.bytes()) / 1e6,
              static_cast<unsigned long long>(outcome.objects));
  if (!outcome.dropped.empty()) std::printf("; left out: %s", mg::list_text(outcome.dropped, 8).c_str());
  std::printf("\n");
}
