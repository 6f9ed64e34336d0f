// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

// Ranks that are threads of one process: `run_threads` and `thread_comm`.

#include <mgroups/comm/threads/run_threads.hpp>
#include <mgroups/comm/threads/thread_comm.hpp>
