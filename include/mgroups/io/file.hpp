// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// An open file. Every failure is an IoError that names path, operation and the system's reason.
/// One object may be used by one thread at a time; `read_at` may be called by several.
class File {
 public:
  explicit File(std::string path) : path_(std::move(path)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  virtual ~File() = default;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  /// Fills `out` from byte `offset` on. A file that ends earlier is an IoError with the bytes wanted and present.
  virtual void read_at(std::uint64_t offset, std::span<std::byte> out) = 0;
  /// Writes all of `data` at byte `offset`. A full disk is an IoError with the bytes wanted and available.
  virtual void write_at(std::uint64_t offset, std::span<const std::byte> data) = 0;
  /// Length in bytes.
  [[nodiscard]] virtual std::uint64_t size() = 0;
  /// Reserves room for `bytes` bytes, so that a full disk shows before anything is written. A file system that cannot does
  /// nothing.
  virtual void preallocate(std::uint64_t bytes) = 0;
  /// Returns when data and length are on stable storage. After a failure the file must be given up: a second try could lie.
  virtual void sync() = 0;
  /// Reports what the system could not write earlier. The destructor closes too, in silence.
  virtual void close() = 0;

 private:
  std::string path_;
};

enum class FileKind { none, file, directory, other };

struct FileStatus {
  FileKind kind = FileKind::none;  ///< what the path leads to, links followed; `none` where it leads nowhere
  std::uint64_t size = 0;          ///< bytes of a file
  std::string dangling_link = {};  ///< where the link leads that the path is, if that is nowhere; else empty
};

/// All that checkpoints ask of a file system: the seam at which tests record and break it. Local, blocking.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  [[nodiscard]] virtual std::unique_ptr<File> open_read(const std::string& path) = 0;
  /// Makes a new file; one that is already there is an IoError.
  [[nodiscard]] virtual std::unique_ptr<File> create(const std::string& path) = 0;
  [[nodiscard]] virtual FileStatus status(const std::string& path) = 0;
  /// Names in a directory, sorted, without `.` and `..`.
  [[nodiscard]] virtual std::vector<std::string> list(const std::string& directory) = 0;
  /// Makes a directory and its missing parents; true when the last one was not there before.
  virtual bool make_directories(const std::string& path) = 0;
  /// Atomic; replaces a file or an empty directory at `to`.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  /// Swaps two names atomically; false where the file system has no such operation (nothing is changed then).
  [[nodiscard]] virtual bool exchange(const std::string& a, const std::string& b) = 0;
  /// Removes a file or a whole directory; a path that is not there is fine.
  virtual void remove_all(const std::string& path) = 0;
  /// Makes the names in a directory durable.
  virtual void sync_directory(const std::string& path) = 0;
};

/// `directory` and `name` joined by one slash.
[[nodiscard]] inline std::string join_path(const std::string& directory, const std::string& name) {
  if (directory.empty()) return name;
  return directory.back() == '/' ? directory + name : directory + "/" + name;
}

MGROUPS_END_NAMESPACE
