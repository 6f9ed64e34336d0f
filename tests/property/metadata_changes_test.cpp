// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// A `.metadata` is read in one of two ways, of records or of the whole tree: they agree, whatever is changed in it.
#include <mgroups/format/torch_dist/metadata.hpp>

#include <cstddef>

#include <doctest/doctest.h>

#include "support/bytes.hpp"
#include "support/metadata_pickles.hpp"

namespace mg = mgroups;

TEST_CASE("metadata records: no change of a byte makes the two readers differ") {
  const mgroups_test::Bytes whole = mg::write_metadata(mgroups_test::large(2, 3));
  for (const mgroups_test::Bytes& good : {whole, mgroups_test::pickled(4, mgroups_test::Sharing::offsets),
                                          mgroups_test::pickled(2, mgroups_test::Sharing::nothing)}) {
    mgroups_test::attack(
        good,
        [&](const mgroups_test::Bytes& bad, std::size_t at) {
          CAPTURE(at);
          const auto condensed = mgroups_test::made_by(mg::detail::read_condensed_metadata, bad);
          if (!condensed) return;  // then the other one speaks
          const auto plain = mgroups_test::made_by(mg::detail::read_plain_metadata, bad);
          REQUIRE(plain.has_value());
          REQUIRE(mgroups_test::same(*plain, *condensed));
        },
        good.size() > 5000 ? 97 : 5);
  }
}
