// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/common_state.hpp>
#include <mgroups/checkpoint/data_file.hpp>
#include <mgroups/checkpoint/flavour.hpp>
#include <mgroups/checkpoint/plan_messages.hpp>
#include <mgroups/checkpoint/save_options.hpp>
#include <mgroups/core/block_checksums.hpp>
#include <mgroups/core/box.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/format/checksum_file.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/io/commit.hpp>
#include <mgroups/io/file.hpp>
#include <mgroups/io/sequential_writer.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Adds what rank `rank` has written to the metadata. Throws CheckpointError for a key that two ranks, or a tensor and an
/// object, have written.
inline void add_records(CheckpointMetadata& metadata, int rank, WireReader& reader) {
  if (reader.done()) return;
  const auto file = static_cast<std::uint32_t>(metadata.files.size());
  metadata.files.push_back(data_file_name(rank));
  while (!reader.done()) {
    const std::string_view key = reader.text();
    const std::uint64_t kind = reader.number();
    const auto storage = [&] {
      const std::uint64_t offset = reader.number();
      return StorageInfo{file, offset, reader.number()};
    };
    const bool clash = kind == object_kind ? metadata.tensors.contains(key) || metadata.objects.contains(key)
                                           : metadata.objects.contains(key);
    if (clash) {
      throw CheckpointError(concat("cannot save: '", key, "' is the key of two things, one of them an object of rank ", rank,
                                   " or of the common state; rename one"),
                            {.key = std::string(key)});
    }
    if (kind == object_kind) {
      metadata.objects.emplace(std::string(key), storage());
      continue;
    }
    const Dims shape = reader.dims(static_cast<int>(reader.number()));
    auto found = metadata.tensors.find(key);
    if (found == metadata.tensors.end()) {
      found = metadata.tensors.emplace(std::string(key), TensorEntry(static_cast<DType>(kind - 1), shape)).first;
    }
    const Box box = reader.box(shape.rank());
    found->second.add_chunk(box, storage());
  }
}

[[nodiscard]] inline std::vector<std::byte> to_wire(const WrittenFile& written) {
  std::vector<std::byte> out;
  if (written.records.empty()) return out;
  WireWriter writer(out);
  writer.number(written.checksums.file_bytes);
  writer.number(written.checksums.blocks.size());
  for (const std::uint32_t block : written.checksums.blocks) writer.number(block);
  out.insert(out.end(), written.records.begin(), written.records.end());
  return out;
}

/// `.metadata` goes to its file while it is made; no more of it is in memory at a time.
inline constexpr std::size_t metadata_buffer_bytes = std::size_t{1} << 18;

/// Everything but the data files, of which `written` has one message a rank. `.metadata` is the last file to get its name:
/// its checksum must be durable before. Local, blocking.
inline void write_description(FileSystem& files, const std::string& directory, const Parcels& written,
                              const StoredCommon& common, const SaveOptions& options) {
  CheckpointMetadata metadata;
  ChecksumFile sums;
  written.for_each([&](int rank, std::span<const std::byte> message) {
    WireReader reader(message);
    if (reader.done()) return;
    BlockChecksums file{reader.number(), {}};
    for (auto n = reader.number(); n > 0; --n) file.blocks.push_back(reader.small_number());
    if (options.checksums && file.file_bytes > 0) sums.files.emplace(data_file_name(rank), std::move(file));
    add_records(metadata, rank, reader);
  });
  for (const ObjectItem& item : common.items) {
    if (!item.path.empty()) metadata.paths.emplace(item.key, item.path);
  }

  const auto write = [&](std::string_view name, std::span<const std::byte> content) {
    if (options.checksums) sums.files[std::string(name)].append(content);
    write_file_atomically(files, join_path(directory, std::string(name)), content);
  };
  if (options.flavour == Flavour::torch_dist) {
    if (!common.file.empty()) write(common_name, common.file);
    write(marker_name, std::as_bytes(std::span(common.file.empty() ? torch_dist_short_marker : torch_dist_marker)));
  }
  if (options.checksums) metadata.save_id = random_nonce();
  FileCommit last(files, join_path(directory, std::string(metadata_name)));
  BlockChecksums& own = sums.files[std::string(metadata_name)];
  SequentialWriter out(files.create(last.temporary()), 0, metadata_buffer_bytes, options.checksums ? &own : nullptr);
  write_metadata(metadata, [&](std::span<const std::byte> block) { out.append(block); });
  out.finish();
  if (options.checksums) {
    sums.save_id = metadata.save_id;
    const std::string text = write_checksums(sums);
    write_file_atomically(files, join_path(directory, std::string(ChecksumFile::name)), std::as_bytes(std::span(text)));
  }
  last.place();
}

/// A directory that exists and is no checkpoint is somebody's: it is not replaced.
inline void check_replaceable(FileSystem& files, const std::string& directory) {
  const FileStatus status = files.status(directory);
  if (status.kind == FileKind::none && status.dangling_link.empty()) return;
  if (status.kind == FileKind::directory) {
    if (files.status(join_path(directory, std::string(metadata_name))).kind == FileKind::file) return;
    if (files.list(directory).empty()) return;
  }
  throw CheckpointError(concat("cannot save to ", directory,
                               ": it exists and is not a checkpoint (no .metadata in it), and saving "
                               "would replace all of it; choose another name or remove it"),
                        {.file = directory});
}

}  // namespace detail

MGROUPS_END_NAMESPACE
