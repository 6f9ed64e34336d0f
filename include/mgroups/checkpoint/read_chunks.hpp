// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/checkpoint/archive_maker.hpp>
#include <mgroups/checkpoint/directory.hpp>
#include <mgroups/checkpoint/load_options.hpp>
#include <mgroups/checkpoint/read_cost.hpp>
#include <mgroups/checkpoint/read_part.hpp>
#include <mgroups/core/block_checksums.hpp>
#include <mgroups/core/box.hpp>
#include <mgroups/core/crc32.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/format/torch_dist/archive.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/io/file.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// "Part `part` of the chunk that lies there goes to `target`."
struct ChunkRead {
  StorageInfo storage;
  std::string_view key;
  DType dtype;        ///< as `.metadata` says
  Dims chunk_shape;   ///< as `.metadata` says
  Box part;           ///< within the chunk
  TensorView target;  ///< of the part's shape
  /// Where given: the chunk is a run of elements, and from this one on it is read as a row-major tensor of shape
  /// `run_shape`, of which `part` is a part.
  std::optional<std::int64_t> run;
  Dims run_shape;
};

/// Reads parts of stored chunks, in the order in which they lie on disk. Neighbouring small archives are fetched in one
/// read; of large ones only the head, the tail and the wanted bytes are read. Local, blocking.
class ChunkReader {
 public:
  using Checksums = std::map<std::string, BlockChecksums, std::less<>>;

  /// `names[i]` is the file that a storage's `file` number i means, below `directory`. Files with checksums are read
  /// through them. `names` and `checksums` must outlive the reader.
  ChunkReader(FileSystem& files, std::string directory, std::span<const std::string> names, const Checksums& checksums,
              const LoadOptions& options)
      : files_(files),
        directory_(std::move(directory)),
        names_(names),
        checksums_(checksums),
        options_(options),
        window_capacity_(std::max<std::size_t>(options.buffer_bytes / 2, small_archive)),
        part_reader_(std::max<std::size_t>(options.buffer_bytes / 2, std::size_t{64} << 10)) {}

  void read(std::span<const ChunkRead> wanted) {
    std::vector<const ChunkRead*> reads;
    reads.reserve(wanted.size());
    for (const ChunkRead& read : wanted) reads.push_back(&read);
    std::stable_sort(reads.begin(), reads.end(), [](const ChunkRead* a, const ChunkRead* b) {
      return a->storage.file != b->storage.file ? a->storage.file < b->storage.file : a->storage.offset < b->storage.offset;
    });
    for (std::size_t begin = 0; begin < reads.size();) {
      std::size_t end = begin + 1;
      while (end < reads.size() && reads[end]->storage.file == reads[begin]->storage.file) ++end;
      read_file(std::span(reads).subspan(begin, end - begin));
      begin = end;
    }
  }

 private:
  using Reads = std::span<const ChunkRead* const>;

  /// The file of `reads` stays open for the next call: many short ones may follow.
  void open(const std::string& path, Reads reads) {
    const std::uint32_t name = reads[0]->storage.file;
    if (file_ != nullptr && name == open_name_) return check_places(path, file_->size(), reads);
    file_.reset();
    window_ = {};
    const FileStatus status = files_.status(path);
    if (status.kind != FileKind::file) throw_missing(path, reads);
    check_places(path, status.size, reads);
    const auto sums = checksums_.find(names_[name]);
    file_ = open_data_file(files_, path, sums != checksums_.end() ? &sums->second : nullptr);
    open_name_ = name;
    // The checksum of a whole record says nothing more about bytes that were compared with those of their blocks.
    own_file_ = sums != checksums_.end();
    verify_ = own_file_ ? Verify::nothing : options_.verify;
  }

  void read_file(Reads reads) {
    const std::string path = join_path(directory_, names_[reads[0]->storage.file]);
    open(path, reads);
    for (std::size_t i = 0; i < reads.size(); ++i) {
      const ChunkRead& read = *reads[i];
      const StorageInfo& at = read.storage;
      // Several parts of one chunk: its archive is looked at once.
      const bool same_archive =
          i > 0 && reads[i - 1]->storage.offset == at.offset && reads[i - 1]->storage.length == at.length;
      if (at.length <= small_archive) {
        const std::span<const std::byte> archive = fetch(reads.subspan(i));
        if (!same_archive) look_at(read, path, archive);
        const TensorView part = part_of(read, path, archive.data());
        if (part.numel() > 0) place(part, read.target);
      } else {
        if (!same_archive && !take_own(read)) {
          stored_ = read_tensor_archive(
              [&](std::uint64_t offset, std::span<std::byte> out) { file_->read_at(at.offset + offset, out); }, at.length,
              path, read.key);
        }
        const TensorView part = part_of(read, path, nullptr);
        const Dims& strides = read.run ? part.strides : stored_.strides;
        const auto first = static_cast<std::uint64_t>(read.run.value_or(0) + element_offset(read.part.offsets, strides)) *
                           size_of(part.dtype);
        const std::uint64_t storage = at.offset + stored_.storage_begin;
        RunningCrc crc(storage);
        const bool checked = verify_ != Verify::nothing && stored_.crc != 0;
        part_reader_.read(*file_, at.offset + stored_.data_offset + first, part, read.target, checked ? &crc : nullptr);
        if (const auto value = crc.value_at(storage + stored_.storage_bytes)) {
          check_crc(read, path, *value);
        } else if (checked && verify_ == Verify::everything && !same_archive) {
          check_crc(read, path,
                    crc_of_range(*file_, storage, stored_.storage_bytes, part_reader_.buffer(), [](std::size_t) {}));
        }
      }
      if (options_.progress != nullptr) *options_.progress += read.target.nbytes();
    }
  }

  /// The archive of the first of `reads`, in memory, after reading as many of the following small ones as fit.
  std::span<const std::byte> fetch(Reads reads) {
    const StorageInfo& wanted = reads[0]->storage;
    if (wanted.offset < window_offset_ || wanted.offset + wanted.length > window_offset_ + window_.size()) {
      if (!window_memory_) window_memory_.reset(new std::byte[window_capacity_]);
      std::uint64_t end = wanted.offset + wanted.length;
      for (const ChunkRead* const later : reads.subspan(1)) {
        const StorageInfo& next = later->storage;
        const std::uint64_t next_end = next.offset + next.length;
        if (next.length > small_archive || next.offset > end + static_cast<std::uint64_t>(cheap_gap) ||
            next_end > wanted.offset + window_capacity_) {
          break;
        }
        end = std::max(end, next_end);
      }
      window_offset_ = wanted.offset;
      window_ = {window_memory_.get(), static_cast<std::size_t>(end - wanted.offset)};
      file_->read_at(window_offset_, window_);
    }
    return window_.subspan(static_cast<std::size_t>(wanted.offset - window_offset_),
                           static_cast<std::size_t>(wanted.length));
  }

  /// In a file of ours, whose blocks have checksums, an archive of the right size is as this library writes it: it need not
  /// be looked at to know where its data lie. False where it cannot be.
  [[nodiscard]] bool take_own(const ChunkRead& read) {
    if (!own_file_) return false;
    const TensorArchive& own = archive_of_(read.dtype, read.chunk_shape);
    if (own.total_size() != read.storage.length) return false;
    take(own, read);
    return true;
  }
  void take(const TensorArchive& own, const ChunkRead& read) {
    stored_ = {.dtype = read.dtype, .shape = read.chunk_shape, .strides = row_major_strides(read.chunk_shape)};
    stored_.data_offset = stored_.storage_begin = own.data_offset();
  }

  /// Finds out where the data lie in a small archive, and checks them.
  void look_at(const ChunkRead& read, const std::string& path, std::span<const std::byte> archive) {
    if (take_own(read)) return;
    // Most archives are as this library writes them: comparing with what it would write is cheaper than reading them.
    TensorArchive& own = archive_of_(read.dtype, read.chunk_shape);
    const auto equal = [](std::span<const std::byte> a, std::span<const std::byte> b) {
      return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
    };
    if (archive.size() == own.total_size() && equal(archive.first(own.head().size()), own.head())) {
      const auto data = archive.subspan(own.head().size(), own.data_size());
      if (equal(archive.subspan(own.head().size() + data.size()), own.tail(crc32(data)))) return take(own, read);
    }
    stored_ = read_tensor_archive(archive, archive.size(), path, read.key);
    if (verify_ != Verify::nothing && stored_.crc != 0) {
      check_crc(read, path, crc32(archive.subspan(stored_.storage_begin, stored_.storage_bytes)));
    }
  }

  void check_crc(const ChunkRead& read, const std::string& path, std::uint32_t found) const {
    if (stored_.crc == 0 || stored_.crc == found) return;
    throw FormatError(concat("the CRC-32 of the data of '", read.key, "' in ", path,
                             " does not match: the file was damaged after it "
                             "was written"),
                      {.verb = "load", .key = std::string(read.key), .file = path});
  }

  [[nodiscard]] static std::int64_t element_offset(const Dims& index, const Dims& strides) noexcept {
    std::int64_t offset = 0;
    for (int axis = 0; axis < index.rank(); ++axis) offset += index[axis] * strides[axis];
    return offset;
  }

  /// The wanted part as it lies in the archive at `archive` (null: not in memory), after checking that the archive is what
  /// `.metadata` says.
  [[nodiscard]] TensorView part_of(const ChunkRead& read, const std::string& path, const std::byte* archive) const {
    const auto fail = [&](const std::string& reason) {
      throw FormatError(concat("tensor '", read.key, "' in ", path, " at byte ", read.storage.offset, ": ", reason),
                        {.verb = "load", .key = std::string(read.key), .file = path});
    };
    if (stored_.dtype != read.dtype || stored_.shape != read.chunk_shape) {
      fail(concat("the archive holds ", name(stored_.dtype), " ", to_string(stored_.shape), " where .metadata says ",
                  name(read.dtype), " ", to_string(read.chunk_shape)));
    }
    if (stored_.big_endian && size_of(stored_.dtype) > 1) fail("it is stored in big-endian byte order, which is not read");
    TensorView whole_chunk{nullptr, stored_.dtype, stored_.shape, stored_.strides};
    std::uint64_t begin = stored_.data_offset;
    if (read.run) {
      if (!stored_.contiguous()) fail("a range of a flattened tensor is not stored in one piece");
      whole_chunk.shape = read.run_shape;
      whole_chunk.strides = row_major_strides(read.run_shape);
      begin += static_cast<std::uint64_t>(*read.run) * size_of(stored_.dtype);
    }
    if (archive != nullptr) whole_chunk.data = const_cast<std::byte*>(archive) + begin;
    return whole_chunk.part(read.part);
  }

  static void check_places(const std::string& path, std::uint64_t size, Reads reads) {
    for (const ChunkRead* const read : reads) {
      const StorageInfo& at = read->storage;
      if (const auto fault = place_fault(path, size, read->key, at.offset, at.length)) {
        throw FormatError(*fault, {.verb = "load", .key = std::string(read->key), .file = path});
      }
    }
  }

  [[noreturn]] static void throw_missing(const std::string& path, Reads reads) {
    std::vector<std::string_view> keys;
    for (const ChunkRead* const read : reads) keys.push_back(read->key);
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    throw IoError(concat("the data file ", path, ", which holds parts of ", list_text(keys, 8), ", does not exist"),
                  {.verb = "load", .key = std::string(keys.front()), .file = path});
  }

  FileSystem& files_;
  std::string directory_;
  std::span<const std::string> names_;
  const Checksums& checksums_;
  const LoadOptions& options_;
  std::unique_ptr<File> file_;  // the open one, and what is known of it:
  std::uint32_t open_name_ = 0;
  bool own_file_ = false;
  Verify verify_ = Verify::nothing;
  std::size_t window_capacity_;
  std::unique_ptr<std::byte[]> window_memory_;
  std::span<std::byte> window_;
  std::uint64_t window_offset_ = 0;
  StoredTensor stored_{};
  ArchiveMaker archive_of_;
  PartReader part_reader_;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
