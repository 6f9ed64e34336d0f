// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include "contents.hpp"

#include <memory>
#include <set>
#include <utility>

#include <mgroups/checkpoint/reader.hpp>
#include <mgroups/checkpoint/safetensors_reader.hpp>
#include <mgroups/core/slabs.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/io/posix.hpp>

namespace mg = mgroups;

namespace {

/// Marks what lies in files that are missing or too short.
void mark_incomplete(const mg::CheckpointReader& reader, Contents& contents) {
  mg::FileSystem& files = mg::posix_file_system();
  std::vector<mg::FileStatus> status;
  for (const std::string& name : reader.metadata().files) {
    status.push_back(files.status(mg::join_path(reader.directory(), name)));
  }
  const auto fault = [&](const mg::StorageInfo& at) -> std::string {
    const std::string& name = reader.metadata().files[at.file];
    if (status[at.file].kind != mg::FileKind::file)
      return mg::concat("the data file ", name, ", which holds a part of it, does not exist");
    const std::uint64_t size = status[at.file].size;
    if (at.offset <= size && at.length <= size - at.offset) return {};
    return mg::concat(name, " has ", size, " bytes where ", at.offset + at.length, " are needed; it was cut short");
  };
  for (const auto& [key, tensor] : reader.metadata().tensors) {
    std::string& error = contents.tensors.at(key).error;
    for (std::size_t i = 0; i < tensor.chunk_count() && error.empty(); ++i) error = fault(tensor.chunk_storage(i));
  }
  for (const auto& [key, at] : reader.metadata().objects) {
    if (std::string& error = contents.objects.at(key); error.empty()) error = fault(at);
  }
}

Contents open_distributed(const std::string& path) {
  const auto reader = std::make_shared<mg::CheckpointReader>(path);
  Contents out;
  out.flavour = reader->flavour();
  out.format = reader->flavour() == mg::Flavour::torch_dist ? "torch_dist" : "dcp";
  for (const auto& [key, tensor] : reader->metadata().tensors) {
    out.tensors.emplace(key,
                        TensorInfo{std::string(mg::name(tensor.dtype)), tensor.dtype, tensor.shape, tensor.chunk_count()});
  }
  for (const auto& [key, at] : reader->metadata().objects) out.objects.emplace(key, std::string());
  for (const auto& [key, reason] : reader->metadata().unreadable) {
    if (const auto object = out.objects.find(key); object != out.objects.end()) {
      object->second = reason;
    } else {
      TensorInfo& tensor = out.tensors.emplace(key, TensorInfo{"unknown", std::nullopt, {}}).first->second;
      tensor.error = reason;
    }
  }
  mark_incomplete(*reader, out);
  out.extra_files = reader->extra_files();
  out.read = [reader](const std::string& key, const mg::Box& part, const mg::TensorView& target) {
    reader->read(key, part, target);
  };
  out.read_object = [reader](const std::string& key) { return reader->read_object(key); };
  out.read_common = [reader] { return reader->read_common(); };
  return out;
}

Contents open_safetensors_files(const std::string& path) {
  const auto reader = std::make_shared<mg::SafetensorsReader>(path, nullptr, mg::SafetensorsFaults::note);
  Contents out;
  out.format = "safetensors";
  for (const auto& [key, tensor] : reader->model().tensors) {
    out.tensors.emplace(key, TensorInfo{tensor.dtype ? std::string(mg::name(*tensor.dtype)) : tensor.stored_type,
                                        tensor.dtype, tensor.shape, tensor.parts.size()});
  }
  for (const auto& [key, reason] : reader->model().unreadable) {
    out.tensors.emplace(key, TensorInfo{"unknown", std::nullopt, {}}).first->second.error = reason;
  }
  out.metadata.insert(reader->model().metadata.begin(), reader->model().metadata.end());
  mg::FileSystem& files = mg::posix_file_system();
  if (files.status(path).kind == mg::FileKind::directory) {
    const std::set<std::string> own(reader->model().files.begin(), reader->model().files.end());
    for (const std::string& name : files.list(path)) {
      const std::string file = mg::join_path(path, name);
      if (name.ends_with(".safetensors") && !own.contains(file) && files.status(file).kind == mg::FileKind::file) {
        out.extra_files.push_back(name);
      }
    }
  }
  out.read = [reader](const std::string& key, const mg::Box& part, const mg::TensorView& target) {
    reader->read(key, part, target);
  };
  return out;
}

}  // namespace

void Contents::read_all(const std::string& key, const std::function<void(std::span<const std::byte>)>& sink) const {
  const TensorInfo& tensor = tensors.at(key);
  if (!tensor.error.empty()) throw mg::FormatError(mg::concat("tensor '", key, "' cannot be read: ", tensor.error));
  if (!tensor.readable) {
    throw mg::UnsupportedError(mg::concat("tensor '", key, "' is of type ", tensor.dtype, ", which cannot be read"));
  }
  const auto size = static_cast<std::int64_t>(mg::size_of(*tensor.readable));
  std::vector<std::byte> bytes;
  mg::for_each_slab(mg::whole(tensor.shape), (std::int64_t{32} << 20) / size, [&](const mg::Box& part) {
    bytes.resize(static_cast<std::size_t>(part.volume() * size));
    read(key, part, {bytes.data(), *tensor.readable, part.sizes, mg::row_major_strides(part.sizes)});
    sink(bytes);
  });
}

bool is_safetensors(const std::string& path) {
  mg::FileSystem& files = mg::posix_file_system();
  const mg::FileKind kind = files.status(path).kind;
  if (kind == mg::FileKind::file) return true;
  if (kind != mg::FileKind::directory || files.status(mg::join_path(path, ".metadata")).kind == mg::FileKind::file)
    return false;
  for (const std::string& name : files.list(path)) {
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) return true;
  }
  return false;
}

Contents open_contents(const std::string& path) {
  return is_safetensors(path) ? open_safetensors_files(path) : open_distributed(path);
}
