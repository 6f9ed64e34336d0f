// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/flavour.hpp>
#include <mgroups/checkpoint/load_options.hpp>
#include <mgroups/checkpoint/rank_metadata.hpp>
#include <mgroups/core/block_checksums.hpp>
#include <mgroups/core/crc32.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/format/checksum_file.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/io/checked_file.hpp>
#include <mgroups/io/commit.hpp>
#include <mgroups/io/file.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

[[nodiscard]] inline std::vector<std::byte> read_whole_file(FileSystem& files, const std::string& path) {
  const auto file = files.open_read(path);
  std::vector<std::byte> bytes(file->size());
  file->read_at(0, bytes);
  return bytes;
}

/// Says in one sentence why `directory` is no checkpoint, and where one is if it is near.
[[nodiscard]] inline std::string why_not_a_checkpoint(FileSystem& files, const std::string& directory) {
  const FileStatus status = files.status(directory);
  if (status.kind == FileKind::none) {
    return status.dangling_link.empty()
               ? "the directory does not exist"
               : concat("it is a link to ", in_quotes(status.dangling_link), ", which does not exist");
  }
  if (status.kind != FileKind::directory) return "it is not a directory";
  const auto has_file = [&](const std::string& folder, std::string_view name) {
    return files.status(join_path(folder, std::string(name))).kind == FileKind::file;
  };
  const auto has_data = [&](const std::string& folder, std::string_view ending) {
    try {
      const std::vector<std::string> names = files.list(folder);
      return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return name.ends_with(ending); });
    } catch (const IoError&) {
      return false;  // a folder that may not be read is no help
    }
  };
  std::vector<std::string> data_files, checkpoints, unfinished;
  for (const std::string& name : files.list(directory)) {
    const std::string path = join_path(directory, name);
    if (name.ends_with(".distcp")) data_files.push_back(name);
    if (is_leftover_name(name) || files.status(path).kind != FileKind::directory) continue;
    if (has_file(path, metadata_name) || has_file(path, "__0.metadata") || has_data(path, ".safetensors")) {
      checkpoints.push_back(name);
    } else if (has_data(path, ".distcp")) {
      unfinished.push_back(name);
    }
  }
  const std::string others =
      unfinished.empty() ? std::string()
                         : concat(" (", list_text(unfinished, 8), " with data files but no .metadata: never finished)");
  if (!checkpoints.empty()) {
    return concat("its sub-folders ", list_text(checkpoints, 16), " are checkpoints", others, "; give one of them");
  }
  if (!unfinished.empty()) return concat("none of its sub-folders is one", others);
  if (!data_files.empty()) {
    return concat("data files are there (", list_text(data_files, 4),
                  ") but .metadata is not, so the save did not finish or hidden files were not copied along");
  }
  return "it holds neither .metadata nor data files";
}

}  // namespace detail

/// A `torch_dist` or DCP checkpoint directory whose `.metadata` has been read.
struct OpenedCheckpoint {
  std::string directory;  ///< where it lies; see `committed_path`
  Flavour flavour = Flavour::dcp;
  CheckpointMetadata metadata;
  /// Of its data files, by their names; empty where another library wrote the checkpoint, or no checksums were asked for.
  std::map<std::string, BlockChecksums, std::less<>> checksums;
  /// Checksums lie beside it, but another library has written its `.metadata` since: they are not believed.
  bool foreign_checksums = false;
};

namespace detail {

/// Reads the checksums, which must be those of this very `.metadata`.
inline void read_checksums(FileSystem& files, OpenedCheckpoint& opened, std::span<const std::byte> metadata) {
  const std::string path = join_path(opened.directory, std::string(ChecksumFile::name));
  if (files.status(path).kind != FileKind::file) return;
  opened.foreign_checksums = opened.metadata.save_id.empty();
  if (opened.foreign_checksums) return;
  ChecksumFile sums = parse_checksums(read_whole_file(files, path), path);
  const auto own = sums.files.find(metadata_name);
  BlockChecksums found;
  found.append(metadata);
  if (sums.save_id != opened.metadata.save_id || own == sums.files.end() || own->second != found) {
    const std::string metadata_path = join_path(opened.directory, std::string(metadata_name));
    throw FormatError(concat(metadata_path, " does not match its checksum: it was damaged after it was written"),
                      {.verb = "load", .file = metadata_path});
  }
  opened.checksums = std::move(sums.files);
}

/// Opens a data file; where its checksums are known, nobody sees bytes that do not match them.
[[nodiscard]] inline std::unique_ptr<File> open_data_file(FileSystem& files, const std::string& path,
                                                          const BlockChecksums* checksums) {
  std::unique_ptr<File> file = files.open_read(path);
  if (checksums != nullptr) file = std::make_unique<CheckedFile>(std::move(file), *checksums);
  return file;
}

/// Says in one sentence that an item cannot lie in a file of `size` bytes; nothing where it can.
[[nodiscard]] inline std::optional<std::string> place_fault(std::string_view path, std::uint64_t size, std::string_view key,
                                                            std::uint64_t offset, std::uint64_t length) {
  if (offset <= size && length <= size - offset) return std::nullopt;
  return concat(path, " has ", size, " bytes, but '", key, "' should lie in it at bytes ", offset, " to ", offset + length,
                "; the file was cut short");
}

/// The CRC-32 of `length` bytes of a file, read by way of `buffer`; `on_read(n)` hears of every n bytes.
template <class OnRead>
[[nodiscard]] std::uint32_t crc_of_range(File& file, std::uint64_t begin, std::uint64_t length, std::span<std::byte> buffer,
                                         OnRead&& on_read) {
  std::uint32_t crc = 0;
  while (length > 0) {
    const auto part = buffer.first(static_cast<std::size_t>(std::min<std::uint64_t>(length, buffer.size())));
    file.read_at(begin, part);
    crc = crc32(part, crc);
    on_read(part.size());
    begin += part.size();
    length -= part.size();
  }
  return crc;
}

/// The bytes of an item. Throws IoError and FormatError naming file and key.
[[nodiscard]] inline std::vector<std::byte> read_item(FileSystem& files, const std::string& path,
                                                      const BlockChecksums* checksums, std::uint64_t offset,
                                                      std::uint64_t length, std::string_view key) {
  if (files.status(path).kind != FileKind::file) {
    throw IoError(concat("the data file ", path, ", which holds ", key, ", does not exist"),
                  {.verb = "load", .key = std::string(key), .file = path});
  }
  const auto file = open_data_file(files, path, checksums);
  if (const auto fault = place_fault(path, file->size(), key, offset, length)) {
    throw FormatError(*fault, {.verb = "load", .key = std::string(key), .file = path});
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(length));
  file->read_at(offset, bytes);
  return bytes;
}
[[nodiscard]] inline std::vector<std::byte> read_item(FileSystem& files, const OpenedCheckpoint& opened,
                                                      std::string_view file_name, std::uint64_t offset, std::uint64_t length,
                                                      std::string_view key) {
  const auto sums = opened.checksums.find(file_name);
  return read_item(files, join_path(opened.directory, std::string(file_name)),
                   sums != opened.checksums.end() ? &sums->second : nullptr, offset, length, key);
}

[[nodiscard]] inline Flavour read_flavour(FileSystem& files, const OpenedCheckpoint& opened) {
  const std::string path = join_path(opened.directory, std::string(marker_name));
  const FileStatus status = files.status(path);
  if (status.kind != FileKind::file && !opened.checksums.contains(marker_name)) return Flavour::dcp;
  return parse_marker(read_item(files, opened, marker_name, 0, status.size, "the kind of the checkpoint"), path);
}

/// Files of the directory that no part of the checkpoint lies in: those of an earlier save, and somebody else's.
[[nodiscard]] inline std::vector<std::string> extra_files(FileSystem& files, const OpenedCheckpoint& opened) {
  const std::set<std::string_view> own(opened.metadata.files.begin(), opened.metadata.files.end());
  const bool whole = files.status(join_path(opened.directory, std::string(metadata_name))).kind == FileKind::file;
  const auto ranks = whole ? std::vector<std::string>() : rank_metadata_names(files, opened.directory);
  std::vector<std::string> out;
  for (const std::string& name : files.list(opened.directory)) {
    if (name == metadata_name || name == marker_name || name == common_name || name == ChecksumFile::name ||
        name == manifest_name || own.contains(name) || std::find(ranks.begin(), ranks.end(), name) != ranks.end()) {
      continue;
    }
    if (files.status(join_path(opened.directory, name)).kind == FileKind::file) out.push_back(name);
  }
  return out;
}

}  // namespace detail

/// Reads and validates `.metadata`, against its checksum where there is one and `verify` asks for it; where each rank has
/// written its own, all of them. With `wanted`, only what a filter keeps of it (parse_metadata). Local, blocking.
/// Throws CheckpointError when there is no checkpoint, FormatError when `.metadata` is not what it should be.
[[nodiscard]] inline OpenedCheckpoint open_checkpoint(FileSystem& files, const std::string& directory,
                                                      Verify verify = Verify::touched,
                                                      const MetadataFilter* wanted = nullptr) {
  OpenedCheckpoint out;
  out.directory = committed_path(files, directory);
  const std::string path = join_path(out.directory, std::string(detail::metadata_name));
  const auto parse = [&](std::span<const std::byte> bytes, const std::string& file) {
    return wanted != nullptr ? parse_metadata(bytes, file, *wanted) : parse_metadata(bytes, file);
  };
  if (files.status(path).kind != FileKind::file) {
    const std::vector<std::string> parts = detail::rank_metadata_names(files, out.directory);
    for (const std::string& name : parts) {
      const std::string part = join_path(out.directory, name);
      detail::merge_metadata(out.metadata, parse(detail::read_whole_file(files, part), part), part);
    }
    if (!parts.empty()) return out;
    throw CheckpointError(concat("no checkpoint at ", directory, ": ", detail::why_not_a_checkpoint(files, directory)),
                          {.verb = "load", .file = directory});
  }
  const std::vector<std::byte> bytes = detail::read_whole_file(files, path);
  out.metadata = parse(bytes, path);
  if (verify != Verify::nothing) detail::read_checksums(files, out, bytes);
  out.flavour = detail::read_flavour(files, out);
  return out;
}

MGROUPS_END_NAMESPACE
