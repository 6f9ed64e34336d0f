// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

/// A directory of its own for a test, in memory where the machine has such a place; removed at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    const char* wished = std::getenv("MGROUPS_TEST_TMPDIR");
    const std::filesystem::path parent = wished != nullptr                        ? std::filesystem::path(wished)
                                         : ::access("/dev/shm", W_OK | X_OK) == 0 ? std::filesystem::path("/dev/shm")
                                                                                  : std::filesystem::temp_directory_path();
    std::string name = (parent / "mgroups-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a directory below " + parent.string());
    path_ = name;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string path() const { return path_.string(); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};
