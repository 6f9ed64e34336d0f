// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <mgroups/io/file.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// What is compared with stored checksums while a checkpoint is read.
enum class Verify : std::uint8_t {
  nothing,
  touched,  ///< what is read: every block of a checkpoint of ours; of others, chunks that are read whole and have a CRC-32
  everything,  ///< in checkpoints of others, chunks that are read in part are read whole for it
};

/// Whether one rank reads for several and sends each what it wants, which costs copies between ranks.
enum class ReadSharing : std::uint8_t {
  never,      ///< every rank reads what it wants
  automatic,  ///< where each would read much that it does not want, to get at short rows
  always,     ///< and where several want the same: pays where files are slower than ranks are among each other
};

/// How to load. By default the checkpoint must have every key of the state dict, with the same shape and dtype.
struct LoadOptions {
  bool allow_missing = false;    ///< keys that are not stored keep their values and are reported
  bool allow_unexpected = true;  ///< stored keys that nobody asks for are reported, not an error
  bool convert_dtype = false;    ///< values of another dtype are converted, where one exists for both (see `convert_box`)
  Verify verify = Verify::touched;
  ReadSharing shared_reads = ReadSharing::automatic;
  std::size_t buffer_bytes = std::size_t{4} << 20;  ///< memory that each rank uses, about
  FileSystem* files = nullptr;                      ///< null: the machine's own
  std::atomic<std::uint64_t>* progress = nullptr;   ///< if given, bytes of elements are added to it as they are read
};

MGROUPS_END_NAMESPACE
