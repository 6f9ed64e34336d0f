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

#include <mgroups/io/file.hpp>

#include "forwarding_files.hpp"

/// The machine's file system, which counts the bytes that are read from data files.
class CountingFiles final : public ForwardingFiles {
 public:
  /// Of all ranks that share the object, so far.
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_; }

  std::unique_ptr<mgroups::File> open_read(const std::string& path) override {
    auto file = ForwardingFiles::open_read(path);
    if (!std::string_view(path).ends_with(".distcp")) return file;
    return std::make_unique<CountingFile>(bytes_, std::move(file));
  }

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

  std::atomic<std::uint64_t> bytes_{0};
};
