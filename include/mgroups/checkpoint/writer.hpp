// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/common_state.hpp>
#include <mgroups/checkpoint/data_file.hpp>
#include <mgroups/checkpoint/description.hpp>
#include <mgroups/checkpoint/flavour.hpp>
#include <mgroups/checkpoint/save_options.hpp>
#include <mgroups/checkpoint/stored_object.hpp>
#include <mgroups/core/box.hpp>
#include <mgroups/core/crc32.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/io/commit.hpp>
#include <mgroups/io/posix.hpp>
#include <mgroups/shard/sharded_object.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Writes a checkpoint tensor by tensor out of one process: for tools and conversions, where no rank has a state dict and
/// memory need not hold the model. Local, blocking. The directory appears as a whole with `commit`; without it, what was
/// there stays. Throws CheckpointError for a directory that is no checkpoint and not empty, IoError.
class CheckpointWriter {
 public:
  explicit CheckpointWriter(const std::string& directory, const SaveOptions& options = {})
      : options_(options), files_(options.files != nullptr ? *options.files : posix_file_system()) {
    detail::check_replaceable(files_, directory);
    commit_.emplace(files_, directory);
    try {
      writer_.emplace(files_, join_path(commit_->path(), detail::data_file_name(0)), 0, options_);
    } catch (...) {
      commit_->abandon();
      throw;
    }
  }
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter() {
    if (commit_) commit_->abandon();
  }

  /// `produce(sink)` gives the row-major bytes of the tensor by calling `sink(std::span<const std::byte>)` as often as it
  /// likes. Throws InvalidArgument when they are not as many as the shape has, and for a key that is there already.
  template <class Produce>
  void add_tensor(std::string_view key, DType dtype, const Dims& shape, Produce&& produce) {
    check_new(key);
    writer_->add_tensor(key, dtype, shape, whole(shape), [&](SequentialWriter& out) {
      std::uint32_t crc = 0;
      produce([&](std::span<const std::byte> piece) {
        crc = crc32(piece, crc);
        out.append(piece);
        if (options_.progress != nullptr) *options_.progress += piece.size();
      });
      return crc;
    });
  }
  /// `key` is the one to store, "rng_state/shard_0_1" in the `torch_dist` flavour. Throws UnsupportedError for an object of
  /// the other flavour that is not understood.
  void add_object(std::string_view key, const Object& object) {
    check_new(key);
    writer_->add_object(key, detail::archive_of(object, detail::form_of(options_.flavour), key));
  }
  /// At most once. Throws as `save` does.
  void set_common(const Object& common) { common_ = detail::store_common(&common, options_.flavour); }

  /// Makes everything durable and puts it in place. Throws CheckpointError where an entry of the common state has a key that
  /// was added.
  void commit() {
    if (!common_) common_ = detail::store_common(nullptr, options_.flavour);
    for (const detail::ObjectItem& item : common_->items) writer_->add_object(item.key, item.archive);
    Parcels written(1);
    written.bytes = detail::to_wire(writer_->finish());
    written.counts[0] = written.bytes.size();
    detail::write_description(files_, commit_->path(), written, *common_, options_);
    commit_->commit();
  }

 private:
  void check_new(std::string_view key) {
    if (keys_.emplace(key).second) return;
    throw InvalidArgument(concat("key '", key, "' is added to the checkpoint twice"), {.key = std::string(key)});
  }

  std::set<std::string> keys_;
  SaveOptions options_;
  FileSystem& files_;
  std::optional<DirectoryCommit> commit_;
  std::optional<detail::DataFileWriter> writer_;
  std::optional<detail::StoredCommon> common_;
};

MGROUPS_END_NAMESPACE
