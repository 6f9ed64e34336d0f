// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

// All that a host compiler can take, for programs that do not mind what it costs to compile. The library itself, and code
// that does mind, includes the headers that it uses.
#include <mgroups/checkpoint/async.hpp>
#include <mgroups/checkpoint/load.hpp>
#include <mgroups/checkpoint/reader.hpp>
#include <mgroups/checkpoint/safetensors_reader.hpp>
#include <mgroups/checkpoint/save.hpp>
#include <mgroups/checkpoint/verify.hpp>
#include <mgroups/checkpoint/writer.hpp>
#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/comm/solo.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/core/value.hpp>
#include <mgroups/format/safetensors.hpp>
#include <mgroups/group/context.hpp>
#include <mgroups/group/group.hpp>
#include <mgroups/pack/convert.hpp>
#include <mgroups/pack/pack.hpp>
#include <mgroups/shard/layers/tensor_parallel.hpp>
#include <mgroups/shard/sharded_object.hpp>
#include <mgroups/shard/sharded_tensor.hpp>
#include <mgroups/shard/state_dict.hpp>
#include <mgroups/topology/grid.hpp>
#include <mgroups/topology/tags.hpp>
#include <mgroups/version.hpp>
