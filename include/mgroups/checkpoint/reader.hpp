// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/checkpoint/common_state.hpp>
#include <mgroups/checkpoint/directory.hpp>
#include <mgroups/checkpoint/flavour.hpp>
#include <mgroups/checkpoint/load_options.hpp>
#include <mgroups/checkpoint/load_plan.hpp>
#include <mgroups/checkpoint/load_report.hpp>
#include <mgroups/checkpoint/load_task.hpp>
#include <mgroups/core/box.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/io/posix.hpp>
#include <mgroups/shard/state_dict.hpp>
#include <mgroups/shard/validate.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Reads single tensors, or parts of them, out of a `torch_dist` or DCP checkpoint: for tools and conversions, where no
/// rank has a state dict. Local, blocking. One object may be used by one thread at a time.
class CheckpointReader {
 public:
  /// Reads and validates `.metadata`. Throws CheckpointError when there is no checkpoint, FormatError when it is damaged.
  explicit CheckpointReader(const std::string& directory, const LoadOptions& options = {})
      : options_(options),
        files_(options.files != nullptr ? *options.files : posix_file_system()),
        opened_(open_checkpoint(files_, directory, options_.verify)),
        planner_(opened_, options_) {}
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;

  [[nodiscard]] const CheckpointMetadata& metadata() const noexcept { return opened_.metadata; }
  [[nodiscard]] Flavour flavour() const noexcept { return opened_.flavour; }
  /// Where it lies: `directory` itself, but for a crash in the middle of a save.
  [[nodiscard]] const std::string& directory() const noexcept { return opened_.directory; }

  /// Names of files in the directory that are no part of the checkpoint.
  [[nodiscard]] std::vector<std::string> extra_files() const { return detail::extra_files(files_, opened_); }

  /// Reads `part` of a stored tensor into `target`, which has the part's shape, any strides and, unless conversion was
  /// asked for, the stored dtype. A tensor that Megatron-Core stored as flattened ranges can be read as it is stored or, by
  /// a part of its true shape's rank (CheckpointMetadata::original_shapes), as what it is. Throws InvalidArgument for a key
  /// or part that is not stored, FormatError and IoError for damaged files.
  void read(std::string_view key, const Box& part, const TensorView& target) {
    const auto found = opened_.metadata.tensors.find(key);
    if (found == opened_.metadata.tensors.end()) {
      throw InvalidArgument(concat("the checkpoint ", opened_.directory, " has no tensor '", key, "'"),
                            {.key = std::string(key)});
    }
    if (target.dtype != found->second.dtype && !options_.convert_dtype) {
      throw InvalidArgument(concat("tensor '", key, "' is stored as ", name(found->second.dtype), ", not as ",
                                   name(target.dtype), "; read it as it is or set convert_dtype"),
                            {.key = std::string(key)});
    }
    const auto original = opened_.metadata.original_shapes.find(key);
    const bool flattened = original != opened_.metadata.original_shapes.end() && part.rank() == original->second.rank();
    const Dims& shape = flattened ? original->second : found->second.shape;
    ShardLayout layout{.key = std::string(key),
                       .dtype = target.dtype,
                       .local_shape = part.sizes,
                       .global_shape = shape,
                       .global_offset = part.offsets,
                       .axis_fragmentations = std::nullopt,
                       .replica_id = {}};
    detail::check_layout(layout);
    const LocalState state{.tensors = {{&layout, target}}, .objects = {}, .common = nullptr};
    detail::check_shards(state.tensors);
    Parcels request(1);
    request.bytes = detail::load_request(state);
    request.counts[0] = request.bytes.size();
    planner_.look_up(request);
    const Parcels answer = planner_.answers(request);
    detail::LoadTask task(state, answer.bytes, opened_.directory, detail::form_of(opened_.flavour), 1);
    LoadReport report;
    task.run(files_, options_, report);
  }

  /// Reads an object by the key under which it is stored. Throws InvalidArgument where there is none, FormatError and
  /// IoError for damaged files; an object that is merely not understood says so when its value is asked for.
  [[nodiscard]] Object read_object(std::string_view key) const {
    const auto found = opened_.metadata.objects.find(key);
    if (found == opened_.metadata.objects.end()) {
      throw InvalidArgument(concat("the checkpoint ", opened_.directory, " has no object '", key, "'"),
                            {.key = std::string(key)});
    }
    const auto unreadable = opened_.metadata.unreadable.find(key);
    if (unreadable != opened_.metadata.unreadable.end()) {
      throw UnsupportedError(concat("object '", key, "' cannot be read: ", unreadable->second), {.key = std::string(key)});
    }
    const StorageInfo& at = found->second;
    const std::string& file = opened_.metadata.files[at.file];
    const bool listed = opened_.flavour == Flavour::torch_dist;
    return detail::object_from(detail::read_item(files_, opened_, file, at.offset, at.length, key),
                               listed ? Object::Form::listed : Object::Form::plain, join_path(opened_.directory, file), key);
  }
  /// Reads the common state: a dict, empty where there is none.
  [[nodiscard]] Object read_common() const {
    LoadReport report;
    return detail::make_common(detail::read_common(files_, opened_, {}), opened_.directory, report);
  }

 private:
  LoadOptions options_;
  FileSystem& files_;
  OpenedCheckpoint opened_;
  detail::LoadPlanner planner_;
};

MGROUPS_END_NAMESPACE
