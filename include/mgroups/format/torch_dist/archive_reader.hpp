// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/core/crc32.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/format/read_at.hpp>
#include <mgroups/format/torch_dist/archive_bytes.hpp>
#include <mgroups/format/torch_dist/zip.hpp>
#include <mgroups/format/utf8.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// One record of an archive.
struct ArchiveRecord {
  std::string_view name;     ///< without the prefix; lives as long as the Archive
  std::uint64_t size = 0;    ///< bytes
  std::uint64_t header = 0;  ///< where its local header starts
  std::uint32_t crc = 0;     ///< CRC-32 of the data; 0 also where the writer computed none
  std::uint64_t end = 0;     ///< where the next record, or the directory, starts
};

/// Whether a record's bytes are compared with its checksum.
enum class VerifyCrc : bool { no, yes };

/// The records of a torch.save archive. The central directory alone is believed, and only after these checks: stored,
/// not encrypted, one disk, equal sizes, inside the archive, no two overlapping, no two of one name, one shared prefix.
/// Local, blocking. Everything wrong is a FormatError that names file and key.
class Archive : private detail::ArchiveBytes {
 public:
  /// Reads the ends of the archive, one block each, and no data. `read` gives its `length` bytes, counted from its
  /// start; it, `file_name` and `key` (what the file holds there, for sentences; may be empty) must outlive the archive.
  Archive(ReadAt read, std::uint64_t length, std::string_view file_name, std::string_view key = {})
      : ArchiveBytes(read, length, file_name, key) {
    read_directory(find_directory());
  }

  using ArchiveBytes::fail;  ///< throws the FormatError "<file>: the archive of '<key>' <what>"
  using ArchiveBytes::file;
  using ArchiveBytes::key;
  using ArchiveBytes::title;  ///< "<file>: the archive of '<key>'"

  [[nodiscard]] std::span<const ArchiveRecord> records() const noexcept { return records_; }
  /// The folder that all names start with, without its slash.
  [[nodiscard]] std::string_view prefix() const noexcept { return prefix_; }
  /// Whether the archive has the record.
  [[nodiscard]] const ArchiveRecord* find(std::string_view record_name) const noexcept {
    if (by_name_.empty()) {
      const auto found =
          std::find_if(records_.begin(), records_.end(), [&](const auto& r) { return r.name == record_name; });
      return found == records_.end() ? nullptr : &*found;
    }
    const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), record_name,
                                        [&](std::uint32_t i, std::string_view wanted) { return records_[i].name < wanted; });
    return found == by_name_.end() || records_[*found].name != record_name ? nullptr : &records_[*found];
  }
  [[nodiscard]] const ArchiveRecord& at(std::string_view record_name) const {
    const ArchiveRecord* const record = find(record_name);
    if (record == nullptr) fail(concat("has no record ", detail::in_quotes(record_name)));
    return *record;
  }

  /// Where a record's data start. Reads its local header and checks it against the directory.
  [[nodiscard]] std::uint64_t data_offset(const ArchiveRecord& record) const {
    namespace zip = detail::zip;
    std::vector<std::byte> scratch;
    const std::size_t names = prefix_.size() + 1 + record.name.size();
    const auto local = view(record.header, zip::local_bytes + names, scratch);
    if (u32(local, 0) != zip::local_signature || u16(local, 8) != 0 || u16(local, 26) != names ||
        text(local.subspan(zip::local_bytes, prefix_.size())) != prefix_ ||
        text(local.subspan(names - record.name.size() + zip::local_bytes)) != record.name) {
      fail(concat("does not have the header of record ", detail::in_quotes(record.name), " at byte ", record.header));
    }
    const std::uint64_t data = record.header + zip::local_bytes + names + u16(local, 28);
    if (data > directory_start_ || record.size > directory_start_ - data || data + record.size > record.end) {
      fail(concat("has record ", detail::in_quotes(record.name), " reach into what follows it"));
    }
    return data;
  }
  /// All bytes of a record. With `VerifyCrc::yes` they must have its checksum, unless that is 0.
  [[nodiscard]] std::vector<std::byte> read(const ArchiveRecord& record, VerifyCrc verify = VerifyCrc::yes) const {
    std::vector<std::byte> scratch;
    const auto bytes = view_record(record, scratch, verify);
    return scratch.empty() ? std::vector<std::byte>(bytes.begin(), bytes.end()) : std::move(scratch);
  }
  /// As `read`, without a copy where the bytes are in memory already; else `scratch` holds them.
  [[nodiscard]] std::span<const std::byte> view_record(const ArchiveRecord& record, std::vector<std::byte>& scratch,
                                                       VerifyCrc verify = VerifyCrc::yes) const {
    const auto bytes = view(data_offset(record), record.size, scratch);
    if (verify == VerifyCrc::yes && record.crc != 0) {
      if (const std::uint32_t crc = crc32(bytes); crc != record.crc) {
        fail(concat("has record ", detail::in_quotes(record.name), " with checksum ", crc, " instead of ", record.crc,
                    "; the file is damaged"));
      }
    }
    return bytes;
  }

 private:
  void read_directory(const Directory& directory) {
    namespace zip = detail::zip;
    directory_start_ = directory.start;
    auto rest = view(directory.start, directory.size, directory_);
    records_.reserve(static_cast<std::size_t>(directory.records));
    for (std::uint64_t i = 0; i < directory.records; ++i) {
      if (rest.size() < zip::central_bytes || u32(rest, 0) != zip::central_signature)
        fail(concat("has a broken directory at record ", i));
      const std::size_t names = u16(rest, 28), extra = u16(rest, 30);
      const std::size_t total = zip::central_bytes + names + extra + u16(rest, 32);
      if (rest.size() < total) fail(concat("has a broken directory at record ", i));
      add_record(rest.first(zip::central_bytes), text(rest.subspan(zip::central_bytes, names)),
                 rest.subspan(zip::central_bytes + names, extra));
      rest = rest.subspan(total);
    }
    if (!rest.empty()) fail("has a directory that is longer than its records");
    check_overlaps();
    check_names();
  }
  void add_record(std::span<const std::byte> entry, std::string_view full_name, std::span<const std::byte> extra) {
    namespace zip = detail::zip;
    const std::size_t slash = full_name.find('/');
    if (slash == 0 || slash == std::string_view::npos)
      fail(concat("has record ", detail::in_quotes(full_name), " outside of a folder"));
    if (records_.empty()) prefix_ = full_name.substr(0, slash);
    if (full_name.substr(0, slash) != prefix_) {
      fail(concat("has record ", detail::in_quotes(full_name), " outside of its folder ", detail::in_quotes(prefix_)));
    }
    ArchiveRecord record{full_name.substr(slash + 1), u32(entry, 24), u32(entry, 42), u32(entry, 16)};
    std::uint64_t stored = u32(entry, 20), disk = u16(entry, 34);
    take_zip64(extra, record, stored, disk);
    const std::uint16_t flags = u16(entry, 8);
    // Bit 0 encrypts, 5 is a patch, 6 and 13 encrypt more.
    if ((flags & 0x2061u) != 0) fail(concat("has the encrypted record ", detail::in_quotes(record.name)));
    if (u16(entry, 10) != 0)
      fail(concat("has the compressed record ", detail::in_quotes(record.name), "; torch.save only stores"));
    if (disk != 0) fail("is spread over several disks");
    if (stored != record.size)
      fail(concat("gives record ", detail::in_quotes(record.name), " two sizes, ", record.size, " and ", stored));
    const std::uint64_t bare = zip::local_bytes + full_name.size();
    if (record.header > directory_start_ || directory_start_ - record.header < bare ||
        record.size > directory_start_ - record.header - bare) {
      fail(concat("has record ", detail::in_quotes(record.name), " of ", record.size, " bytes at byte ", record.header,
                  ", which reaches behind its data"));
    }
    records_.push_back(record);
  }
  /// Numbers that did not fit into 32 bits follow in a fixed order, each only where its short form says so.
  void take_zip64(std::span<const std::byte> extra, ArchiveRecord& record, std::uint64_t& stored,
                  std::uint64_t& disk) const {
    namespace zip = detail::zip;
    while (extra.size() >= 4) {
      const std::size_t n = u16(extra, 2);
      if (n > extra.size() - 4) fail(concat("has a broken extra field at record ", detail::in_quotes(record.name)));
      if (u16(extra, 0) == zip::zip64_tag) {
        auto field = extra.subspan(4, n);
        const auto take = [&](std::uint64_t& value) {
          if (value != zip::in_zip64) return;
          if (field.size() < 8) fail(concat("lacks a 64-bit number at record ", detail::in_quotes(record.name)));
          value = u64(field, 0);
          field = field.subspan(8);
        };
        take(record.size);
        take(stored);
        take(record.header);
        if (disk == 0xFFFF && field.size() >= 4) disk = u32(field, 0);
        return;
      }
      extra = extra.subspan(4 + n);
    }
  }
  [[nodiscard]] std::uint64_t bare_end(const ArchiveRecord& record) const noexcept {
    return record.header + detail::zip::local_bytes + prefix_.size() + 1 + record.name.size() + record.size;
  }
  /// Sets every record's `end`; bare sizes may not reach behind it.
  void check_overlaps() {
    const auto check = [&](ArchiveRecord& record, const ArchiveRecord* next) {
      record.end = next != nullptr ? next->header : directory_start_;
      if (bare_end(record) > record.end) {
        fail(concat("has records ", detail::in_quotes(record.name), " and ", detail::in_quotes(next->name), " overlap"));
      }
    };
    const auto before = [&](std::uint32_t a, std::uint32_t b) { return records_[a].header < records_[b].header; };
    std::vector<std::uint32_t> order;
    const auto by_header = [](const ArchiveRecord& a, const ArchiveRecord& b) { return a.header < b.header; };
    if (!std::is_sorted(records_.begin(), records_.end(), by_header)) {
      order.resize(records_.size());
      std::iota(order.begin(), order.end(), 0u);
      std::sort(order.begin(), order.end(), before);
    }
    const std::size_t n = records_.size();
    for (std::size_t i = 0; i < n; ++i) {
      ArchiveRecord& record = records_[order.empty() ? i : order[i]];
      check(record, i + 1 == n ? nullptr : &records_[order.empty() ? i + 1 : order[i + 1]]);
    }
  }
  void check_names() {
    const auto refuse = [&](std::string_view twin) { fail(concat("has two records ", detail::in_quotes(twin))); };
    if (records_.size() <= 16) {
      for (std::size_t i = 1; i < records_.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          if (records_[i].name == records_[j].name) refuse(records_[i].name);
        }
      }
      return;
    }
    by_name_.resize(records_.size());
    std::iota(by_name_.begin(), by_name_.end(), 0u);
    std::sort(by_name_.begin(), by_name_.end(), [&](auto a, auto b) { return records_[a].name < records_[b].name; });
    for (std::size_t i = 1; i < by_name_.size(); ++i) {
      if (records_[by_name_[i]].name == records_[by_name_[i - 1]].name) refuse(records_[by_name_[i]].name);
    }
  }

  std::vector<std::byte> directory_;
  std::uint64_t directory_start_ = 0;
  std::string_view prefix_;
  std::vector<ArchiveRecord> records_;
  std::vector<std::uint32_t> by_name_;  // records in the order of their names; empty where they are few
};

MGROUPS_END_NAMESPACE
