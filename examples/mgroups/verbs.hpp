// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct InspectOptions {
  std::string path;
  std::vector<std::string> keys;  ///< none: all
  bool json = false;
  bool sha256 = false;
  bool values = false;
};

/// Prints what a checkpoint holds. What cannot be read is marked where it stands; it is then an mgroups::Error after all the
/// rest was printed. Throws mgroups::Error where there is no checkpoint.
void inspect(const InspectOptions& options);

struct VerifyOptions {
  std::string path;
  bool json = false;
};

/// Prints one line for each fault. True where there is none.
[[nodiscard]] bool verify(const VerifyOptions& options);

struct ConvertOptions {
  std::string source;
  std::string target;
  std::string format = "torch_dist";
  std::uint64_t most_bytes = std::uint64_t{5} << 30;  ///< of a safetensors file
  bool drop_objects = false;
  bool json = false;
};

/// Writes a checkpoint again in another format. Throws mgroups::Error; the target is then as it was.
void convert(const ConvertOptions& options);
