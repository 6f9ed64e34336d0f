// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/io/file.hpp>

/// Files that somebody holds in memory, to be read only. Directories are there as far as files lie in them.
class MemoryFiles final : public mgroups::FileSystem {
 public:
  void add(std::string path, std::span<const std::byte> bytes) { files_.insert_or_assign(std::move(path), bytes); }

  std::unique_ptr<mgroups::File> open_read(const std::string& path) override {
    const auto found = files_.find(path);
    if (found == files_.end()) refuse("open", path);
    return std::make_unique<MemoryFile>(path, found->second);
  }
  std::unique_ptr<mgroups::File> create(const std::string& path) override { refuse("create", path); }
  mgroups::FileStatus status(const std::string& path) override {
    if (const auto found = files_.find(path); found != files_.end())
      return {.kind = mgroups::FileKind::file, .size = found->second.size()};
    const auto below = files_.lower_bound(path + "/");
    const bool any = below != files_.end() && below->first.starts_with(path + "/");
    return {.kind = any ? mgroups::FileKind::directory : mgroups::FileKind::none};
  }
  std::vector<std::string> list(const std::string& directory) override {
    std::vector<std::string> names;
    for (const auto& [path, bytes] : files_) {
      if (!path.starts_with(directory + "/")) continue;
      const std::string rest = path.substr(directory.size() + 1);
      names.push_back(rest.substr(0, rest.find('/')));
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }
  bool make_directories(const std::string& path) override { refuse("make directory", path); }
  void rename(const std::string& from, const std::string&) override { refuse("rename", from); }
  bool exchange(const std::string& a, const std::string&) override { refuse("exchange", a); }
  void remove_all(const std::string& path) override { refuse("remove", path); }
  void sync_directory(const std::string& path) override { refuse("sync directory", path); }

 private:
  class MemoryFile final : public mgroups::File {
   public:
    MemoryFile(const std::string& path, std::span<const std::byte> bytes) : File(path), bytes_(bytes) {}
    void read_at(std::uint64_t offset, std::span<std::byte> out) override {
      if (offset > bytes_.size() || out.size() > bytes_.size() - offset) refuse("read behind the end of", path());
      std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    }
    void write_at(std::uint64_t, std::span<const std::byte>) override { refuse("write to", path()); }
    std::uint64_t size() override { return bytes_.size(); }
    void preallocate(std::uint64_t) override { refuse("write to", path()); }
    void sync() override {}
    void close() override {}

   private:
    std::span<const std::byte> bytes_;
  };

  [[noreturn]] static void refuse(const char* operation, const std::string& path) {
    throw mgroups::IoError(mgroups::concat("cannot ", operation, " ", path, ", which is in memory"),
                           {.verb = operation, .file = path});
  }

  std::map<std::string, std::span<const std::byte>> files_;
};
