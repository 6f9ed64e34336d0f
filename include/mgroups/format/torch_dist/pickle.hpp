// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <mgroups/format/torch_dist/pickle_reader.hpp>
#include <mgroups/format/torch_dist/pickle_text.hpp>
#include <mgroups/format/torch_dist/pickle_value.hpp>
#include <mgroups/format/torch_dist/pickle_writer.hpp>
