// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/core/box.hpp>

mgroups::Dims other_shape();

mgroups::Dims other_shape() { return {2, 3}; }
