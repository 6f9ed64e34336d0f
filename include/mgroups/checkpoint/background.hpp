// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#if defined(__linux__)
#include <sys/resource.h>
#endif

#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Makes this thread yield to others by `niceness`, 0 to 19, as far as the system lets it. Elsewhere than on Linux a nice
/// value is of the whole process: nothing is done.
inline void lower_priority([[maybe_unused]] int niceness) noexcept {
#if defined(__linux__)
  if (niceness > 0) static_cast<void>(setpriority(PRIO_PROCESS, 0, niceness));
#endif
}

}  // namespace detail

MGROUPS_END_NAMESPACE
