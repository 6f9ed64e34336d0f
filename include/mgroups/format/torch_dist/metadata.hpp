// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <mgroups/format/torch_dist/metadata_filter.hpp>
#include <mgroups/format/torch_dist/metadata_parse.hpp>
#include <mgroups/format/torch_dist/metadata_types.hpp>
#include <mgroups/format/torch_dist/metadata_writer.hpp>
