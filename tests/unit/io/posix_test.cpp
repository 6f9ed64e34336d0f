// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/io/posix.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "support/bytes.hpp"
#include "support/temporary_directory.hpp"

namespace mg = mgroups;
using mgroups_test::bytes_of;

TEST_CASE("a file gives back what was written where it was written") {
  const TemporaryDirectory directory;
  mg::FileSystem& files = mg::posix_file_system();
  const std::string path = directory / "file";
  {
    const auto file = files.create(path);
    file->preallocate(100);
    file->write_at(3, bytes_of("world"));
    file->write_at(0, bytes_of("abc"));
    file->sync();
    CHECK(file->size() == 8);
    file->close();
  }
  const auto file = files.open_read(path);
  std::vector<std::byte> bytes(5);
  file->read_at(3, bytes);
  CHECK(bytes == bytes_of("world"));
  CHECK_THROWS_WITH_AS(file->read_at(4, bytes), doctest::Contains("it ends at byte 8"), mg::IoError);
  CHECK_THROWS_WITH_AS(static_cast<void>(files.create(path)), doctest::Contains(path.c_str()), mg::IoError);
  CHECK_THROWS_WITH_AS(static_cast<void>(files.open_read(directory / "none")), doctest::Contains("No such file"),
                       mg::IoError);
}

TEST_CASE("a full disk says what was wanted and what is available") {
  // Every write to /dev/full fails with ENOSPC; that it is no regular file does not matter to a write.
  mg::detail::PosixFile full("/dev/full", ::open("/dev/full", O_WRONLY | O_CLOEXEC));
  CHECK_THROWS_WITH_AS(full.write_at(0, bytes_of("x")), doctest::Contains("1 bytes wanted"), mg::IoError);
}

TEST_CASE("directories are made with their parents, listed in order and removed whole") {
  const TemporaryDirectory directory;
  mg::FileSystem& files = mg::posix_file_system();
  CHECK(files.make_directories(directory / "a/b/c"));
  CHECK_FALSE(files.make_directories(directory / "a/b/c"));
  static_cast<void>(files.create(directory / "a/z"));
  CHECK(files.list(directory / "a") == std::vector<std::string>{"b", "z"});
  CHECK(files.status(directory / "a").kind == mg::FileKind::directory);
  CHECK(files.status(directory / "a/z").kind == mg::FileKind::file);
  CHECK(files.status(directory / "a/z/under a file").kind == mg::FileKind::none);
  CHECK_THROWS_AS(files.make_directories(directory / "a/z/d"), mg::IoError);
  files.remove_all(directory / "a");
  files.remove_all(directory / "a");
  CHECK(files.status(directory / "a").kind == mg::FileKind::none);
}

TEST_CASE("removing a link leaves what it leads to, and a link to nothing is seen as one") {
  const TemporaryDirectory directory;
  mg::FileSystem& files = mg::posix_file_system();
  files.make_directories(directory / "kept");
  static_cast<void>(files.create(directory / "kept/file"));
  files.make_directories(directory / "removed");
  std::filesystem::create_symlink(directory / "kept", directory / "removed/link");
  std::filesystem::create_symlink("nowhere", directory / "dangling");
  CHECK(files.status(directory / "removed/link").kind == mg::FileKind::directory);
  CHECK(files.status(directory / "dangling").kind == mg::FileKind::none);
  CHECK_FALSE(files.status(directory / "dangling").dangling_link.empty());
  files.remove_all(directory / "removed");
  CHECK(files.status(directory / "kept/file").kind == mg::FileKind::file);
}
