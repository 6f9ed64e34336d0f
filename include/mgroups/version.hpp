// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

// The one place where the version lives; CMakeLists.txt reads it from here.
#define MGROUPS_VERSION_MAJOR 0
#define MGROUPS_VERSION_MINOR 1
#define MGROUPS_VERSION_PATCH 0

// Everything lives in an inline namespace of the minor version, so that two versions can be linked into one program.
#define MGROUPS_BEGIN_NAMESPACE \
  namespace mgroups {           \
  inline namespace v0_1 {
#define MGROUPS_END_NAMESPACE \
  }                           \
  }
