// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/io/commit.hpp>
#include <mgroups/io/file.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

inline constexpr std::string_view metadata_name = ".metadata";

[[nodiscard]] inline std::vector<std::byte> read_whole_file(FileSystem& files, const std::string& path) {
  const auto file = files.open_read(path);
  std::vector<std::byte> bytes(file->size());
  file->read_at(0, bytes);
  return bytes;
}

/// Says in one sentence why `directory` is no checkpoint, and where one is if it is near.
[[nodiscard]] inline std::string why_not_a_checkpoint(FileSystem& files, const std::string& directory) {
  const FileStatus status = files.status(directory);
  if (status.kind == FileKind::none)
    return status.dangling_link ? "it is a link to nothing" : "the directory does not exist";
  if (status.kind != FileKind::directory) return "it is not a directory";
  std::vector<std::string> data_files, checkpoints;
  for (const std::string& name : files.list(directory)) {
    const std::string path = join_path(directory, name);
    if (name.ends_with(".distcp")) data_files.push_back(name);
    if (!is_leftover_name(name) && files.status(path).kind == FileKind::directory &&
        files.status(join_path(path, std::string(metadata_name))).kind == FileKind::file) {
      checkpoints.push_back(name);
    }
  }
  if (!checkpoints.empty()) return concat("its sub-folders ", list_text(checkpoints), " are checkpoints; give one of them");
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
  CheckpointMetadata metadata;
};

/// Reads and validates `.metadata`. Local, blocking. Throws CheckpointError when there is no checkpoint, FormatError when
/// `.metadata` is not what it should be.
[[nodiscard]] inline OpenedCheckpoint open_checkpoint(FileSystem& files, const std::string& directory) {
  const std::string committed = committed_path(files, directory);
  const std::string path = join_path(committed, std::string(detail::metadata_name));
  if (files.status(path).kind != FileKind::file) {
    throw CheckpointError(concat("no checkpoint at ", directory, ": ", detail::why_not_a_checkpoint(files, directory)),
                          {.verb = "load", .file = directory});
  }
  const std::vector<std::byte> bytes = detail::read_whole_file(files, path);
  return {committed, parse_metadata(bytes, path)};
}

MGROUPS_END_NAMESPACE
