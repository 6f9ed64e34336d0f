// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/format/countable.hpp>
#include <mgroups/format/json_writer.hpp>
#include <mgroups/format/safetensors_header.hpp>
#include <mgroups/format/utf8.hpp>
#include <mgroups/io/file.hpp>
#include <mgroups/io/sequential_writer.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// A tensor to be written.
struct SafetensorsItem {
  std::string name;
  DType dtype = DType::float32;
  Dims shape;
};

using SafetensorsMetadata = std::map<std::string, std::string, std::less<>>;

namespace detail {

[[nodiscard]] inline std::uint64_t safetensors_bytes(const SafetensorsItem& item) {
  if (safetensors_order(item.dtype) < 0) {
    throw UnsupportedError(
        concat("tensor ", in_quotes(item.name), " has dtype ", name(item.dtype), ", for which safetensors has no name"),
        {.key = item.name});
  }
  for (const std::int64_t size : item.shape) {
    if (size < 0)
      throw InvalidArgument(concat("tensor ", in_quotes(item.name), " has a negative size: ", to_string(item.shape)));
  }
  if (!countable(item.shape))
    throw InvalidArgument(concat("tensor ", in_quotes(item.name), " of shape ", to_string(item.shape), " is too large"));
  if (item.name == "__metadata__") throw InvalidArgument("no tensor can be named '__metadata__' in a safetensors file");
  return static_cast<std::uint64_t>(numel(item.shape)) * size_of(item.dtype);
}

/// Items in the reference writer's order: by element type from the last to the first, which keeps every tensor
/// aligned, then by name.
[[nodiscard]] inline std::vector<std::size_t> safetensors_layout(std::span<const SafetensorsItem> items) {
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const int left = safetensors_order(items[a].dtype), right = safetensors_order(items[b].dtype);
    return left != right ? left > right : items[a].name < items[b].name;
  });
  return order;
}

/// Length prefix and padded JSON text.
[[nodiscard]] inline std::string safetensors_header_text(std::span<const SafetensorsItem> items,
                                                         std::span<const std::size_t> order,
                                                         const SafetensorsMetadata& metadata, std::uint64_t& data_bytes) {
  JsonWriter json;
  json.begin_object();
  if (!metadata.empty()) {
    json.key("__metadata__").begin_object();
    for (const auto& [key, value] : metadata) json.key(key).value(value);
    json.end_object();
  }
  data_bytes = 0;
  for (const std::size_t i : order) {
    const SafetensorsItem& item = items[i];
    const std::uint64_t bytes = safetensors_bytes(item);
    json.key(item.name).begin_object();
    json.key("dtype").value(safetensors_types[safetensors_order(item.dtype)].name).key("shape").begin_array();
    for (int axis = 0; axis < item.shape.rank(); ++axis) {
      const bool halves = item.dtype == DType::float4_e2m1fn_x2 && axis == item.shape.rank() - 1;
      json.value(item.shape[axis] * (halves ? 2 : 1));
    }
    if (item.dtype == DType::float4_e2m1fn_x2 && item.shape.rank() == 0) {
      throw UnsupportedError(concat("tensor ", in_quotes(item.name), " of float4 pairs needs an axis in a safetensors file"),
                             {.key = item.name});
    }
    json.end_array().key("data_offsets").begin_array().value(data_bytes).value(data_bytes + bytes).end_array().end_object();
    data_bytes += bytes;
  }
  json.end_object();
  std::string text = json.take();
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > safetensors_header_limit) {
    throw InvalidArgument(concat("a safetensors header of ", text.size(), " bytes for ", items.size(),
                                 " tensors is larger than the 100000000 allowed; spread them over several files"));
  }
  std::string prefix;
  for (int i = 0; i < 8; ++i) prefix.push_back(static_cast<char>(std::uint64_t{text.size()} >> (8 * i) & 0xFFu));
  return prefix + text;
}

inline void refuse_twins(std::span<const SafetensorsItem> items) {
  std::vector<std::string_view> names;
  names.reserve(items.size());
  for (const SafetensorsItem& item : items) names.push_back(item.name);
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end())
    throw InvalidArgument(concat("two tensors are named ", in_quotes(*twin)), {.key = std::string(*twin)});
}

/// Row-major bytes of a view in host memory, in pieces.
template <class Sink>
void emit_tensor(const TensorView& view, Sink&& sink) {
  const auto* const base = static_cast<const std::byte*>(view.data);
  if (view.numel() == 0) return;
  if (view.contiguous()) return sink(std::span(base, view.nbytes()));
  const std::size_t width = size_of(view.dtype);
  const int last = view.shape.rank() - 1;
  std::vector<std::byte> row(static_cast<std::size_t>(view.shape[last]) * width);
  Dims at = Dims::filled(view.shape.rank(), 0);
  while (true) {
    std::int64_t offset = 0;
    for (int axis = 0; axis < last; ++axis) offset += at[axis] * view.strides[axis];
    for (std::int64_t i = 0; i < view.shape[last]; ++i) {
      const std::byte* const from = base + (offset + i * view.strides[last]) * static_cast<std::int64_t>(width);
      std::memcpy(row.data() + static_cast<std::size_t>(i) * width, from, width);
    }
    sink(std::span<const std::byte>(row));
    int axis = last - 1;
    while (axis >= 0 && ++at[axis] == view.shape[axis]) at[axis--] = 0;
    if (axis < 0) return;
  }
}

}  // namespace detail

/// Writes one safetensors file, synced and closed. `produce(i, sink)` is called once for each item, in the order of
/// the file, and gives the row-major bytes of item `i` by calling `sink(std::span<const std::byte>)` as often as it likes.
/// Local, blocking. Names, dtypes and the header's size are checked before the file is made: InvalidArgument,
/// UnsupportedError for dtypes that the format has no name for; IoError.
template <class Produce>
void write_safetensors(FileSystem& files, const std::string& path, std::span<const SafetensorsItem> items,
                       const SafetensorsMetadata& metadata, Produce&& produce) {
  detail::refuse_twins(items);
  for (const SafetensorsItem& item : items) static_cast<void>(detail::safetensors_bytes(item));
  const auto order = detail::safetensors_layout(items);
  std::uint64_t data_bytes = 0;
  const std::string header = detail::safetensors_header_text(items, order, metadata, data_bytes);
  SequentialWriter out(files.create(path), header.size() + data_bytes, std::size_t{4} << 20);
  out.append(std::as_bytes(std::span(header)));
  std::uint64_t due = header.size();
  for (const std::size_t i : order) {
    due += detail::safetensors_bytes(items[i]);
    produce(i, [&](std::span<const std::byte> piece) { out.append(piece); });
    if (out.position() != due) {
      throw InvalidArgument(
          concat("the data of tensor ", detail::in_quotes(items[i].name), " ended at byte ", out.position(), " of ", path,
                 " where byte ", due, " was due; give exactly the bytes of its shape"),
          {.key = items[i].name, .file = path});
    }
  }
  out.finish();
}

/// A tensor in host memory with its name; strided ones are written row-major.
struct NamedTensor {
  std::string name;
  TensorView tensor;
};

namespace detail {

[[nodiscard]] inline std::vector<SafetensorsItem> items_of(std::span<const NamedTensor> tensors) {
  std::vector<SafetensorsItem> items;
  for (const NamedTensor& named : tensors) {
    if (named.tensor.space != MemorySpace::host) {
      throw InvalidArgument(concat("tensor ", in_quotes(named.name), " is not in host memory; copy it there first"),
                            {.key = named.name});
    }
    items.push_back({named.name, named.tensor.dtype, named.tensor.shape});
  }
  return items;
}

}  // namespace detail

/// As above, from tensors in host memory.
inline void write_safetensors(FileSystem& files, const std::string& path, std::span<const NamedTensor> tensors,
                              const SafetensorsMetadata& metadata = {}) {
  const auto items = detail::items_of(tensors);
  write_safetensors(files, path, items, metadata,
                    [&](std::size_t i, auto&& sink) { detail::emit_tensor(tensors[i].tensor, sink); });
}

/// Writes a folder as Hugging Face's `save_pretrained` does: files of at most `most_bytes` of data each (one tensor
/// alone may be larger), filled in the order given, named model-00001-of-00002.safetensors and so on, then
/// `model.safetensors.index.json`; a model that fits into one file is `model.safetensors` without an index. The folder
/// must exist. Otherwise as `write_safetensors`.
template <class Produce>
void write_safetensors_sharded(FileSystem& files, const std::string& directory, std::span<const SafetensorsItem> items,
                               const SafetensorsMetadata& metadata, std::uint64_t most_bytes, Produce&& produce) {
  if (most_bytes == 0) throw InvalidArgument("a size limit of 0 bytes for a file leaves room for no tensor");
  detail::refuse_twins(items);
  std::vector<std::size_t> starts;  // first item of each file
  std::uint64_t total = 0, filled = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::uint64_t bytes = detail::safetensors_bytes(items[i]);
    if (starts.empty() || filled > most_bytes || bytes > most_bytes - filled) {
      starts.push_back(i);
      filled = 0;
    }
    filled += bytes;
    total += bytes;
  }
  const auto write_part = [&](const std::string& name, std::size_t first, std::size_t last) {
    write_safetensors(files, join_path(directory, name), items.subspan(first, last - first), metadata,
                      [&](std::size_t i, auto&& sink) { produce(first + i, sink); });
  };
  if (starts.size() <= 1) return write_part("model.safetensors", 0, items.size());
  const auto five = [](std::size_t number) {
    const std::string digits = std::to_string(number);
    return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  };
  std::map<std::string_view, std::string> places;
  for (std::size_t part = 0; part < starts.size(); ++part) {
    const std::size_t last = part + 1 < starts.size() ? starts[part + 1] : items.size();
    const std::string name = concat("model-", five(part + 1), "-of-", five(starts.size()), ".safetensors");
    write_part(name, starts[part], last);
    for (std::size_t i = starts[part]; i < last; ++i) places.emplace(items[i].name, name);
  }
  JsonWriter json(2);
  json.begin_object().key("metadata").begin_object().key("total_size").value(total).end_object();
  json.key("weight_map").begin_object();
  for (const auto& [name, file] : places) json.key(name).value(file);
  json.end_object().end_object();
  const std::string text = json.take() + "\n";
  const auto index = files.create(join_path(directory, "model.safetensors.index.json"));
  index->write_at(0, std::as_bytes(std::span(text)));
  index->sync();
  index->close();
}

/// As above, from tensors in host memory.
inline void write_safetensors_sharded(FileSystem& files, const std::string& directory, std::span<const NamedTensor> tensors,
                                      const SafetensorsMetadata& metadata, std::uint64_t most_bytes) {
  const auto items = detail::items_of(tensors);
  write_safetensors_sharded(files, directory, items, metadata, most_bytes,
                            [&](std::size_t i, auto&& sink) { detail::emit_tensor(tensors[i].tensor, sink); });
}

MGROUPS_END_NAMESPACE
