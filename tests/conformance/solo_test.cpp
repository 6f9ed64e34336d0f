// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <doctest/doctest.h>

#include <vector>

#include <mgroups/comm/solo.hpp>

#include "conformance.hpp"

namespace {

struct Solo {
  static std::vector<int> sizes() { return {1}; }
  template <class F>
  static void run(int, F f) {
    mgroups::solo_comm world;
    f(world);
  }
};

}  // namespace

TEST_CASE("conformance: solo") { conformance::run_conformance<Solo>(); }
TEST_CASE("conformance: solo behind any_communicator") { conformance::run_conformance<conformance::Erased<Solo>>(); }
