// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <mgroups/format/safetensors_header.hpp>
#include <mgroups/format/safetensors_model.hpp>
#include <mgroups/format/safetensors_writer.hpp>
