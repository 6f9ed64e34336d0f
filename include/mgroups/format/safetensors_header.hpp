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

#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/format/countable.hpp>
#include <mgroups/format/json.hpp>
#include <mgroups/format/utf8.hpp>
#include <mgroups/io/file.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

struct SafetensorsType {
  std::string_view name;
  int bits;
  std::optional<DType> dtype;
};

// In the order of the reference implementation's enum (safetensors 0.8), which its writer sorts by.
inline constexpr SafetensorsType safetensors_types[] = {
    {"BOOL", 8, DType::bool_},
    {"F4", 4, DType::float4_e2m1fn_x2},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"U8", 8, DType::uint8},
    {"I8", 8, DType::int8},
    {"F8_E5M2", 8, DType::float8_e5m2},
    {"F8_E4M3", 8, DType::float8_e4m3fn},
    {"F8_E8M0", 8, DType::float8_e8m0fnu},
    {"F8_E4M3FNUZ", 8, DType::float8_e4m3fnuz},
    {"F8_E5M2FNUZ", 8, DType::float8_e5m2fnuz},
    {"I16", 16, DType::int16},
    {"U16", 16, DType::uint16},
    {"F16", 16, DType::float16},
    {"BF16", 16, DType::bfloat16},
    {"I32", 32, DType::int32},
    {"U32", 32, DType::uint32},
    {"F32", 32, DType::float32},
    {"C64", 64, DType::complex64},
    {"F64", 64, DType::float64},
    {"I64", 64, DType::int64},
    {"U64", 64, DType::uint64},
};

/// The place of a dtype in the table, or -1 where safetensors has no name for it.
[[nodiscard]] constexpr int safetensors_order(DType dtype) noexcept {
  int order = 0;
  for (const SafetensorsType& type : safetensors_types) {
    if (type.dtype == dtype) return order;
    ++order;
  }
  return -1;
}

}  // namespace detail

/// The most bytes that a header may have, by the format's definition.
inline constexpr std::uint64_t safetensors_header_limit = 100'000'000;

/// A tensor of a safetensors file.
struct SafetensorsEntry {
  std::string name;
  std::string stored_type;     ///< the format's own name of the element type
  std::optional<DType> dtype;  ///< nothing for the six-bit types, which PyTorch does not have
  Dims shape;  ///< as PyTorch counts: of F4, whose pairs share a byte, the last axis is half of what the file says
  std::uint64_t begin = 0;  ///< in bytes from the start of the file
  std::uint64_t end = 0;

  /// Throws UnsupportedError for elements of a type that cannot be read.
  [[nodiscard]] DType element_type() const {
    if (!dtype) {
      throw UnsupportedError(concat("tensor ", detail::in_quotes(name), " has elements of type ", stored_type,
                                    ", which PyTorch and mgroups do not have; it can be listed, but not read"),
                             {.key = name});
    }
    return *dtype;
  }
};

/// What the header of one file says.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of their data
  std::map<std::string, std::string, std::less<>> metadata;
};

namespace detail {

class SafetensorsParser {
 public:
  SafetensorsParser(std::string text, std::uint64_t data_start, std::uint64_t file_size, std::string_view file_name)
      : file_(file_name), data_start_(data_start), data_size_(file_size - data_start) {
    if (text.empty() || text.front() != '{') fail({}, "has a header that does not start with '{'");
    document_.emplace(JsonDocument::parse(std::move(text), file_name));
  }

  [[nodiscard]] SafetensorsHeader parse() {
    SafetensorsHeader out;
    document_->root().for_each_member([&](std::string_view key, JsonValue value) {
      if (key == "__metadata__") {
        value.for_each_member([&](std::string_view name, JsonValue text) { out.metadata.emplace(name, text.as_string()); });
      } else {
        out.entries.push_back(entry(key, value));
      }
    });
    std::sort(out.entries.begin(), out.entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end != b.end ? a.end < b.end : a.name < b.name;
    });
    std::uint64_t next = 0;
    for (SafetensorsEntry& one : out.entries) {
      if (one.begin != next) {
        fail(one.name, concat("starts at byte ", one.begin, " of the data, where byte ", next,
                              " was due: ", one.begin < next ? "tensors overlap" : "bytes lie between two tensors"));
      }
      next = one.end;
      one.begin += data_start_;
      one.end += data_start_;
    }
    if (next != data_size_) {
      fail({}, concat("has ", data_start_ + data_size_, " bytes where its header needs ", data_start_ + next,
                      next > data_size_ ? "; it was cut short" : "; it is longer than it should be"));
    }
    return out;
  }

 private:
  [[noreturn]] void fail(std::string_view key, const std::string& what) const {
    throw FormatError(
        concat(file_, key.empty() ? " " : ": tensor ", key.empty() ? "" : in_quotes(key), key.empty() ? "" : " ", what),
        {.key = std::string(key), .file = std::string(file_)});
  }

  [[nodiscard]] SafetensorsEntry entry(std::string_view key, JsonValue value) const {
    SafetensorsEntry out;
    out.name = key;
    out.stored_type = value.at("dtype").as_string();
    const auto* const type =
        std::find_if(std::begin(safetensors_types), std::end(safetensors_types),
                     [&](const SafetensorsType& candidate) { return candidate.name == out.stored_type; });
    if (type == std::end(safetensors_types))
      fail(key, concat("has elements of the unknown type ", in_quotes(out.stored_type)));
    out.dtype = type->dtype;
    const JsonValue shape = value.at("shape");
    if (shape.size() > std::size_t{max_rank}) {
      throw UnsupportedError(
          concat(file_, ": tensor ", in_quotes(key), " has ", shape.size(), " axes; mgroups supports ", max_rank),
          {.key = std::string(key), .file = std::string(file_)});
    }
    shape.for_each_element([&](JsonValue size) {
      if (size.as_uint64() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        size.fail("is no size of an axis");
      out.shape.push_back(static_cast<std::int64_t>(size.as_uint64()));
    });
    const auto bits = countable(out.shape) ? checked_mul(numel(out.shape), type->bits) : std::nullopt;
    if (!bits || *bits % 8 != 0)
      fail(key, concat("has a shape that is no number of bytes, ", to_string(out.shape), " of ", type->name));
    const JsonValue offsets = value.at("data_offsets");
    if (!offsets.is_array() || offsets.size() != 2) offsets.fail("is not the pair that data_offsets must be");
    int which = 0;
    offsets.for_each_element([&](JsonValue offset) { (which++ == 0 ? out.begin : out.end) = offset.as_uint64(); });
    if (out.begin > out.end || out.end - out.begin != static_cast<std::uint64_t>(*bits) / 8) {
      fail(key, concat("of shape ", to_string(out.shape), " and type ", type->name, " cannot lie in bytes ", out.begin,
                       " to ", out.end, " of the data"));
    }
    if (type->dtype == DType::float4_e2m1fn_x2) {
      const int last = out.shape.rank() - 1;
      if (last < 0 || out.shape[last] % 2 != 0)
        fail(key, concat("of type F4 has no last axis of even size: ", to_string(out.shape)));
      out.shape[last] /= 2;
    }
    return out;
  }

  std::string_view file_;
  std::uint64_t data_start_, data_size_;
  std::optional<JsonDocument> document_;
};

}  // namespace detail

/// Reads the header of a safetensors file and checks all of it: the tensors must fill the data without holes or overlaps, to
/// the last byte. Reads no data. Local, blocking. Throws FormatError naming file and tensor, UnsupportedError beyond
/// 16 axes.
[[nodiscard]] inline SafetensorsHeader read_safetensors_header(File& file) {
  const std::uint64_t size = file.size();
  const auto fail = [&](const std::string& what) {
    throw FormatError(concat(file.path(), ' ', what), {.file = file.path()});
  };
  if (size < 8) fail(concat("has ", size, " bytes, too few for a safetensors file"));
  std::byte prefix[8];
  file.read_at(0, prefix);
  std::uint64_t length = 0;
  for (int i = 8; i-- > 0;) length = length << 8 | std::to_integer<std::uint64_t>(prefix[i]);
  if (length > safetensors_header_limit)
    fail(concat("claims a header of ", length, " bytes; at most 100000000 are allowed"));
  if (length > size - 8) fail(concat("claims a header of ", length, " bytes, but has only ", size, " in all; it is cut"));
  std::string text(static_cast<std::size_t>(length), '\0');
  file.read_at(8, std::as_writable_bytes(std::span(text)));
  return detail::SafetensorsParser(std::move(text), 8 + length, size, file.path()).parse();
}

MGROUPS_END_NAMESPACE
