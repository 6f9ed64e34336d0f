// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/io/file.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

// Siblings of `runs/NAME` while it is being replaced: `runs/.NAME.mgroups-new-NONCE` is being written,
// `runs/.NAME.mgroups-old-NONCE` was moved aside.
inline constexpr std::string_view new_mark = ".mgroups-new-";
inline constexpr std::string_view old_mark = ".mgroups-old-";

struct SplitPath {
  std::string parent;
  std::string name;
};

[[nodiscard]] inline SplitPath split_path(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const auto slash = path.find_last_of('/');
  SplitPath out = slash == std::string::npos ? SplitPath{".", path}
                                             : SplitPath{slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
  if (out.name.empty() || out.name == "." || out.name == "..") {
    throw InvalidArgument(concat("'", path, "' cannot be replaced as a whole; give a directory by its name"),
                          {.file = path});
  }
  return out;
}

[[nodiscard]] inline std::string random_nonce() {
  std::random_device device;
  std::string out;
  for (int i = 0; i < 4; ++i) {
    for (unsigned bits = device() & 0xffffu, digit = 0; digit < 4; ++digit, bits >>= 4)
      out += "0123456789abcdef"[bits & 15u];
  }
  return out;
}

/// Siblings of `target` that bear `mark`, with their directory.
[[nodiscard]] inline std::vector<std::string> marked_siblings(FileSystem& files, const SplitPath& target,
                                                              std::string_view mark) {
  std::vector<std::string> out;
  if (files.status(target.parent).kind != FileKind::directory) return out;
  const std::string prefix = concat(".", target.name, mark);
  for (const std::string& name : files.list(target.parent)) {
    if (name.starts_with(prefix)) out.push_back(join_path(target.parent, name));
  }
  return out;
}

}  // namespace detail

/// True for the name of something that an interrupted save left behind: never to be loaded, safe to remove when no save
/// runs.
[[nodiscard]] inline bool is_leftover_name(std::string_view name) noexcept {
  return name.starts_with('.') &&
         (name.find(detail::new_mark) != std::string_view::npos || name.find(detail::old_mark) != std::string_view::npos);
}

/// Where the committed directory `path` is now. That is `path` itself, but for a crash at the one moment when a file
/// system without an atomic exchange has moved the old directory aside and not yet put the new one in its place: then it
/// is the old one. Every reader goes through here. Local.
[[nodiscard]] inline std::string committed_path(FileSystem& files, const std::string& path) {
  if (files.status(path).kind != FileKind::none) return path;
  const auto old = detail::marked_siblings(files, detail::split_path(path), detail::old_mark);
  return old.size() == 1 ? old.front() : path;
}

/// Replaces a directory as a whole: readers see the old one or the new one, never a mixture. Files are written below
/// `path()`; `commit` makes the directory durable, puts it in place and makes that durable. One process commits; others
/// may write files below `path()` and must have synced them before. Without `commit`, or when it fails, the old directory
/// stays as it is.
class DirectoryCommit {
 public:
  /// Makes the temporary sibling, after clearing away what an interrupted save to the same target has left. Local, blocking.
  DirectoryCommit(FileSystem& files, const std::string& target)
      : files_(files), target_(detail::split_path(target)), final_(join_path(target_.parent, target_.name)) {
    recover();
    const std::string nonce = detail::random_nonce();
    path_ = join_path(target_.parent, concat(".", target_.name, detail::new_mark, nonce));
    aside_ = join_path(target_.parent, concat(".", target_.name, detail::old_mark, nonce));
    files_.make_directories(path_);
  }
  DirectoryCommit(const DirectoryCommit&) = delete;
  DirectoryCommit& operator=(const DirectoryCommit&) = delete;

  /// The temporary directory.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  /// Blocking. When it returns, the new directory is in place and durable. When it throws before the new directory is in
  /// place, the old one still is; an error in clearing away the old one afterwards is not an error of the commit.
  void commit() {
    files_.sync_directory(path_);
    const bool replacing = files_.status(final_).kind != FileKind::none;
    std::string replaced;
    if (!replacing) {
      files_.rename(path_, final_);
    } else if (files_.exchange(path_, final_)) {
      replaced = path_;
    } else {
      files_.rename(final_, aside_);
      try {
        files_.rename(path_, final_);
      } catch (...) {
        files_.rename(aside_, final_);
        throw;
      }
      replaced = aside_;
    }
    placed_ = true;
    files_.sync_directory(target_.parent);
    try {
      if (!replaced.empty()) files_.remove_all(replaced);
    } catch (const IoError&) {
      // It bears a leftover's name: the next save to this target clears it away.
    }
  }

  /// Removes the temporary directory, as far as the system lets it, unless it is in place already. Never throws: it runs
  /// while another error is on its way.
  void abandon() noexcept {
    if (placed_) return;
    try {
      files_.remove_all(path_);
    } catch (...) {
    }
  }

 private:
  void recover() {
    const std::string current = committed_path(files_, final_);
    if (current != final_ && files_.status(current).kind != FileKind::none) {
      files_.rename(current, final_);
      files_.sync_directory(target_.parent);
    }
    for (const std::string_view mark : {detail::new_mark, detail::old_mark}) {
      for (const std::string& leftover : detail::marked_siblings(files_, target_, mark)) files_.remove_all(leftover);
    }
  }

  FileSystem& files_;
  detail::SplitPath target_;
  std::string final_;
  std::string path_;
  std::string aside_;
  bool placed_ = false;
};

/// Replaces one file: readers see the old content or the new one. The new one is written, synced and closed under
/// `temporary()`; `place` gives it its name. What is not placed is removed.
class FileCommit {
 public:
  FileCommit(FileSystem& files, const std::string& path) : files_(files), path_(path), target_(detail::split_path(path)) {
    temporary_ = join_path(target_.parent, concat(".", target_.name, detail::new_mark, detail::random_nonce()));
  }
  FileCommit(const FileCommit&) = delete;
  FileCommit& operator=(const FileCommit&) = delete;
  ~FileCommit() {
    if (placed_) return;
    try {
      files_.remove_all(temporary_);
    } catch (...) {  // it bears a leftover's name
    }
  }

  [[nodiscard]] const std::string& temporary() const noexcept { return temporary_; }
  /// Blocking. When it returns, the new content is in place and durable.
  void place() {
    files_.rename(temporary_, path_);
    placed_ = true;
    files_.sync_directory(target_.parent);
  }

 private:
  FileSystem& files_;
  std::string path_;
  detail::SplitPath target_;
  std::string temporary_;
  bool placed_ = false;
};

/// Replaces a small file as a whole. Local, blocking.
inline void write_file_atomically(FileSystem& files, const std::string& path, std::span<const std::byte> content) {
  FileCommit commit(files, path);
  const auto file = files.create(commit.temporary());
  file->write_at(0, content);
  file->sync();
  file->close();
  commit.place();
}

MGROUPS_END_NAMESPACE
