// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <string>
#include <vector>

struct InspectOptions {
  std::string path;
  std::vector<std::string> keys;  ///< none: all
  bool json = false;
  bool sha256 = false;
};

/// Prints what a checkpoint holds. Throws mgroups::Error for what cannot be read.
void inspect(const InspectOptions& options);
