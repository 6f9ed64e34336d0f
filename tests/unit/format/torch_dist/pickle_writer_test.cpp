// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/format/torch_dist/pickle_writer.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "../../../support/bytes.hpp"

namespace mg = mgroups;
using namespace std::string_view_literals;

namespace {

template <class F>
std::string written(F&& f) {
  std::vector<std::byte> out;
  mg::PickleWriter writer(out);
  f(writer);
  writer.stop();
  return mgroups_test::text_of(out);
}

}  // namespace

TEST_CASE("pickle writer: numbers as CPython's pickle.dumps(..., 2) writes them") {
  const auto bytes = written([](mg::PickleWriter& w) {
    w.protocol().empty_list().put(0).mark().none().boolean(true).boolean(false);
    for (const std::int64_t value :
         {std::int64_t{0}, std::int64_t{255}, std::int64_t{256}, std::int64_t{65535}, std::int64_t{65536}, std::int64_t{-1},
          std::int64_t{2147483647}, std::int64_t{-2147483648}, std::int64_t{2147483648}, std::int64_t{-2147483649},
          std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min(), std::int64_t{128},
          std::int64_t{-129}, std::int64_t{1} << 40}) {
      w.integer(value);
    }
    w.appends();
  });
  CHECK(bytes ==
        "\x80\x02]q\x00(N\x88\x89K\x00K\xff"
        "M\x00\x01M\xff\xffJ\x00\x00\x01\x00J\xff\xff\xff\xffJ\xff\xff\xff\x7fJ\x00\x00\x00\x80\x8a\x05\x00\x00\x00\x80\x00"
        "\x8a\x05\xff\xff\xff\x7f\xff\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80K\x80J"
        "\x7f\xff\xff\xff\x8a\x06\x00\x00\x00\x00\x00\x01"
        "e."sv);
  const auto wide = written([](mg::PickleWriter& w) {
    w.protocol().empty_list().put(0).mark();
    w.unsigned_integer(std::uint64_t{1} << 63).unsigned_integer(~std::uint64_t{0}).real(0.1).appends();
  });
  CHECK(wide ==
        "\x80\x02]q\x00(\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00"
        "G?\xb9\x99\x99\x99\x99\x99\x9a"
        "e."sv);
}

TEST_CASE("pickle writer: the body of a fixture's common.pt, opcode by opcode") {
  const auto bytes = written([](mg::PickleWriter& w) {
    w.protocol().empty_dict().put(0).mark();
    w.text("iteration").put(8).integer(123).text("checkpoint_version").put(9).real(3.0);
    w.text("o").empty_ordered_dict().text("s").integers(std::vector<std::int64_t>{1, 2}).set_items();
  });
  CHECK(bytes ==
        "\x80\x02}q\x00(X\x09\x00\x00\x00iterationq\x08K{X\x12\x00\x00\x00"
        "checkpoint_versionq\x09G@\x08\x00\x00\x00\x00\x00\x00X\x01\x00\x00\x00o"
        "ccollections\nOrderedDict\n)RX\x01\x00\x00\x00sK\x01K\x02\x86u."sv);
}

TEST_CASE("pickle writer: memo numbers above a byte, tuples of every length, long texts in blocks") {
  CHECK(written([](mg::PickleWriter& w) { w.none().put(255).get(255).put(256).get(256); }) ==
        "Nq\xffh\xffr\x00\x01\x00\x00j\x00\x01\x00\x00."sv);
  CHECK(written([](mg::PickleWriter& w) { w.integers({}); }) == ")."sv);
  CHECK(written([](mg::PickleWriter& w) { w.integers(std::vector<std::int64_t>{1, 2, 3}); }) == "K\x01K\x02K\x03\x87."sv);
  CHECK(written([](mg::PickleWriter& w) {
          w.integers(std::vector<std::int64_t>{1, 2, 3, 4});
        }) == "(K\x01K\x02K\x03K\x04t."sv);
  for (const std::size_t n : {0u, 4090u, 4091u, 4092u, 4096u, 4097u, 20000u}) {
    std::size_t blocks = 0;
    std::string out;
    auto sink = [&](std::span<const std::byte> block) {
      ++blocks;
      out += mgroups_test::text_of(block);
    };
    mg::PickleWriter w(sink);
    w.text(std::string(n, 'x'));
    w.stop();
    REQUIRE(out.size() == n + 6);
    CHECK(out.substr(5, n) == std::string(n, 'x'));
    CHECK(blocks <= 3);
  }
}
