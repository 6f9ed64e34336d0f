// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/core/crc32.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/format/countable.hpp>
#include <mgroups/format/torch_dist/pickle_writer.hpp>
#include <mgroups/format/torch_dist/storage_types.hpp>
#include <mgroups/format/torch_dist/zip.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

inline constexpr std::string_view archive_byteorder = "little", archive_version = "3\n";

template <std::size_t N>
[[nodiscard]] consteval std::uint32_t constant_crc(const char (&text)[N]) {
  std::byte bytes[N] = {};
  for (std::size_t i = 0; i < N; ++i) bytes[i] = static_cast<std::byte>(text[i]);
  return ~crc32_slice(~0u, bytes, N - 1);
}
inline constexpr std::uint32_t archive_byteorder_crc = constant_crc("little"), archive_version_crc = constant_crc("3\n");

/// The call that rebuilds a row-major tensor which fills storage number `storage_key`, as torch.save writes it, without the
/// memo.
inline void put_tensor_call(PickleWriter& w, DType dtype, const Dims& shape, std::int64_t elements,
                            std::string_view storage_key) {
  const std::string_view storage = storage_class(dtype);
  const bool untyped = storage.empty();
  w.global("torch._utils", untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2").mark();
  w.mark().text("storage");
  if (untyped) {
    w.global("torch.storage", "UntypedStorage");
  } else {
    w.global("torch", storage);
  }
  w.text(storage_key).text("cpu").integer(untyped ? elements * static_cast<std::int64_t>(size_of(dtype)) : elements);
  w.marked_tuple().persistent_id();
  const Dims strides = row_major_strides(shape);
  w.integer(0).integers({shape.data(), shape.size()}).integers({strides.data(), strides.size()});
  w.boolean(false).empty_ordered_dict();
  if (untyped) w.global("torch", name(dtype));
  w.marked_tuple().reduce();
}

}  // namespace detail

/// The bytes that torch.save puts around the data of one row-major tensor: head, then `data_size()` bytes that the caller
/// streams, then tail. Data start at a multiple of 64 bytes from the archive's start. No allocation; about 1 KiB in all.
/// `torch.load(weights_only=True)` of torch 1.13 and newer reads the archive; its layout is section 3.1 of the format notes.
class TensorArchive {
 public:
  /// Throws InvalidArgument for a negative or overflowing shape.
  TensorArchive(DType dtype, const Dims& shape) {
    for (const std::int64_t size : shape) {
      if (size < 0)
        throw InvalidArgument(concat("a tensor of shape ", to_string(shape), " cannot be stored: a size is negative"));
    }
    if (!detail::countable(shape)) {
      throw InvalidArgument(
          concat("a tensor of shape ", to_string(shape), " and dtype ", name(dtype), " has too many bytes to be stored"));
    }
    const std::int64_t elements = numel(shape);
    data_size_ = static_cast<std::uint64_t>(elements) * size_of(dtype);
    put_head(dtype, shape, elements);
    put_tail();
  }

  [[nodiscard]] std::span<const std::byte> head() const noexcept { return {buffer_, head_size_}; }
  /// Where the data start in the archive.
  [[nodiscard]] std::uint64_t data_offset() const noexcept { return head_size_; }
  [[nodiscard]] std::uint64_t data_size() const noexcept { return data_size_; }
  [[nodiscard]] std::size_t tail_size() const noexcept { return tail_size_; }
  [[nodiscard]] std::uint64_t total_size() const noexcept { return head_size_ + data_size_ + tail_size_; }
  /// What follows the data. `crc` is their CRC-32; 0 says that none was computed. Valid until the next call.
  [[nodiscard]] std::span<const std::byte> tail(std::uint32_t crc) noexcept {
    std::byte* const begin = buffer_ + head_size_;
    if (data_size_ > 0) {
      detail::zip::Cursor(begin + 4).u32(crc);
      detail::zip::Cursor(begin + central_crc_).u32(crc);
    }
    return {begin, tail_size_};
  }

 private:
  static constexpr std::string_view prefix = "archive";
  // Sixteen axes of nine-byte numbers twice make a pickle of 610 bytes; headers and paddings stay below the rest.
  static constexpr std::size_t most_head = 1280, most_tail = 768;

  void put_head(DType dtype, const Dims& shape, std::int64_t elements) {
    namespace zip = detail::zip;
    zip::Cursor out(buffer_);
    // The pickle's length is only known once it is written; its header is not larger than 64 bytes.
    std::byte* const body = buffer_ + zip::alignment;
    std::byte* end = body;
    auto sink = [&](std::span<const std::byte> block) { end = zip::Cursor(end).bytes(block).at(); };
    PickleWriter w(sink);
    w.protocol();
    detail::put_tensor_call(w, dtype, shape, elements, "0");
    w.stop();
    const std::span<const std::byte> pickle(body, end);
    pickle_ = {.name = "data.pkl", .size = pickle.size(), .header = 0, .crc = crc32(pickle)};
    zip::put_local(out, prefix, pickle_);
    out = zip::Cursor(end);
    zip::put_descriptor(out, pickle_);
    byteorder_ = put_small(out, "byteorder", detail::archive_byteorder, detail::archive_byteorder_crc, offset(out));
    data_ = {.name = "data/0", .size = data_size_, .header = offset(out), .crc = 0};
    zip::put_local(out, prefix, data_);
    head_size_ = offset(out);
  }
  void put_tail() {
    namespace zip = detail::zip;
    std::byte* const begin = buffer_ + head_size_;
    zip::Cursor out(begin);
    zip::put_descriptor(out, data_);
    const zip::Record version = put_small(out, "version", detail::archive_version, detail::archive_version_crc,
                                          head_size_ + data_size_ + data_.descriptor_size());
    const auto written = [&] { return static_cast<std::size_t>(out.at() - begin); };
    const std::size_t central = written();
    zip::put_central(out, prefix, pickle_);
    zip::put_central(out, prefix, byteorder_);
    central_crc_ = written() + 16;
    zip::put_central(out, prefix, data_);
    zip::put_central(out, prefix, version);
    zip::put_end(out, 4, head_size_ + data_size_ + central, written() - central);
    tail_size_ = written();
  }
  [[nodiscard]] static detail::zip::Record put_small(detail::zip::Cursor& out, std::string_view name,
                                                     std::string_view content, std::uint32_t crc, std::uint64_t header) {
    const detail::zip::Record record{.name = name, .size = content.size(), .header = header, .crc = crc};
    detail::zip::put_local(out, prefix, record);
    out.text(content);
    detail::zip::put_descriptor(out, record);
    return record;
  }
  [[nodiscard]] std::size_t offset(const detail::zip::Cursor& out) const noexcept {
    return static_cast<std::size_t>(out.at() - buffer_);
  }

  std::uint64_t data_size_ = 0;
  std::size_t head_size_ = 0;
  std::size_t tail_size_ = 0;
  std::size_t central_crc_ = 0;  // within the tail
  detail::zip::Record pickle_, byteorder_, data_;
  std::byte buffer_[most_head + most_tail];  // head, then tail; what is not written is never read
};

/// A whole torch.save archive in memory: `data.pkl`, `byteorder`, the records added, `version`.
class ObjectArchive {
 public:
  /// `prefix` is the folder that all records share: `archive` in .distcp files, the file's stem in files of their own
  /// (`common` for common.pt).
  explicit ObjectArchive(std::span<const std::byte> pickle, std::string_view prefix = "archive") : prefix_(prefix) {
    if (prefix.empty() || prefix.size() > 1024 || prefix.find('/') != std::string_view::npos) {
      throw InvalidArgument("an archive's prefix has 1 to 1024 bytes and no slash");
    }
    add("data.pkl", pickle);
    add("byteorder", std::as_bytes(std::span(detail::archive_byteorder)));
  }

  /// A further record, such as `data/0`.
  void add(std::string_view record_name, std::span<const std::byte> content) {
    namespace zip = detail::zip;
    if (record_name.empty() || record_name.size() > 1024) throw InvalidArgument("a record's name has 1 to 1024 bytes");
    zip::Record record{.name = {}, .size = content.size(), .header = bytes_.size(), .crc = crc32(content)};
    names_.emplace_back(record_name);
    record.name = record_name;
    const auto header = static_cast<std::size_t>(record.local_size(prefix_));
    bytes_.resize(bytes_.size() + header + content.size() + static_cast<std::size_t>(record.descriptor_size()));
    zip::Cursor out(bytes_.data() + record.header);
    zip::put_local(out, prefix_, record);
    out.bytes(content);
    zip::put_descriptor(out, record);
    records_.push_back(record);
  }
  /// Closes the archive and gives it away.
  [[nodiscard]] std::vector<std::byte> finish() {
    namespace zip = detail::zip;
    add("version", std::as_bytes(std::span(detail::archive_version)));
    const std::size_t start = bytes_.size();
    std::size_t size = 0;
    for (std::size_t i = 0; i < records_.size(); ++i) {
      records_[i].name = names_[i];
      size += records_[i].central_size(prefix_);
    }
    bytes_.resize(start + size + zip::end_total);
    zip::Cursor out(bytes_.data() + start);
    for (const zip::Record& record : records_) zip::put_central(out, prefix_, record);
    zip::put_end(out, records_.size(), start, size);
    return std::move(bytes_);
  }

 private:
  std::string prefix_;
  std::vector<std::byte> bytes_;
  std::vector<std::string> names_;
  std::vector<detail::zip::Record> records_;
};

/// A whole torch.save archive around one pickle.
[[nodiscard]] inline std::vector<std::byte> write_object_archive(std::span<const std::byte> pickle,
                                                                 std::string_view prefix = "archive") {
  return ObjectArchive(pickle, prefix).finish();
}

MGROUPS_END_NAMESPACE
