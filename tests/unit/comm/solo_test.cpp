// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <vector>

#include <mgroups/comm/solo.hpp>

namespace mg = mgroups;

// What solo shares with every backend is tested by tests/conformance.

TEST_CASE("device memory costs an absent axis nothing, and is not copied") {
  mg::solo_comm solo;
  float values[2] = {1, 2}, out[2] = {};
  const auto there = mg::device(values, 2);
  solo.all_reduce(there, mg::avg);
  solo.broadcast(there, 0);
  solo.all_gather(there, there);
  solo.all_reduce(mg::device(values, 0), mg::device(out, 0), mg::sum);
  CHECK_THROWS_WITH_AS(solo.all_gather(there, mg::device(out, 2)),
                       "all_gather on group solo: a solo communicator cannot copy device memory; call the verb in place",
                       mg::UnsupportedError);
}

TEST_CASE("names and groups") {
  mg::solo_comm solo("tp");
  CHECK(solo.name() == "tp");
  const int self[] = {0};
  CHECK(solo.create_group(self, "dp").name() == "dp");
  CHECK(solo.create_group(self, "").name() == "tp");
  CHECK(&solo.on(nullptr) == &solo);
  const auto outside = solo.split(mg::no_color, 0);
  CHECK_FALSE(outside.is_member());
  CHECK_THROWS_AS((void)outside.size(), mg::NotAMember);
}
