// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <mgroups/io/file.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// How to load. By default the checkpoint must have every key of the state dict, with the same shape and dtype.
struct LoadOptions {
  bool allow_missing = false;    ///< keys that are not stored keep their values and are reported
  bool allow_unexpected = true;  ///< stored keys that nobody asks for are reported, not an error
  bool convert_dtype = false;    ///< values of another dtype are converted, where one exists for both (see `convert_box`)
  bool verify_checksums = true;  ///< the CRC-32 of each stored chunk that is read whole, where its writer computed one
  std::size_t buffer_bytes = std::size_t{4} << 20;  ///< memory that each rank uses, about
  FileSystem* files = nullptr;                      ///< null: the machine's own
  std::atomic<std::uint64_t>* progress = nullptr;   ///< if given, bytes of elements are added to it as they are read
};

MGROUPS_END_NAMESPACE
