// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/io/posix.hpp>

/// What a test wants to go wrong. Operations are counted over all ranks that share the object, from 0.
struct FaultPlan {
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t fail_at = never;   ///< this one operation fails
  std::uint64_t crash_at = never;  ///< from this one on nothing reaches the disk any more
  bool can_exchange = true;
  bool count_reads = false;          ///< operations that change nothing are counted too
  std::function<void()> raise = {};  ///< what a failing operation throws; an IoError where this is empty
};

/// The machine's file system with faults on order: the seam at which tests see what a save does and break it.
class FaultyFiles final : public mgroups::FileSystem {
 public:
  explicit FaultyFiles(FaultPlan plan = {}) : plan_(plan) {}

  /// Changing operations seen so far.
  std::uint64_t operations() const { return count_; }

  std::unique_ptr<mgroups::File> open_read(const std::string& path) override {
    look("open", path);
    return std::make_unique<FaultyFile>(*this, real_.open_read(path));
  }
  std::unique_ptr<mgroups::File> create(const std::string& path) override {
    change("create", path);
    return std::make_unique<FaultyFile>(*this, real_.create(path));
  }
  mgroups::FileStatus status(const std::string& path) override {
    look("look at", path);
    return real_.status(path);
  }
  std::vector<std::string> list(const std::string& directory) override {
    look("list", directory);
    return real_.list(directory);
  }
  bool make_directories(const std::string& path) override {
    change("make directory", path);
    return real_.make_directories(path);
  }
  void rename(const std::string& from, const std::string& to) override {
    change("rename", from);
    real_.rename(from, to);
  }
  bool exchange(const std::string& a, const std::string& b) override {
    if (!plan_.can_exchange) return false;
    change("exchange", a);
    return real_.exchange(a, b);
  }
  void remove_all(const std::string& path) override {
    change("remove", path);
    real_.remove_all(path);
  }
  void sync_directory(const std::string& path) override {
    change("sync directory", path);
    real_.sync_directory(path);
  }

 private:
  class FaultyFile final : public mgroups::File {
   public:
    FaultyFile(FaultyFiles& owner, std::unique_ptr<mgroups::File> real)
        : File(real->path()), owner_(owner), real_(std::move(real)) {}
    void read_at(std::uint64_t offset, std::span<std::byte> out) override {
      owner_.look("read", path());
      real_->read_at(offset, out);
    }
    void write_at(std::uint64_t offset, std::span<const std::byte> data) override {
      owner_.change("write", path());
      real_->write_at(offset, data);
    }
    std::uint64_t size() override {
      owner_.look("measure", path());
      return real_->size();
    }
    void preallocate(std::uint64_t bytes) override {
      owner_.look("reserve room for", path());
      real_->preallocate(bytes);
    }
    void sync() override {
      owner_.change("sync", path());
      real_->sync();
    }
    void close() override {
      owner_.look("close", path());
      real_->close();
    }

   private:
    FaultyFiles& owner_;
    std::unique_ptr<mgroups::File> real_;
  };

  void look(const char* operation, const std::string& path) {
    if (plan_.count_reads) change(operation, path);
  }
  void change(const char* operation, const std::string& path) {
    const std::uint64_t n = count_++;
    if (n == plan_.fail_at || n >= plan_.crash_at) {
      if (plan_.raise) plan_.raise();
      throw mgroups::IoError(mgroups::concat("cannot ", operation, " ", path, ": fault number ", n, " on order"),
                             {.verb = operation, .file = path});
    }
  }

  FaultPlan plan_;
  std::atomic<std::uint64_t> count_{0};
  mgroups::FileSystem& real_ = mgroups::posix_file_system();
};
