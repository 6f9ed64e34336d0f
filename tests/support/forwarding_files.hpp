// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <mgroups/io/posix.hpp>

/// The machine's file system, for tests that change some of its operations.
class ForwardingFiles : public mgroups::FileSystem {
 public:
  std::unique_ptr<mgroups::File> open_read(const std::string& path) override { return real_.open_read(path); }
  std::unique_ptr<mgroups::File> create(const std::string& path) override { return real_.create(path); }
  mgroups::FileStatus status(const std::string& path) override { return real_.status(path); }
  std::vector<std::string> list(const std::string& directory) override { return real_.list(directory); }
  bool make_directories(const std::string& path) override { return real_.make_directories(path); }
  void rename(const std::string& from, const std::string& to) override { real_.rename(from, to); }
  bool exchange(const std::string& a, const std::string& b) override { return real_.exchange(a, b); }
  void remove_all(const std::string& path) override { real_.remove_all(path); }
  void sync_directory(const std::string& path) override { real_.sync_directory(path); }

 private:
  mgroups::FileSystem& real_ = mgroups::posix_file_system();
};
