// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/format/relative_path.hpp>
#include <mgroups/format/torch_dist/metadata_fields.hpp>
#include <mgroups/format/torch_dist/metadata_types.hpp>
#include <mgroups/format/torch_dist/pickle_writer.hpp>
#include <mgroups/format/utf8.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Writes the object graph of torch.distributed.checkpoint.metadata.Metadata. What repeats is memoised: about 90 bytes
/// a chunk.
class MetadataWriter {
 public:
  MetadataWriter(const CheckpointMetadata& metadata, PickleWriter& w) : metadata_(metadata), w_(w) {
    memo_.fill(no_memo);
    files_.assign(metadata.files.size(), no_memo);
    keys_.reserve(metadata.tensors.size() + metadata.objects.size());
  }

  void write() {
    check();
    w_.protocol();
    begin(Word::metadata);
    word(Word::state_dict_metadata);
    write_entries();
    word(Word::planner_data);
    write_paths();
    word(Word::storage_data);
    write_storage();
    word(Word::version).text(metadata_.version.empty() ? std::string_view("1.0.0") : metadata_.version);
    if (!metadata_.save_id.empty()) w_.text(save_id_attribute).text(metadata_.save_id);
    end();
    w_.stop();
  }

 private:
  // Everything that occurs often: classes first, then attribute names.
  enum class Word : std::uint8_t {
    metadata,
    tensor,
    bytes,
    properties_class,
    chunk,
    index_class,
    info,
    memory_format,
    get_layout,
    size_class,
    state_dict_metadata,
    planner_data,
    storage_data,
    version,
    properties,
    size,
    chunks,
    offsets,
    sizes,
    fqn,
    index,
    offset,
    relative_path,
    length,
    strided_layout,
    contiguous_format,
    count,
  };
  static constexpr std::uint32_t no_memo = 0xFFFFFFFFu;
  static constexpr std::size_t batch = 1000;  // as CPython's: keeps the reader's stack small

  struct Spelling {
    std::string_view module, text;
  };
  [[nodiscard]] static constexpr Spelling spelling(Word word) {
    constexpr std::string_view types = "torch.distributed.checkpoint.metadata";
    switch (word) {
      case Word::metadata: return {types, "Metadata"};
      case Word::tensor: return {types, "TensorStorageMetadata"};
      case Word::bytes: return {types, "BytesStorageMetadata"};
      case Word::properties_class: return {types, "TensorProperties"};
      case Word::chunk: return {types, "ChunkStorageMetadata"};
      case Word::index_class: return {types, "MetadataIndex"};
      case Word::info: return {"torch.distributed.checkpoint.filesystem", "_StorageInfo"};
      case Word::memory_format: return {types, "_MEM_FORMAT_ENCODING"};
      case Word::get_layout: return {"torch.serialization", "_get_layout"};
      case Word::size_class: return {"torch", "Size"};
      case Word::state_dict_metadata: return {{}, "state_dict_metadata"};
      case Word::planner_data: return {{}, "planner_data"};
      case Word::storage_data: return {{}, "storage_data"};
      case Word::version: return {{}, "version"};
      case Word::properties: return {{}, "properties"};
      case Word::size: return {{}, "size"};
      case Word::chunks: return {{}, "chunks"};
      case Word::offsets: return {{}, "offsets"};
      case Word::sizes: return {{}, "sizes"};
      case Word::fqn: return {{}, "fqn"};
      case Word::index: return {{}, "index"};
      case Word::offset: return {{}, "offset"};
      case Word::relative_path: return {{}, "relative_path"};
      case Word::length: return {{}, "length"};
      case Word::strided_layout:
      case Word::contiguous_format:
      case Word::count: break;
    }
    return {};
  }

  void check() const {
    const auto refuse = [](std::string_view key, std::string_view what) {
      throw InvalidArgument(concat("the metadata of ", in_quotes(key), " cannot be written: ", what),
                            {.key = std::string(key)});
    };
    for (const std::string& file : metadata_.files) {
      if (const auto fault = relative_path_fault(file)) refuse(file, concat("its file's path ", *fault));
    }
    const auto check_item = [&](std::string_view key, const StorageInfo& info) {
      if (info.file >= metadata_.files.size())
        refuse(key, concat("file ", info.file, " of ", metadata_.files.size(), " does not exist"));
    };
    for (const auto& [key, tensor] : metadata_.tensors) {
      if (utf8_fault(key) != std::string_view::npos) refuse(key, "its key is not UTF-8");
      if (metadata_.objects.contains(key)) refuse(key, "it is a tensor and an object at once");
      for (std::size_t i = 0; i < tensor.chunk_count(); ++i) check_item(key, tensor.chunk_storage(i));
    }
    for (const auto& [key, info] : metadata_.objects) {
      if (utf8_fault(key) != std::string_view::npos) refuse(key, "its key is not UTF-8");
      check_item(key, info);
    }
  }

  /// Pushes a value: what `make` pushes the first time, from the memo later.
  template <class F>
  PickleWriter& shared(std::uint32_t& memo, F&& make) {
    if (memo != no_memo) return w_.get(memo);
    make();
    memo = next_++;
    return w_.put(memo);
  }
  PickleWriter& word(Word which) {
    return shared(memo_[static_cast<std::size_t>(which)], [&] {
      const Spelling s = spelling(which);
      if (s.module.empty()) {
        w_.text(s.text);
      } else {
        w_.global(s.module, s.text);
      }
    });
  }
  /// An instance of a class, open for its attributes.
  void begin(Word type) { word(type).tuple(0).new_object().empty_dict().mark(); }
  void end() { w_.set_items().build(); }
  void size(std::span<const std::int64_t> values) { word(Word::size_class).integers(values).tuple(1).reduce(); }

  void write_entries() {
    w_.empty_dict().mark();
    std::size_t pending = 0;
    for (const auto& [key, tensor] : metadata_.tensors) {
      put_key(key);
      write_tensor(tensor);
      next_item(pending);
    }
    for (const auto& [key, info] : metadata_.objects) {
      put_key(key);
      word(Word::bytes).tuple(0).new_object();
      next_item(pending);
    }
    w_.set_items();
  }
  void put_key(std::string_view key) {
    w_.text(key).put(next_);
    keys_.push_back(next_++);
  }
  void next_item(std::size_t& pending) {
    if (++pending % batch == 0) w_.set_items().mark();
  }
  void write_tensor(const TensorEntry& tensor) {
    begin(Word::tensor);
    word(Word::properties);
    word(Word::properties_class).tuple(0).new_object().mark();
    shared(dtypes_[static_cast<std::size_t>(tensor.dtype)], [&] { w_.global("torch", name(tensor.dtype)); });
    shared(memo_[static_cast<std::size_t>(Word::strided_layout)],
           [&] { word(Word::get_layout).text("torch.strided").tuple(1).reduce(); });
    w_.boolean(false);
    shared(memo_[static_cast<std::size_t>(Word::contiguous_format)],
           [&] { word(Word::memory_format).integer(0).tuple(1).reduce(); });
    w_.boolean(false).marked_tuple().build();
    word(Word::size);
    size({tensor.shape.data(), tensor.shape.size()});
    word(Word::chunks).empty_list().mark();
    for (std::size_t i = 0; i < tensor.chunk_count(); ++i) {
      begin(Word::chunk);
      word(Word::offsets);
      size(tensor.offsets(i));
      word(Word::sizes);
      size(tensor.sizes(i));
      end();
      if ((i + 1) % batch == 0) w_.appends().mark();
    }
    w_.appends();
    end();
  }
  void write_paths() {
    w_.empty_dict().mark();
    std::size_t pending = 0;
    for (const auto& [key, path] : metadata_.paths) {
      w_.text(key).mark();
      for (const PathElement& element : path) {
        if (const auto* text = std::get_if<std::string>(&element)) {
          w_.text(*text);
        } else {
          w_.integer(std::get<std::int64_t>(element));
        }
      }
      w_.marked_tuple();
      next_item(pending);
    }
    w_.set_items();
  }
  void write_storage() {
    w_.empty_dict().mark();
    std::size_t pending = 0, key = 0;
    for (const auto& [unused, tensor] : metadata_.tensors) {
      for (std::size_t i = 0; i < tensor.chunk_count(); ++i) {
        begin(Word::index_class);
        word(Word::fqn).get(keys_[key]);
        word(Word::index).integer(static_cast<std::int64_t>(i));
        word(Word::offset);
        size(tensor.offsets(i));
        end();
        write_info(tensor.chunk_storage(i));
        next_item(pending);
      }
      ++key;
    }
    for (const auto& [unused, info] : metadata_.objects) {
      begin(Word::index_class);
      word(Word::fqn).get(keys_[key++]);
      word(Word::index).none();
      end();
      write_info(info);
      next_item(pending);
    }
    w_.set_items();
  }
  void write_info(const StorageInfo& info) {
    begin(Word::info);
    word(Word::relative_path);
    shared(files_[info.file], [&] { w_.text(metadata_.files[info.file]); });
    word(Word::offset).unsigned_integer(info.offset);
    word(Word::length).unsigned_integer(info.length);
    end();
  }

  const CheckpointMetadata& metadata_;
  PickleWriter& w_;
  std::uint32_t next_ = 0;
  std::array<std::uint32_t, static_cast<std::size_t>(Word::count)> memo_;
  std::array<std::uint32_t, dtype_count> dtypes_ = [] {
    std::array<std::uint32_t, dtype_count> none;
    none.fill(no_memo);
    return none;
  }();
  std::vector<std::uint32_t> files_, keys_;
};

}  // namespace detail

/// Writes `.metadata` for torch 2.3 and newer and Megatron-Core 0.12 and newer, calling `sink(std::span<const
/// std::byte>)` for each few kilobytes. The same metadata give the same bytes: keys are written in the order of the
/// map, chunks in theirs. `original_shapes`, `unreadable` and `writer_class` describe files that were read and are not
/// written. Throws InvalidArgument for keys and paths that cannot be written, before the first byte.
template <std::invocable<std::span<const std::byte>> Sink>
void write_metadata(const CheckpointMetadata& metadata, Sink&& sink) {
  PickleWriter writer(sink);
  detail::MetadataWriter(metadata, writer).write();
}

/// As above, into memory.
[[nodiscard]] inline std::vector<std::byte> write_metadata(const CheckpointMetadata& metadata) {
  std::vector<std::byte> out;
  PickleWriter writer(out);
  detail::MetadataWriter(metadata, writer).write();
  return out;
}

MGROUPS_END_NAMESPACE
