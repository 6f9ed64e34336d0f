// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/core/box.hpp>
#include <mgroups/core/box_list.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/tiling.hpp>
#include <mgroups/format/countable.hpp>
#include <mgroups/format/json.hpp>
#include <mgroups/format/relative_path.hpp>
#include <mgroups/format/safetensors_header.hpp>
#include <mgroups/format/utf8.hpp>
#include <mgroups/io/file.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// A row-major part of a tensor: `box` of it lies in bytes `begin` to `end` of file `file` of the model.
struct SafetensorsPart {
  Box box;
  std::uint32_t file = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct SafetensorsTensor {
  std::string stored_type;
  std::optional<DType> dtype;  ///< nothing for types that can be listed but not read
  Dims shape;
  std::vector<SafetensorsPart> parts;  ///< cover the shape without overlap; one, unless the files are DCP's shards

  /// Throws UnsupportedError for elements of a type that cannot be read.
  [[nodiscard]] DType element_type(std::string_view name) const {
    return SafetensorsEntry{.name = std::string(name), .stored_type = stored_type, .dtype = dtype, .shape = shape}
        .element_type();
  }
};

/// One or several safetensors files, as one set of tensors.
struct SafetensorsModel {
  std::vector<std::string> files;  ///< paths, ready to be opened
  std::map<std::string, SafetensorsTensor, std::less<>> tensors;
  std::map<std::string, std::string, std::less<>> metadata;  ///< of the first file that could be read
  /// Tensors that the index names but whose file is missing or broken, and why; with `SafetensorsFaults::note` only.
  std::map<std::string, std::string, std::less<>> unreadable;
};

/// What a missing or broken file of several does to the others.
enum class SafetensorsFaults : bool {
  refuse,  ///< nothing is opened
  note,    ///< the tensors of the others are
};

namespace detail {

class SafetensorsOpener {
 public:
  SafetensorsOpener(FileSystem& files, const std::string& path, SafetensorsFaults faults)
      : files_(files), path_(path), faults_(faults) {}

  [[nodiscard]] SafetensorsModel open() {
    if (files_.status(path_).kind != FileKind::directory) {
      if (path_.ends_with(index_ending)) {
        const std::size_t slash = path_.rfind('/');
        open_index(path_, slash == std::string::npos ? std::string(".") : path_.substr(0, slash + 1));
      } else {
        add_whole(path_, nullptr);
      }
    } else if (const std::string index = find_index(); !index.empty()) {
      open_index(index, path_);
    } else if (const std::string single = join_path(path_, "model.safetensors"); is_file(single)) {
      add_whole(single, nullptr);
    } else {
      open_shards();
    }
    return std::move(out_);
  }

 private:
  using Names = std::vector<std::string>;

  [[nodiscard]] bool is_file(const std::string& path) const { return files_.status(path).kind == FileKind::file; }
  [[noreturn]] static void fail(const std::string& file, std::string_view key, const std::string& what) {
    throw FormatError(concat(file, ": ", what), {.key = std::string(key), .file = file});
  }

  [[nodiscard]] SafetensorsHeader add_file(const std::string& path) {
    const auto file = files_.open_read(path);
    out_.files.push_back(path);
    SafetensorsHeader header = read_safetensors_header(*file);
    if (!std::exchange(has_metadata_, true)) out_.metadata = header.metadata;
    return header;
  }
  [[nodiscard]] std::uint32_t last_file() const noexcept { return static_cast<std::uint32_t>(out_.files.size() - 1); }

  /// All tensors of a file, or those named; the names must be sorted.
  void add_whole(const std::string& path, const Names* wanted) {
    for (SafetensorsEntry& entry : add_file(path).entries) {
      if (wanted != nullptr && !std::binary_search(wanted->begin(), wanted->end(), entry.name)) continue;
      SafetensorsTensor tensor{std::move(entry.stored_type), entry.dtype, entry.shape, {}};
      tensor.parts.push_back({mgroups::whole(entry.shape), last_file(), entry.begin, entry.end});
      out_.tensors.emplace(std::move(entry.name), std::move(tensor));
    }
    if (wanted == nullptr) return;
    for (const std::string& name : *wanted) {
      if (!out_.tensors.contains(name))
        fail(path, name, concat("tensor ", in_quotes(name), " should be here, as the index says, but is not"));
    }
  }
  static constexpr std::string_view index_ending = ".safetensors.index.json";

  /// The folder's index: model.safetensors.index.json, else the only one under another name; empty where there is none.
  [[nodiscard]] std::string find_index() const {
    const std::string usual = join_path(path_, concat("model", index_ending));
    if (is_file(usual)) return usual;
    Names found;
    for (const std::string& name : files_.list(path_)) {
      if (name.ends_with(index_ending) && is_file(join_path(path_, name))) found.push_back(name);
    }
    if (found.size() > 1) fail(path_, {}, concat("has several indices, ", list_text(found), "; give one of them"));
    return found.empty() ? std::string() : join_path(path_, found.front());
  }

  /// The index is the authority: the files that it names, and of them the tensors that it names.
  void open_index(const std::string& index, const std::string& folder) {
    const auto file = files_.open_read(index);
    if (file->size() > (std::uint64_t{1} << 30)) fail(index, {}, "an index of more than 1 GiB is not supported");
    std::string text(static_cast<std::size_t>(file->size()), '\0');
    file->read_at(0, std::as_writable_bytes(std::span(text)));
    const JsonDocument document = JsonDocument::parse(std::move(text), index);
    std::map<std::string, Names, std::less<>> wanted;
    document.root().at("weight_map").for_each_member([&](std::string_view name, JsonValue value) {
      const std::string_view shard = value.as_string();
      if (const auto fault = relative_path_fault(shard)) {
        fail(index, name,
             concat("tensor ", in_quotes(name), " is said to lie in ", in_quotes(shard), ", a path that ", *fault,
                    "; files outside of the model's folder are never read"));
      }
      wanted[std::string(shard)].emplace_back(name);
    });
    for (auto& [shard, names] : wanted) {
      std::sort(names.begin(), names.end());
      try {
        open_named(index, folder, shard, names);
      } catch (const Error& error) {
        if (faults_ == SafetensorsFaults::refuse) throw;
        for (const std::string& name : names) {
          out_.tensors.erase(name);
          out_.unreadable.emplace(name, error.what());
        }
      }
    }
  }
  void open_named(const std::string& index, const std::string& folder, const std::string& shard, const Names& names) {
    const std::string path = join_path(folder, shard);
    if (const FileStatus status = files_.status(path); status.kind != FileKind::file) {
      fail(index, names.front(),
           concat("file ", in_quotes(shard), ", which should hold ", names.size(), " tensors (", in_quotes(names.front()),
                  " for one), is ",
                  status.dangling_link.empty()
                      ? "missing"
                      : concat("a link to ", in_quotes(status.dangling_link), ", which is missing")));
    }
    add_whole(path, &names);
  }

  /// A folder of files without an index: what DCP's HuggingFaceStorageWriter leaves, each rank its own parts.
  void open_shards() {
    bool any = false;
    for (const std::string& name : files_.list(path_)) {
      if (!name.ends_with(".safetensors") || !is_file(join_path(path_, name))) continue;
      any = true;
      add_shard(join_path(path_, name));
    }
    if (!any) fail(path_, {}, "holds no model.safetensors, no model.safetensors.index.json and no other safetensors file");
    for (auto& [name, tensor] : out_.tensors) check_cover(name, tensor);
  }
  void add_shard(const std::string& path) {
    SafetensorsHeader header = add_file(path);
    std::optional<JsonDocument> sharding;
    if (const auto info = header.metadata.find("DCP_SHARDING_INFO"); info != header.metadata.end()) {
      sharding.emplace(JsonDocument::parse(info->second, concat(path, " (DCP_SHARDING_INFO)")));
    }
    std::map<std::string_view, JsonValue> places;
    if (sharding)
      sharding->root().for_each_member([&](std::string_view key, JsonValue value) { places.emplace(key, value); });
    for (SafetensorsEntry& entry : header.entries) {
      Box box = mgroups::whole(entry.shape);
      Dims global = entry.shape;
      if (const auto place = places.find(entry.name); place != places.end()) {
        box.offsets = dims(place->second.at("saved_offsets"), entry);
        for (int axis = 0; axis < global.rank(); ++axis) global[axis] = box.offsets[axis] + entry.shape[axis];
        if (const auto said = place->second.find("global_shape")) global = max(global, dims(*said, entry));
      }
      SafetensorsTensor& tensor = out_.tensors[entry.name];
      if (tensor.parts.empty()) {
        tensor.stored_type = entry.stored_type;
        tensor.dtype = entry.dtype;
        tensor.shape = global;
      } else if (tensor.stored_type != entry.stored_type || tensor.shape.rank() != global.rank()) {
        fail(path, entry.name,
             concat("tensor ", in_quotes(entry.name), " is of type ", entry.stored_type, " with ", global.rank(),
                    " axes here and of type ", tensor.stored_type, " with ", tensor.shape.rank(), " in ",
                    out_.files[tensor.parts.front().file]));
      }
      tensor.shape = max(tensor.shape, global);
      tensor.parts.push_back({box, last_file(), entry.begin, entry.end});
    }
  }
  [[nodiscard]] static Dims dims(JsonValue value, const SafetensorsEntry& entry) {
    if (!value.is_array() || value.size() != entry.shape.size())
      value.fail(concat("is not one number for each axis of ", in_quotes(entry.name)));
    Dims out;
    value.for_each_element([&](JsonValue number) {
      const std::int64_t least = number.as_int64();
      // Offsets of this size are no offsets, and sums with sizes stay countable.
      if (least < 0 || least > std::numeric_limits<std::int64_t>::max() / 4) number.fail("is no offset");
      out.push_back(least);
    });
    for (const std::int64_t size : entry.shape) {
      if (size > std::numeric_limits<std::int64_t>::max() / 4) value.fail("belongs to a tensor that is too large");
    }
    return out;
  }
  [[nodiscard]] static Dims max(const Dims& a, const Dims& b) {
    Dims out = a;
    for (int axis = 0; axis < out.rank(); ++axis) out[axis] = std::max(out[axis], b[axis]);
    return out;
  }
  /// Parts that do not overlap and add up to the whole cover it.
  void check_cover(const std::string& name, SafetensorsTensor& tensor) const {
    auto& parts = tensor.parts;
    std::sort(parts.begin(), parts.end(), [](const SafetensorsPart& a, const SafetensorsPart& b) { return a.box < b.box; });
    if (!countable(tensor.shape))
      fail(path_, name, concat("tensor ", in_quotes(name), " is too large: ", to_string(tensor.shape)));
    BoxList boxes(tensor.shape.rank());
    for (const SafetensorsPart& part : parts) boxes.push_back(part.box);
    const auto fault = find_tiling_fault(boxes, tensor.shape);
    if (!fault) return;
    if (fault->overlap) {
      fail(path_, name,
           concat("tensor ", in_quotes(name), " is stored twice, as ", to_string(parts[fault->first].box), " in ",
                  out_.files[parts[fault->first].file], " and as ", to_string(parts[fault->second].box), " in ",
                  out_.files[parts[fault->second].file]));
    }
    fail(path_, name,
         concat("tensor ", in_quotes(name), " of shape ", to_string(tensor.shape), " is not covered by its ", parts.size(),
                " parts: nobody holds ", to_string(fault->where), "; a file is missing"));
  }

  FileSystem& files_;
  const std::string& path_;
  SafetensorsFaults faults_;
  bool has_metadata_ = false;
  SafetensorsModel out_;
};

}  // namespace detail

/// Opens a safetensors file, an index, or a folder: with an index exactly the files and tensors that it names, else
/// `model.safetensors`, else all `*.safetensors` in it as shards that DCP wrote (their offsets in
/// DCP_SHARDING_INFO). Reads headers, no data. Local, blocking. Throws FormatError naming file and tensor, IoError.
[[nodiscard]] inline SafetensorsModel open_safetensors(FileSystem& files, const std::string& path,
                                                       SafetensorsFaults faults = SafetensorsFaults::refuse) {
  return detail::SafetensorsOpener(files, path, faults).open();
}

MGROUPS_END_NAMESPACE
