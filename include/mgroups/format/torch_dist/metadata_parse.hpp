// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <mgroups/core/error.hpp>
#include <mgroups/format/torch_dist/metadata_builder.hpp>
#include <mgroups/format/torch_dist/metadata_filter.hpp>
#include <mgroups/format/torch_dist/metadata_reader.hpp>
#include <mgroups/format/torch_dist/metadata_records.hpp>
#include <mgroups/format/torch_dist/metadata_types.hpp>
#include <mgroups/format/torch_dist/pickle_reader.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

[[nodiscard]] inline CheckpointMetadata read_condensed_metadata(std::span<const std::byte> bytes, std::string_view file_name,
                                                                const MetadataFilter* filter) {
  PickleTree tree{{}, {}, bytes, file_name};
  MetadataMemo memo;
  const std::uint32_t root = PickleMachine<MetadataBuilder>(tree, PersistentIds::refused, memo, filter).run();
  if (memo.rewritten()) tree.fail("stores to one memo entry twice");
  return MetadataReader(tree, memo, filter).read({&tree, root});
}
[[nodiscard]] inline CheckpointMetadata read_plain_metadata(std::span<const std::byte> bytes, std::string_view file_name,
                                                            const MetadataFilter* filter) {
  PickleTree tree{{}, {}, bytes, file_name};
  const std::uint32_t root = PickleMachine<>(tree, PersistentIds::refused).run();
  return MetadataReader(tree, {}, filter).read({&tree, root});
}
/// Records say too little for an error: then the whole tree is built.
[[nodiscard]] inline CheckpointMetadata read_metadata(std::span<const std::byte> bytes, std::string_view file_name,
                                                      const MetadataFilter* filter) {
  try {
    return read_condensed_metadata(bytes, file_name, filter);
  } catch (const Error&) {
  }
  return read_plain_metadata(bytes, file_name, filter);
}

}  // namespace detail

/// Reads `.metadata` as torch 1.13 to 2.14 and Megatron-Core write it; every class but theirs is skipped, nothing is
/// executed. Local, blocking. Memory beside the input: about twice that of the result, for a file as torch writes it, and
/// some hundred times the input at most, whatever it holds. Throws FormatError naming `file_name` and key where the file
/// contradicts itself, names files outside of its folder, or repeats values without end. Whether the chunks cover their
/// tensors, and whether files are long enough, is for the reader of the data to check.
[[nodiscard]] inline CheckpointMetadata parse_metadata(std::span<const std::byte> bytes, std::string_view file_name) {
  return detail::read_metadata(bytes, file_name, nullptr);
}

/// As above, but keeps only what `filter` wants, and all objects. Of other tensors the keys are kept (`left_out`), of
/// tensors wanted in part at least the chunks that share an element with a part; `files` are those of what is kept. What is
/// wrong with the rest need not be found.
[[nodiscard]] inline CheckpointMetadata parse_metadata(std::span<const std::byte> bytes, std::string_view file_name,
                                                       const MetadataFilter& filter) {
  return detail::read_metadata(bytes, file_name, &filter);
}

MGROUPS_END_NAMESPACE
