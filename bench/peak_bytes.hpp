// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <string>

/// The most memory that this process has had, in bytes; 0 where the system does not say. (getrusage also counts what the
/// process had before it became this program.)
inline std::size_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return 1024 * static_cast<std::size_t>(std::atoll(line.c_str() + 6));
  }
  return 0;
}
