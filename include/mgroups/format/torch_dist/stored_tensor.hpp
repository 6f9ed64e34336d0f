// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/format/countable.hpp>
#include <mgroups/format/read_at.hpp>
#include <mgroups/format/torch_dist/archive_reader.hpp>
#include <mgroups/format/torch_dist/pickle_reader.hpp>
#include <mgroups/format/torch_dist/pickle_text.hpp>
#include <mgroups/format/torch_dist/storage_types.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Where a tensor lies in its archive, and how: all its elements are known to lie inside the storage.
struct StoredTensor {
  DType dtype = DType::float32;
  Dims shape;
  Dims strides;  ///< in elements, not negative; row-major unless the tensor was saved transposed or the like
  std::uint64_t data_offset = 0;    ///< of element (0, ..., 0), in bytes from the archive's start
  std::uint64_t storage_begin = 0;  ///< of the storage, in bytes from the archive's start
  std::uint64_t storage_bytes = 0;
  std::uint32_t crc = 0;    ///< CRC-32 of the whole storage; 0 where the writer computed none
  bool big_endian = false;  ///< each number's bytes are in big-endian order

  [[nodiscard]] bool contiguous() const noexcept { return is_contiguous(shape, strides); }
};

namespace detail {

/// Reads the call that rebuilds a tensor, as `data.pkl` records it.
class TensorDecoder {
 public:
  explicit TensorDecoder(const Archive& archive, bool big_endian) : archive_(archive) { out_.big_endian = big_endian; }

  [[nodiscard]] StoredTensor decode(PickleValue value) {
    if (is_call(value, "_rebuild_parameter") && value.args().size() >= 1) value = value.args()[0];
    const bool typed = is_call(value, "_rebuild_tensor_v2"), untyped = is_call(value, "_rebuild_tensor_v3");
    if (!typed && !untyped) refuse("holds ", value, " where a dense tensor must be");
    const PickleValue args = value.args();
    const std::size_t fixed = untyped ? 7 : 6;
    if (args.size() < fixed) refuse("rebuilds its tensor from too few arguments, ", args, "");
    if (args.size() > fixed && !empty_dict(args[fixed])) refuse("holds a tensor with pending operations ", args[fixed], "");
    const std::uint64_t elements = storage(args[0], untyped ? std::optional(args[6]) : std::nullopt);
    const std::int64_t first = number(args[1], "a storage offset");
    out_.shape = dims(args[2], "a size");
    out_.strides = dims(args[3], "a stride");
    check_bounds(first, elements);
    return out_;
  }
  /// That of the storage of the tensor decoded last.
  [[nodiscard]] const ArchiveRecord& record() const noexcept { return *record_; }

 private:
  [[nodiscard]] static bool is_call(PickleValue value, std::string_view function) {
    return value.is(PickleKind::object) && value.callable().is_global("torch._utils", function);
  }
  [[nodiscard]] static bool empty_dict(PickleValue value) {
    return value.is_none() || (value.is(PickleKind::dict) && value.size() == 0);
  }
  [[noreturn]] void refuse(std::string_view before, PickleValue value, std::string_view after) const {
    throw UnsupportedError(concat(archive_.title(), ' ', before, to_string(value, 160), after),
                           {.key = std::string(archive_.key()), .file = std::string(archive_.file())});
  }

  /// Finds the storage's record; returns its number of elements.
  [[nodiscard]] std::uint64_t storage(PickleValue value, std::optional<PickleValue> dtype_value) {
    if (!value.is(PickleKind::persistent)) archive_.fail("has a tensor without a storage");
    const PickleValue id = value.persistent_id();
    if (!id.is(PickleKind::tuple) || id.size() < 5 || !id[0].is(PickleKind::string) || id[0].as_string() != "storage" ||
        !id[1].is(PickleKind::global) || !id[2].is(PickleKind::string)) {
      archive_.fail(concat("refers to its storage by ", to_string(id, 160)));
    }
    set_dtype(id[1], dtype_value);
    const std::int64_t count = number(id[4], "a number of elements");
    const std::size_t width = size_of(out_.dtype);
    const auto bytes = dtype_value ? std::optional(count) : checked_mul(count, static_cast<std::int64_t>(width));
    const ArchiveRecord& record = archive_.at(concat("data/", id[2].as_string()));
    if (!bytes || static_cast<std::uint64_t>(*bytes) != record.size) {
      archive_.fail(concat("claims a storage of ", count, dtype_value ? " bytes" : " elements", " of ", name(out_.dtype),
                           ", but its record has ", record.size, " bytes"));
    }
    out_.storage_begin = archive_.data_offset(record);
    out_.storage_bytes = record.size;
    out_.crc = record.crc;
    record_ = &record;
    return record.size / width;
  }
  void set_dtype(PickleValue storage_class, std::optional<PickleValue> dtype_value) {
    std::optional<DType> dtype;
    if (dtype_value) {
      if (!storage_class.is_global("torch.storage", "UntypedStorage")) refuse("has a storage of class ", storage_class, "");
      if (dtype_value->is(PickleKind::global) && dtype_value->module_name() == "torch") {
        dtype = dtype_from_name(dtype_value->class_name());
      }
      if (!dtype) refuse("has elements of type ", *dtype_value, ", which mgroups does not know");
    } else {
      if (storage_class.module_name() == "torch") dtype = storage_dtype(storage_class.class_name());
      if (!dtype) refuse("has a storage of class ", storage_class, ", which mgroups does not know");
    }
    out_.dtype = *dtype;
  }
  [[nodiscard]] std::int64_t number(PickleValue value, std::string_view what) const {
    if (!value.is(PickleKind::integer) || value.as_int() < 0) {
      archive_.fail(concat("has ", to_string(value, 80), " where ", what, " must be"));
    }
    return value.as_int();
  }
  [[nodiscard]] Dims dims(PickleValue value, std::string_view what) const {
    if (!value.is(PickleKind::tuple))
      archive_.fail(concat("has ", to_string(value, 80), " where ", what, " of every axis must be"));
    if (value.size() > std::size_t{max_rank})
      refuse("has a tensor of more than 16 axes, ", value, ", which mgroups does not support");
    Dims out;
    for (std::size_t i = 0; i < value.size(); ++i) out.push_back(number(value[i], what));
    return out;
  }
  void check_bounds(std::int64_t first, std::uint64_t elements) {
    if (out_.shape.rank() != out_.strides.rank()) {
      archive_.fail(
          concat("has sizes ", to_string(out_.shape), " and strides ", to_string(out_.strides), " of different lengths"));
    }
    if (!countable(out_.shape)) archive_.fail(concat("has a tensor of too many elements, ", to_string(out_.shape)));
    const std::int64_t total = numel(out_.shape);
    std::optional<std::int64_t> last = first;
    for (int axis = 0; axis < out_.shape.rank() && last && total != 0; ++axis) {
      const auto reach = checked_mul(out_.shape[axis] - 1, out_.strides[axis]);
      last = reach ? checked_add(*last, *reach) : std::nullopt;
    }
    // A tensor without elements may point anywhere; it must not point past what can be counted.
    if (!last || (total != 0 && static_cast<std::uint64_t>(*last) >= elements)) {
      archive_.fail(concat("has a tensor with sizes ", to_string(out_.shape), ", strides ", to_string(out_.strides),
                           " and offset ", first, " that leaves its storage of ", elements, " elements"));
    }
    const std::uint64_t offset = total == 0 ? 0 : static_cast<std::uint64_t>(first) * size_of(out_.dtype);
    out_.data_offset = out_.storage_begin + offset;
  }

  const Archive& archive_;
  const ArchiveRecord* record_ = nullptr;
  StoredTensor out_;
};

}  // namespace detail

/// Whether an archive's numbers are stored in big-endian order: its record `byteorder`, little where there is none.
[[nodiscard]] inline bool archive_is_big_endian(const Archive& archive) {
  const ArchiveRecord* const record = archive.find("byteorder");
  if (record == nullptr) return false;
  if (record->size > 16) archive.fail("names no byte order");
  std::vector<std::byte> scratch;
  const auto bytes = archive.view_record(*record, scratch);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text == "big") return true;
  if (text != "little") archive.fail(concat("names the byte order ", detail::in_quotes(text), "; little and big are known"));
  return false;
}

/// The tensor that `value`, in the `data.pkl` of an archive, would rebuild. Throws FormatError where it contradicts
/// the archive, UnsupportedError for what is no dense tensor of a known dtype.
[[nodiscard]] inline StoredTensor stored_tensor(const Archive& archive, PickleValue value, bool big_endian) {
  return detail::TensorDecoder(archive, big_endian).decode(value);
}

/// The tensor in an archive of one tensor, of `length` bytes: an item of a .distcp file. Reads one block of 1 KiB at
/// each end (all of it up to 2 KiB) and, where that does not hold them, the description and headers; never the data.
/// Local, blocking. Throws FormatError and UnsupportedError naming `file_name` and `key`.
[[nodiscard]] inline StoredTensor read_tensor_archive(ReadAt read, std::uint64_t length, std::string_view file_name,
                                                      std::string_view key) {
  const Archive archive(read, length, file_name, key);
  const ArchiveRecord& record = archive.at("data.pkl");
  if (record.size > 65536)
    archive.fail(concat("describes its tensor in ", record.size, " bytes; no single tensor needs them"));
  std::vector<std::byte> scratch;
  const auto pickle = archive.view_record(record, scratch);
  const std::string title = archive.title();
  const PickleDocument document(pickle, title, PersistentIds::allowed);
  return stored_tensor(archive, document.root(), archive_is_big_endian(archive));
}

MGROUPS_END_NAMESPACE
