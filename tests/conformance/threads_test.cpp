// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <doctest/doctest.h>

#include <vector>

#include <mgroups/comm/threads.hpp>

#include "conformance.hpp"

namespace {

struct Threads {
  static std::vector<int> sizes() { return {1, 2, 3, 4, 7}; }
  template <class F>
  static void run(int ranks, F f) {
    mgroups::run_threads(ranks, f);
  }
};

}  // namespace

TEST_CASE("conformance: threads") { conformance::run_conformance<Threads>(); }
TEST_CASE("conformance: threads behind any_communicator") { conformance::run_conformance<conformance::Erased<Threads>>(); }
TEST_CASE("conformance: a group of threads without world rank 0") {
  conformance::run_conformance<conformance::Subgroup<Threads>>();
}
