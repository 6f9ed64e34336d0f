// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/io/posix.hpp>

/// The machine's file system, which counts the bytes that are read from data files.
class CountingFiles final : public mgroups::FileSystem {
 public:
  /// Of all ranks that share the object, so far.
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_; }

  std::unique_ptr<mgroups::File> open_read(const std::string& path) override {
    auto file = real_.open_read(path);
    if (!std::string_view(path).ends_with(".distcp")) return file;
    return std::make_unique<CountingFile>(bytes_, std::move(file));
  }
  std::unique_ptr<mgroups::File> create(const std::string& path) override { return real_.create(path); }
  mgroups::FileStatus status(const std::string& path) override { return real_.status(path); }
  std::vector<std::string> list(const std::string& directory) override { return real_.list(directory); }
  bool make_directories(const std::string& path) override { return real_.make_directories(path); }
  void rename(const std::string& from, const std::string& to) override { real_.rename(from, to); }
  bool exchange(const std::string& a, const std::string& b) override { return real_.exchange(a, b); }
  void remove_all(const std::string& path) override { real_.remove_all(path); }
  void sync_directory(const std::string& path) override { real_.sync_directory(path); }

 private:
  class CountingFile final : public mgroups::File {
   public:
    CountingFile(std::atomic<std::uint64_t>& bytes, std::unique_ptr<mgroups::File> real)
        : File(real->path()), bytes_(bytes), real_(std::move(real)) {}
    void read_at(std::uint64_t offset, std::span<std::byte> out) override {
      real_->read_at(offset, out);
      bytes_ += out.size();
    }
    void write_at(std::uint64_t offset, std::span<const std::byte> data) override { real_->write_at(offset, data); }
    std::uint64_t size() override { return real_->size(); }
    void preallocate(std::uint64_t bytes) override { real_->preallocate(bytes); }
    void sync() override { real_->sync(); }
    void close() override { real_->close(); }

   private:
    std::atomic<std::uint64_t>& bytes_;
    std::unique_ptr<mgroups::File> real_;
  };

  mgroups::FileSystem& real_ = mgroups::posix_file_system();
  std::atomic<std::uint64_t> bytes_{0};
};
