// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <cstdio>

#include <mgroups/core/box.hpp>
#include <mgroups/version.hpp>

namespace mg = mgroups;

mg::Dims other_shape();  // in other.cpp, which includes the same headers

int main() {
  std::printf("mgroups %d.%d.%d, a shape of %zu axes\n", MGROUPS_VERSION_MAJOR, MGROUPS_VERSION_MINOR, MGROUPS_VERSION_PATCH,
              static_cast<std::size_t>(other_shape().rank()));
  return other_shape() == mg::Dims{2, 3} ? 0 : 1;
}
