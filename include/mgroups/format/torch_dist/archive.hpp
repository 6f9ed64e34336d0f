// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <mgroups/format/torch_dist/archive_reader.hpp>
#include <mgroups/format/torch_dist/archive_writer.hpp>
#include <mgroups/format/torch_dist/stored_tensor.hpp>
