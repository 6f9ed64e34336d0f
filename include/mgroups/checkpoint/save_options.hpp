// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <mgroups/checkpoint/flavour.hpp>
#include <mgroups/io/file.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

class PlanCache;

/// How to save.
struct SaveOptions {
  Flavour flavour = Flavour::torch_dist;
  bool checksums = true;          ///< of each 256 KiB of what is written, in a file of their own that other readers ignore
  bool compare_replicas = false;  ///< refuses to save tensors whose replicas differ, at the price of reading all of them
  std::size_t buffer_bytes = std::size_t{4} << 20;  ///< memory that each rank uses beside the state itself, about
  PlanCache* plan_cache = nullptr;                  ///< if given, an unchanged layout is not planned again; see PlanCache
  FileSystem* files = nullptr;                      ///< null: the machine's own
  std::atomic<std::uint64_t>* progress = nullptr;   ///< if given, bytes of elements are added to it as they are written
};

/// What a save has done, in numbers of this rank.
struct SaveReport {
  std::uint64_t tensors_written = 0;
  std::uint64_t objects_written = 0;
  std::uint64_t bytes_written = 0;  ///< bytes of elements, without the format's own
};

MGROUPS_END_NAMESPACE
