// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/common_state.hpp>
#include <mgroups/checkpoint/directory.hpp>
#include <mgroups/checkpoint/load_options.hpp>
#include <mgroups/checkpoint/load_report.hpp>
#include <mgroups/checkpoint/stored_object.hpp>
#include <mgroups/core/box_list.hpp>
#include <mgroups/core/crc32.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/tiling.hpp>
#include <mgroups/format/torch_dist/archive.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/format/torch_dist/stored_tensor.hpp>
#include <mgroups/io/posix.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// What is wrong with a checkpoint, and what could be looked at.
struct VerifyReport {
  std::vector<std::string> faults;  ///< a sentence each; none: the checkpoint is whole, as far as it can be told
  std::vector<std::string> notes;   ///< what is odd, and no fault: files that do not belong to the checkpoint
  std::size_t tensors = 0;
  std::size_t objects = 0;
  std::uint64_t bytes = 0;            ///< of data files
  std::uint64_t unchecked_bytes = 0;  ///< of them, those that no checksum covers
};

namespace detail {

/// Looks at everything that a checkpoint says of itself. One fault never hides another.
class Verifier {
 public:
  Verifier(FileSystem& files, const OpenedCheckpoint& opened, const LoadOptions& options)
      : files_(files), opened_(opened), options_(options), metadata_(opened.metadata), buffer_(std::size_t{1} << 20) {}

  [[nodiscard]] VerifyReport run() {
    out_.tensors = metadata_.tensors.size();
    out_.objects = metadata_.objects.size();
    for (const auto& [key, reason] : metadata_.unreadable) fault(concat("'", key, "' cannot be read: ", reason));
    for (const auto& [key, tensor] : metadata_.tensors) check_cover(key, tensor);
    check_items();
    attempt([&] { check_common(); });
    note_extra_files();
    return std::move(out_);
  }

 private:
  struct Item {
    StorageInfo at;
    std::string_view key;
    const TensorEntry* tensor;  // null: an object
    std::size_t chunk;
  };

  void fault(std::string sentence) { out_.faults.push_back(std::move(sentence)); }
  template <class Step>
  void attempt(Step&& step) {
    try {
      step();
    } catch (const Error& error) {
      fault(error.what());
    }
  }

  void check_cover(const std::string& key, const TensorEntry& tensor) {
    BoxList boxes(tensor.shape.rank());
    for (std::size_t i = 0; i < tensor.chunk_count(); ++i) boxes.push_back(tensor.chunk_box(i));
    const auto found = find_tiling_fault(boxes, tensor.shape);
    if (!found) return;
    fault(concat("tensor '", key, "' of shape ", to_string(tensor.shape), ": ",
                 found->overlap ? "two stored chunks hold " : "no stored chunk holds ", to_string(found->where)));
  }

  void check_items() {
    std::vector<Item> items;
    for (const auto& [key, tensor] : metadata_.tensors) {
      for (std::size_t i = 0; i < tensor.chunk_count(); ++i) items.push_back({tensor.chunk_storage(i), key, &tensor, i});
    }
    for (const auto& [key, at] : metadata_.objects) items.push_back({at, key, nullptr, 0});
    std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
      return a.at.file != b.at.file ? a.at.file < b.at.file : a.at.offset < b.at.offset;
    });
    for (std::size_t begin = 0; begin < items.size();) {
      std::size_t end = begin + 1;
      while (end < items.size() && items[end].at.file == items[begin].at.file) ++end;
      attempt([&] { check_file(std::span(items).subspan(begin, end - begin)); });
      begin = end;
    }
  }

  void check_file(std::span<const Item> items) {
    const std::string& name = metadata_.files[items[0].at.file];
    const std::string path = join_path(opened_.directory, name);
    if (files_.status(path).kind != FileKind::file) {
      std::set<std::string_view> keys;
      for (const Item& item : items) keys.insert(item.key);
      return fault(concat("the data file ", path, ", which holds parts of ",
                          list_text(std::vector<std::string_view>(keys.begin(), keys.end()), 8), ", does not exist"));
    }
    const auto file = files_.open_read(path);
    const std::uint64_t size = file->size();
    out_.bytes += size;
    const auto sums = opened_.checksums.find(name);
    const bool covered = sums != opened_.checksums.end();
    if (covered) check_blocks(*file, size, sums->second);
    std::uint64_t end = 0;
    std::string_view before;
    for (const Item& item : items) {
      if (auto misplaced = place_fault(path, size, item.key, item.at.offset, item.at.length)) {
        fault(std::move(*misplaced));
        continue;
      }
      if (item.at.offset < end) {
        fault(concat("in ", path, " '", item.key, "' lies at bytes ", item.at.offset, " to ",
                     item.at.offset + item.at.length, ", where '", before, "' lies too"));
      }
      end = std::max(end, item.at.offset + item.at.length);
      before = item.key;
      if (metadata_.unreadable.contains(item.key)) continue;
      attempt([&] { check_item(*file, path, item, covered); });
    }
  }

  void check_blocks(File& file, std::uint64_t size, const BlockChecksums& sums) {
    if (size != sums.file_bytes) {
      return fault(concat(file.path(), " has ", size, " bytes but was written with ", sums.file_bytes,
                          size < sums.file_bytes ? "; it was cut short" : "; it was changed afterwards"));
    }
    for (std::size_t i = 0; i < sums.blocks.size(); ++i) {
      const std::uint64_t begin = i * BlockChecksums::block_bytes;
      const auto part =
          std::span(buffer_).first(static_cast<std::size_t>(std::min(BlockChecksums::block_bytes, size - begin)));
      file.read_at(begin, part);
      if (options_.progress != nullptr) *options_.progress += part.size();
      if (crc32(part) == sums.blocks[i]) continue;
      fault(concat("bytes ", begin, " to ", begin + part.size(), " of ", file.path(),
                   " do not match their checksum: the file was damaged after it was written"));
    }
  }

  /// Blocks that match need no second look at their records.
  void check_item(File& file, const std::string& path, const Item& item, bool covered) {
    const auto read = [&](std::uint64_t offset, std::span<std::byte> out) { file.read_at(item.at.offset + offset, out); };
    if (item.tensor == nullptr) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(item.at.length));
      file.read_at(item.at.offset, bytes);
      note_progress(covered, bytes.size());
      static_cast<void>(object_from(std::move(bytes), form_of(opened_.flavour), path, item.key));
      return;
    }
    const StoredTensor stored = read_tensor_archive(read, item.at.length, path, item.key);
    const Dims sizes = item.tensor->chunk_box(item.chunk).sizes;
    if (stored.dtype != item.tensor->dtype || stored.shape != sizes) {
      fault(concat("tensor '", item.key, "' in ", path, " at byte ", item.at.offset, ": the archive holds ",
                   name(stored.dtype), " ", to_string(stored.shape), " where .metadata says ", name(item.tensor->dtype), " ",
                   to_string(sizes)));
    }
    if (covered) return;
    if (stored.crc == 0) {
      out_.unchecked_bytes += stored.storage_bytes;
      return;
    }
    const std::uint32_t crc = crc_of_range(file, item.at.offset + stored.storage_begin, stored.storage_bytes, buffer_,
                                           [&](std::size_t bytes) { note_progress(false, bytes); });
    if (crc == stored.crc) return;
    fault(concat("the CRC-32 of the data of '", item.key, "' in ", path, " at byte ", item.at.offset,
                 " does not match: the file was damaged after it was written"));
  }
  void note_progress(bool covered, std::uint64_t bytes) {
    if (!covered && options_.progress != nullptr) *options_.progress += bytes;
  }

  void check_common() {
    if (opened_.flavour == Flavour::torch_dist && !metadata_.objects.contains(common_key) &&
        files_.status(join_path(opened_.directory, std::string(common_name))).kind != FileKind::file) {
      fault(concat(opened_.directory, " has neither ", common_name, " nor '", common_key,
                   "', without one of which Megatron-Core does not load it"));
    }
    for (const auto& [name, sums] : opened_.checksums) {
      const std::string path = join_path(opened_.directory, name);
      if (files_.status(path).kind == FileKind::file) {
        if (name != common_name) continue;
        attempt([&] { static_cast<void>(read_item(files_, opened_, name, 0, files_.status(path).size, name)); });
      } else if (std::find(metadata_.files.begin(), metadata_.files.end(), name) == metadata_.files.end()) {
        fault(concat(path, " was saved with the checkpoint, but does not exist"));
      }
    }
    if (!opened_.checksums.contains(common_name)) {
      const std::string path = join_path(opened_.directory, std::string(common_name));
      if (files_.status(path).kind != FileKind::file) return;
      static_cast<void>(object_from(read_item(files_, path, nullptr, 0, files_.status(path).size, common_name),
                                    Object::Form::plain, path, {}));
    }
  }

  void note_extra_files() {
    if (opened_.foreign_checksums) {
      out_.notes.push_back(concat(join_path(opened_.directory, std::string(ChecksumFile::name)),
                                  " belongs to an earlier save: .metadata was written by another library since"));
    }
    for (const std::string& name : extra_files(files_, opened_)) {
      out_.notes.push_back(concat(join_path(opened_.directory, name), " is no part of the checkpoint"));
    }
  }

  FileSystem& files_;
  const OpenedCheckpoint& opened_;
  const LoadOptions& options_;
  const CheckpointMetadata& metadata_;
  std::vector<std::byte> buffer_;
  VerifyReport out_;
};

}  // namespace detail

/// Reads all of a `torch_dist` or DCP checkpoint and says what is wrong with it: whether every file is there and long
/// enough, every element stored once, every archive what `.metadata` says, and every checksum right that the checkpoint
/// has. Local, blocking; a few megabytes of memory beside `.metadata`. What cannot even be opened is a report of one fault;
/// throws nothing but what the C++ library throws.
[[nodiscard]] inline VerifyReport verify_checkpoint(const std::string& directory, const LoadOptions& options = {}) {
  FileSystem& files = options.files != nullptr ? *options.files : posix_file_system();
  try {
    const OpenedCheckpoint opened = open_checkpoint(files, directory, Verify::touched);
    return detail::Verifier(files, opened, options).run();
  } catch (const Error& error) {
    VerifyReport report;
    report.faults.emplace_back(error.what());
    return report;
  }
}

MGROUPS_END_NAMESPACE
