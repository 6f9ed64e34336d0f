// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/pack/runs.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <mgroups/pack/pack.hpp>

#include "box_cases.hpp"

namespace mg = mgroups;
using box_cases::Layout;
using box_cases::Random;

static_assert(std::random_access_iterator<mg::source_iterator>);
static_assert(std::random_access_iterator<mg::destination_iterator>);
static_assert(std::random_access_iterator<mg::size_iterator>);
static_assert(std::is_same_v<std::iterator_traits<mg::source_iterator>::value_type, const std::byte*>);
static_assert(std::is_same_v<std::iterator_traits<mg::destination_iterator>::value_type, std::byte*>);
static_assert(std::is_same_v<std::iterator_traits<mg::size_iterator>::value_type, std::size_t>);
static_assert(sizeof(std::iterator_traits<mg::size_iterator>::difference_type) == 8);
static_assert(std::is_trivially_copyable_v<mg::BoxCopy> && std::is_standard_layout_v<mg::BoxCopy>);
static_assert(std::is_trivially_copyable_v<mg::source_iterator>);

namespace {

/// What the run iterators say, carried out. Counts the bytes.
std::int64_t copy_by_iterators(const mg::RunSet& runs) {
  std::int64_t bytes = 0;
  const auto sources = runs.sources();
  const auto destinations = runs.destinations();
  const auto sizes = runs.sizes();
  for (std::int64_t i = 0; i < runs.run_count(); ++i) {
    std::memcpy(destinations[i], sources[i], sizes[i]);
    bytes += static_cast<std::int64_t>(sizes[i]);
  }
  return bytes;
}

mg::TensorView view(void* data, mg::Dims shape, mg::Dims strides, mg::DType dtype = mg::DType::bfloat16) {
  return {data, dtype, shape, strides};
}

}  // namespace

TEST_CASE("iterators, host walk and a naive element loop agree on random boxes") {
  Random random(20240607);
  std::int64_t boxes_with_axes[mg::max_rank] = {};
  std::int64_t cut = 0, empty = 0, elements = 0;
  for (int round = 0; round < 1500; ++round) {
    const int boxes = static_cast<int>(random(1, 4));
    std::vector<Layout> from, to;
    std::vector<std::size_t> from_base, to_base;
    std::size_t from_bytes = 0, to_bytes = 0;
    for (int i = 0; i < boxes; ++i) {
      const mg::DType dtype = box_cases::random_dtype(random);
      const mg::Dims shape = box_cases::random_shape(random, 1000);
      from.push_back(box_cases::random_layout(random, dtype, shape, true));
      to.push_back(box_cases::random_layout(random, dtype, shape, false));
      from_base.push_back(from_bytes);
      to_base.push_back(to_bytes);
      from_bytes += from.back().buffer_bytes;
      to_bytes += to.back().buffer_bytes;
    }
    std::vector<std::byte> source(from_bytes + 1);
    box_cases::fill_with_positions(source, static_cast<std::uint64_t>(round));
    const std::vector<std::byte> untouched(to_bytes + 1, std::byte{0xee});
    std::vector<std::byte> expected = untouched, walked = untouched, iterated = untouched;

    const std::int64_t max_run = random.chance(30) ? random(3, 40) : mg::unlimited_run;
    mg::RunTable walk(max_run), iterate(max_run);
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < from.size(); ++i) {
      const mg::TensorView s = from[i].view(source.data() + from_base[i]);
      box_cases::naive_copy(s, to[i].view(expected.data() + to_base[i]));
      walk.add(s, to[i].view(walked.data() + to_base[i]));
      iterate.add(s, to[i].view(iterated.data() + to_base[i]));
      bytes += static_cast<std::int64_t>(s.nbytes());
      empty += s.numel() == 0 ? 1 : 0;
      elements += s.numel();
    }
    for (std::int64_t i = 0; i < walk.runs().box_count(); ++i) {
      const mg::BoxCopy& box = walk.runs().boxes()[i];
      ++boxes_with_axes[box.rank];
      cut += box.runs_per_line > 1 ? 1 : 0;
    }
    mg::copy_runs(walk.runs());
    REQUIRE(copy_by_iterators(iterate.runs()) == bytes);
    REQUIRE(iterate.bytes() == bytes);
    const bool walk_agrees = walked == expected, iterators_agree = iterated == expected;
    REQUIRE_MESSAGE(walk_agrees, "round " << round);
    REQUIRE_MESSAGE(iterators_agree, "round " << round);
  }
  for (int rank = 0; rank <= 6; ++rank) CHECK_MESSAGE(boxes_with_axes[rank] > 20, "rank " << rank);
  CHECK(cut > 150);
  CHECK(empty > 100);
  CHECK(elements > 300'000);
}

TEST_CASE("axes are dropped, ordered and joined") {
  std::byte source[4096], destination[4096];
  SUBCASE("a dense tensor of any rank is one run") {
    for (const mg::Dims& shape :
         {mg::Dims{}, mg::Dims{7}, mg::Dims{3, 5}, mg::Dims{1, 3, 1, 5}, mg::Dims{2, 3, 2, 1, 5, 2, 3}}) {
      const auto strides = mg::row_major_strides(shape);
      const auto box = mg::make_box_copy(view(source, shape, strides), view(destination, shape, strides));
      CHECK(box.rank == 0);
      CHECK(box.run_count == 1);
      CHECK(box.run_bytes == 2 * mg::numel(shape));
    }
  }
  SUBCASE("a column split has a run per row and no division") {
    const auto box = mg::make_box_copy(view(source, {8, 5}, {20, 1}), view(destination, {8, 5}, {5, 1}));
    CHECK(box.rank == 1);
    CHECK(box.run_count == 8);
    CHECK(box.run_bytes == 10);
    CHECK(box.axes[0].source_stride == 40);
    CHECK(box.axes[0].destination_stride == 10);
  }
  SUBCASE("leading axes that both sides join") {
    const auto box = mg::make_box_copy(view(source, {2, 4, 5}, {80, 20, 1}), view(destination, {2, 4, 5}, {20, 5, 1}));
    CHECK(box.rank == 1);
    CHECK(box.axes[0].size == 8);
  }
  SUBCASE("equally permuted tensors are one run") {
    const auto box = mg::make_box_copy(view(source, {2, 3, 4}, {1, 8, 2}), view(destination, {2, 3, 4}, {1, 8, 2}));
    CHECK(box.rank == 0);
    CHECK(box.run_bytes == 48);
  }
  SUBCASE("a transpose has a run per element") {
    const auto box = mg::make_box_copy(view(source, {3, 4}, {1, 3}), view(destination, {3, 4}, {4, 1}));
    CHECK(box.rank == 2);
    CHECK(box.run_count == 12);
    CHECK(box.run_bytes == 2);
  }
  SUBCASE("an expanded source repeats its row") {
    const auto box = mg::make_box_copy(view(source, {3, 4}, {0, 1}), view(destination, {3, 4}, {4, 1}));
    CHECK(box.run_count == 3);
    CHECK(box.source_of(2) == source);
    CHECK(box.destination_of(2) == destination + 16);
  }
  SUBCASE("sixteen axes, none of which can be joined") {
    mg::Dims shape, strides;
    for (int axis = 0; axis < 16; ++axis) {
      shape.push_back(2);
      strides.push_back(std::int64_t{3} << (15 - axis));
    }
    const auto to = mg::row_major_strides(shape);
    std::vector<std::byte> from(3 * 65536 * 2 + 2), into(65536 * 2), expected(65536 * 2);
    box_cases::fill_with_positions(from, 1);
    mg::Dims alternating = strides;
    for (int axis = 0; axis + 1 < 16; axis += 2) std::swap(alternating[axis], alternating[axis + 1]);
    const auto source_view = view(from.data(), shape, alternating);
    CHECK(mg::make_box_copy(source_view, view(into.data(), shape, to)).rank == 16);
    mg::copy_box(source_view, view(into.data(), shape, to));
    box_cases::naive_copy(source_view, view(expected.data(), shape, to));
    CHECK(into == expected);
  }
}

TEST_CASE("long lines are cut into runs on the fly") {
  std::byte source[1000], destination[1000];
  const auto box = mg::make_box_copy(view(source, {3, 100}, {150, 1}), view(destination, {3, 100}, {100, 1}), 64);
  CHECK(box.line_bytes == 200);
  CHECK(box.runs_per_line == 4);
  CHECK(box.run_count == 12);
  CHECK(box.bytes() == 600);
  CHECK(box.bytes_of(0) == 64);
  CHECK(box.bytes_of(3) == 8);
  CHECK(box.bytes_of(11) == 8);
  CHECK(box.source_of(5) == source + 300 + 64);
  CHECK(box.destination_of(7) == destination + 200 + 192);
}

TEST_CASE("counts beyond 32 bits") {
  // Addresses are only computed: nothing lies there.
  auto* const far = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);
  const std::int64_t rows = (std::int64_t{1} << 33) + 3;
  const mg::TensorView source = view(far, {rows, 5}, {16, 1}, mg::DType::uint8);
  const mg::TensorView destination = view(far + (std::int64_t{1} << 44), {rows, 5}, {5, 1}, mg::DType::uint8);
  mg::RunTable table;
  std::byte a[2], b[2];
  table.add(view(a, {2}, {1}, mg::DType::uint8), view(b, {2}, {1}, mg::DType::uint8));
  table.add(source, destination);
  table.add(view(a, {}, {}, mg::DType::uint8), view(b, {}, {}, mg::DType::uint8));
  const mg::RunSet runs = table.runs();
  CHECK(runs.run_count() == rows + 2);
  CHECK(*(runs.sources() + rows) == far + 16 * (rows - 1));
  CHECK(runs.destinations()[rows] == far + (std::int64_t{1} << 44) + 5 * (rows - 1));
  CHECK(runs.sizes()[rows] == 5);
  CHECK(runs.sources()[rows + 1] == a);
  CHECK(table.bytes() == 5 * rows + 3);

  // One line of 8 GiB and more, in runs of 3 bytes; and a middle axis whose index passes 32 bits.
  const auto line = mg::make_box_copy(view(far, {rows}, {1}, mg::DType::uint8),
                                      view(far + (std::int64_t{1} << 44), {rows}, {1}, mg::DType::uint8), 3);
  CHECK(line.run_count == (rows + 2) / 3);
  CHECK(line.source_of(line.run_count - 1) - far == (line.run_count - 1) * 3);
  CHECK(line.bytes_of(line.run_count - 1) == rows - (line.run_count - 1) * 3);
  const auto deep = mg::make_box_copy(view(far, {2, rows, 3}, {rows * 16, 16, 2}, mg::DType::uint8),
                                      view(far + (std::int64_t{1} << 44), {2, rows, 3}, {rows * 3, 3, 1}, mg::DType::uint8));
  CHECK(deep.source_of(3 * rows + 3 * (rows - 1) + 2) - far == rows * 16 + 16 * (rows - 1) + 4);
}

TEST_CASE("iterator arithmetic") {
  std::byte source[64], destination[64];
  mg::RunTable table(5);
  table.add(view(source, {3, 6}, {10, 1}, mg::DType::uint8), view(destination, {3, 6}, {6, 1}, mg::DType::uint8));
  const mg::RunSet runs = table.runs();
  REQUIRE(runs.run_count() == 6);
  const auto begin = runs.sizes(), end = begin + runs.run_count();
  CHECK(std::vector<std::size_t>(begin, end) == std::vector<std::size_t>{5, 1, 5, 1, 5, 1});
  CHECK(end - begin == 6);
  CHECK(2 + begin == begin + 2);
  CHECK((begin < end && begin <= begin && end > begin && end >= end && begin != end));
  auto it = begin;
  CHECK(*it++ == 5);
  CHECK(*it == 1);
  CHECK(*++it == 5);
  CHECK(*it-- == 5);
  CHECK(*it == 1);
  CHECK(*--it == 5);
  it += 5;
  CHECK(*it == 1);
  it -= 1;
  CHECK(*it == 5);
  CHECK(it[-1] == 1);
  CHECK(std::distance(begin, std::find(begin, end, 1u)) == 1);
}

TEST_CASE("empty sets and boxes have no runs") {
  CHECK(mg::RunSet{}.run_count() == 0);
  mg::RunTable table;
  CHECK(table.runs().run_count() == 0);
  table.add(view(nullptr, {3, 0, 2}, {0, 2, 1}), view(nullptr, {3, 0, 2}, {7, 7, 7}));
  CHECK(table.runs().run_count() == 0);
  CHECK(table.runs().box_count() == 0);
  mg::copy_runs(table.runs());
  std::byte a[2], b[2];
  table.add(view(a, {}, {}), view(b, {}, {}));
  CHECK(table.runs().run_count() == 1);
  table.clear();
  CHECK(table.runs().run_count() == 0);
  CHECK(table.bytes() == 0);
}

TEST_CASE("a set over a table of one's own may hold boxes without runs") {
  std::byte source[8] = {std::byte{1}, std::byte{2}, std::byte{3}}, destination[8] = {};
  const auto one =
      mg::make_box_copy(view(source, {3}, {1}, mg::DType::uint8), view(destination, {3}, {1}, mg::DType::uint8));
  const std::vector<mg::BoxCopy> boxes{mg::BoxCopy{}, one, mg::BoxCopy{}, mg::BoxCopy{}};
  const std::vector<std::int64_t> sums{0, 0, 1, 1, 1};
  const mg::RunSet runs(boxes, sums);
  CHECK(runs.run_count() == 1);
  CHECK(*runs.sources() == source);
  mg::copy_runs(runs);
  CHECK(std::equal(source, source + 3, destination));
  CHECK_THROWS_WITH_AS(mg::RunSet(boxes, std::vector<std::int64_t>{0, 1}),
                       "2 prefix sums do not belong to 4 boxes; give one more than boxes, the first of them 0",
                       mg::InvalidArgument);
}

TEST_CASE("what cannot be copied is refused by a sentence") {
  std::byte a[512], b[512];
  const auto row = [](void* p, mg::Dims shape) { return view(p, shape, mg::row_major_strides(shape)); };
  using mg::InvalidArgument, mg::make_box_copy;
  CHECK_THROWS_WITH_AS(
      (void)make_box_copy(row(a, {2, 3}), row(b, {3, 2})),
      "a source of shape [2, 3] cannot be copied to a destination of shape [3, 2]; take the part() that both have in common",
      InvalidArgument);
  CHECK_THROWS_WITH_AS(
      (void)make_box_copy(view(a, {2}, {1}, mg::DType::float32), row(b, {2})),
      "a source of float32 cannot be copied to a destination of bfloat16 byte by byte; convert_box() converts",
      InvalidArgument);
  CHECK_THROWS_WITH_AS(
      (void)make_box_copy(row(a, {2, 3}), view(b, {2, 3}, {0, 1})),
      "the destination with shape [2, 3] and strides [0, 1] overlaps itself; copy into a tensor whose elements have "
      "their own bytes and rising addresses",
      InvalidArgument);
  CHECK_THROWS_AS((void)make_box_copy(row(a, {2, 3}), view(b, {2, 3}, {1, 1})), InvalidArgument);
  CHECK_THROWS_AS((void)make_box_copy(row(a, {2, 3}), view(b, {2, 3}, {2, 1})), InvalidArgument);
  CHECK_THROWS_WITH_AS(
      (void)make_box_copy(row(a, {3}), view(b + 8, {3}, {-1})),
      "the destination with shape [3] and strides [-1] runs backwards; copy into a tensor whose elements have their own "
      "bytes and rising addresses",
      InvalidArgument);
  CHECK_NOTHROW((void)make_box_copy(row(a, {1, 3}), view(b, {1, 3}, {0, 1})));
  CHECK_THROWS_WITH_AS((void)make_box_copy(view(a, {2, 3}, {1}), row(b, {2, 3})),
                       "the source has shape [2, 3] but strides [1]; give one stride per axis", InvalidArgument);
  CHECK_THROWS_WITH_AS((void)make_box_copy(view(a, {-1, 3}, {3, 1}), view(b, {-1, 3}, {3, 1})),
                       "the source has the negative size -1 in shape [-1, 3]", InvalidArgument);
  CHECK_THROWS_WITH_AS((void)make_box_copy(row(nullptr, {2}), row(b, {2})), "the source with shape [2] has no address",
                       InvalidArgument);
  CHECK_THROWS_AS((void)make_box_copy(row(a, {2}), row(nullptr, {2})), InvalidArgument);
  CHECK_THROWS_WITH_AS((void)make_box_copy(row(a, {100}), row(a + 10, {100})),
                       "source and destination share bytes of the 200 to be copied; copy through a buffer of your own",
                       InvalidArgument);
  CHECK_NOTHROW((void)make_box_copy(row(a, {100}), row(a + 200, {100})));
  CHECK_NOTHROW((void)make_box_copy(view(a, {4, 2}, {4, 1}), view(a + 4, {4, 2}, {4, 1})));
  CHECK_THROWS_AS((void)make_box_copy(row(a, {2}), row(b, {2}), 0), InvalidArgument);
  CHECK_THROWS_AS(mg::RunTable(0), InvalidArgument);
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t stride : {huge, -huge, huge / 4, std::numeric_limits<std::int64_t>::min()}) {
    CHECK_THROWS_AS((void)make_box_copy(view(a, {3}, {stride}), row(b, {3})), InvalidArgument);
  }
  CHECK_THROWS_AS((void)make_box_copy(view(a, {huge, huge}, {1, 1}), view(b, {huge, huge}, {1, 1})), InvalidArgument);
  CHECK_NOTHROW((void)make_box_copy(view(a, {huge, huge, 0}, {1, 1, 1}), view(b, {huge, huge, 0}, {1, 1, 1})));
}

TEST_CASE("a table keeps to one memory space") {
  std::byte a[4], b[4];
  mg::TensorView source = view(a, {2}, {1}), destination = view(b, {2}, {1});
  mg::RunTable table;
  destination.space = mg::MemorySpace::device;
  CHECK_THROWS_AS(table.add(source, destination), mg::InvalidArgument);
  source.space = mg::MemorySpace::device;
  table.add(source, destination);
  CHECK(table.runs().data_space() == mg::MemorySpace::device);
  CHECK(table.runs().table_space() == mg::MemorySpace::host);
  CHECK_THROWS_WITH_AS(
      mg::copy_runs(table.runs()),
      "copy_runs() reads and writes host memory, but these runs lie in device memory; use copy_runs_async()",
      mg::InvalidArgument);
  CHECK_THROWS_AS(table.add(view(a, {2}, {1}), view(b, {2}, {1})), mg::InvalidArgument);
  CHECK(table.runs().box_count() == 1);
}
