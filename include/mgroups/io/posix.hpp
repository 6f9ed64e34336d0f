// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/io/file.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

[[noreturn]] inline void throw_errno(int error, std::string_view operation, const std::string& path,
                                     std::string_view addition = {}) {
  throw IoError(concat("cannot ", operation, " ", path, ": ", std::generic_category().message(error), addition),
                {.verb = std::string(operation), .file = path});
}

class PosixFile final : public File {
 public:
  PosixFile(std::string path, int descriptor) : File(std::move(path)), descriptor_(descriptor) {}
  ~PosixFile() override {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  void read_at(std::uint64_t offset, std::span<std::byte> out) override {
    std::size_t done = 0;
    while (done < out.size()) {
      const auto n = ::pread(descriptor_, out.data() + done, std::min(out.size() - done, most_per_call),
                             static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw_errno(errno, "read", path());
      if (n == 0) {
        throw IoError(concat("cannot read bytes ", offset, " to ", offset + out.size(), " of ", path(), ": it ends at byte ",
                             offset + done, ", so it was cut short or is still being written"),
                      {.verb = "read", .file = path()});
      }
      done += static_cast<std::size_t>(n);
    }
  }

  void write_at(std::uint64_t offset, std::span<const std::byte> data) override {
    std::size_t done = 0;
    while (done < data.size()) {
      const auto n = ::pwrite(descriptor_, data.data() + done, std::min(data.size() - done, most_per_call),
                              static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_for_room(errno, "write", data.size() - done);
      done += static_cast<std::size_t>(n);
    }
  }

  std::uint64_t size() override {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) throw_errno(errno, "look at", path());
    return static_cast<std::uint64_t>(status.st_size);
  }

  void preallocate(std::uint64_t bytes) override {
    if (bytes == 0) return;
    while (::fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) != 0) {
      if (errno == EINTR) continue;
      if (errno == EOPNOTSUPP || errno == ENOSYS) return;
      fail_for_room(errno, "reserve room for", bytes);
    }
  }

  void sync() override {
    if (::fdatasync(descriptor_) != 0) throw_errno(errno, "sync", path());
  }

  void close() override {
    const int descriptor = std::exchange(descriptor_, -1);
    if (descriptor >= 0 && ::close(descriptor) != 0 && errno != EINTR) throw_errno(errno, "close", path());
  }

 private:
  // Linux moves at most this much in one call.
  static constexpr std::size_t most_per_call = 0x7ffff000;

  [[noreturn]] void fail_for_room(int error, std::string_view operation, std::uint64_t wanted) {
    std::string addition;
    struct statvfs room {};
    if ((error == ENOSPC || error == EDQUOT) && ::fstatvfs(descriptor_, &room) == 0) {
      addition =
          concat(" (", wanted, " bytes wanted, ",
                 static_cast<std::uint64_t>(room.f_bavail) * static_cast<std::uint64_t>(room.f_frsize), " available)");
    }
    throw_errno(error, operation, path(), addition);
  }

  int descriptor_;
};

class PosixFileSystem final : public FileSystem {
 public:
  std::unique_ptr<File> open_read(const std::string& path) override { return open(path, O_RDONLY, "open"); }

  std::unique_ptr<File> create(const std::string& path) override { return open(path, O_RDWR | O_CREAT | O_EXCL, "create"); }

  FileStatus status(const std::string& path) override {
    struct stat found {};
    if (::stat(path.c_str(), &found) != 0) {
      if (errno != ENOENT && errno != ENOTDIR) throw_errno(errno, "look at", path);
      FileStatus out;
      char target[4096];
      if (const ssize_t n = ::readlink(path.c_str(), target, sizeof target); n > 0) {
        out.dangling_link.assign(target, static_cast<std::size_t>(n));
      }
      return out;
    }
    if (S_ISREG(found.st_mode)) return {FileKind::file, static_cast<std::uint64_t>(found.st_size)};
    return {S_ISDIR(found.st_mode) ? FileKind::directory : FileKind::other, 0};
  }

  std::vector<std::string> list(const std::string& directory) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> open_directory(::opendir(directory.c_str()), ::closedir);
    if (!open_directory) throw_errno(errno, "list", directory);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(open_directory.get())) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    if (errno != 0) throw_errno(errno, "list", directory);
    std::sort(names.begin(), names.end());
    return names;
  }

  bool make_directories(const std::string& path) override {
    if (::mkdir(path.c_str(), 0777) == 0) return true;
    if (errno == EEXIST && status(path).kind == FileKind::directory) return false;
    const auto slash = path.find_last_of('/');
    if (errno != ENOENT || slash == std::string::npos || slash == 0) throw_errno(errno, "make directory", path);
    make_directories(path.substr(0, slash));
    if (::mkdir(path.c_str(), 0777) == 0) return true;
    if (errno != EEXIST) throw_errno(errno, "make directory", path);
    return false;
  }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) throw_errno(errno, concat("rename ", from, " to"), to);
  }

  bool exchange(const std::string& a, const std::string& b) override {
    // glibc names the call from 2.28 on; the number serves older ones too.
    constexpr unsigned rename_exchange = 1U << 1;
    if (::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), rename_exchange) == 0) return true;
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
    throw_errno(errno, concat("exchange ", a, " with"), b);
  }

  void remove_all(const std::string& path) override {
    struct stat found {};
    if (::lstat(path.c_str(), &found) != 0) {
      if (errno == ENOENT) return;
      throw_errno(errno, "look at", path);
    }
    if (S_ISDIR(found.st_mode)) {
      for (const std::string& name : list(path)) remove_all(join_path(path, name));
      if (::rmdir(path.c_str()) != 0 && errno != ENOENT) throw_errno(errno, "remove", path);
    } else if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
      throw_errno(errno, "remove", path);
    }
  }

  void sync_directory(const std::string& path) override {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) throw_errno(errno, "open directory", path);
    const int error = ::fsync(descriptor) == 0 ? 0 : errno;
    ::close(descriptor);
    // Some network and user-space file systems cannot sync a directory and say so; there is nothing more to be done there.
    if (error != 0 && error != EINVAL && error != ENOTSUP) throw_errno(error, "sync directory", path);
  }

 private:
  static std::unique_ptr<File> open(const std::string& path, int flags, std::string_view operation) {
    int descriptor = -1;
    do {
      descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    } while (descriptor < 0 && errno == EINTR);
    if (descriptor < 0) throw_errno(errno, operation, path);
    return std::make_unique<PosixFile>(path, descriptor);
  }
};

}  // namespace detail

/// The file system of the machine. Stateless, so any number of threads may use it.
[[nodiscard]] inline FileSystem& posix_file_system() {
  static detail::PosixFileSystem instance;
  return instance;
}

MGROUPS_END_NAMESPACE
