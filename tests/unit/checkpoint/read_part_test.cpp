// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/checkpoint/read_part.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include <mgroups/io/posix.hpp>

#include <doctest/doctest.h>

#include "support/temporary_directory.hpp"

namespace mg = mgroups;

TEST_CASE("random strided tensors come out of a file element by element, whatever the buffer's size") {
  const TemporaryDirectory directory;
  const auto file = mg::posix_file_system().create(directory / "numbers");
  std::vector<std::uint32_t> numbers(200000);
  std::iota(numbers.begin(), numbers.end(), 0u);
  file->write_at(0, std::as_bytes(std::span(numbers)));
  std::mt19937 random(11);
  for (int round = 0; round < 400; ++round) {
    const int rank = static_cast<int>(random() % 5);
    mg::TensorView stored{.data = nullptr, .dtype = mg::DType::uint32, .shape = {}, .strides = {}};
    std::vector<int> order(static_cast<std::size_t>(rank));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (int axis = 0; axis < rank; ++axis) stored.shape.push_back(1 + static_cast<std::int64_t>(random() % 8));
    stored.strides = mg::Dims::filled(rank, 0);
    // Gaps of up to 6000 elements make the reader seek, and sizes of one leave strides that do not matter.
    std::int64_t stride = 1, last = 0;
    for (const int axis : order) {
      stored.strides[axis] = stride;
      last += (stored.shape[axis] - 1) * stride;
      const std::int64_t gap = random() % 4 == 0 ? static_cast<std::int64_t>(random() % 6000) : 0;
      stride = std::max<std::int64_t>(1, std::min<std::int64_t>(stride * stored.shape[axis] + gap, 20000));
    }
    const std::int64_t first = static_cast<std::int64_t>(random() % 1000);
    if (first + last >= static_cast<std::int64_t>(numbers.size())) continue;
    std::vector<std::uint32_t> found(static_cast<std::size_t>(mg::numel(stored.shape)), 0xffffffffu);
    const mg::TensorView target{found.data(), mg::DType::uint32, stored.shape, mg::row_major_strides(stored.shape)};
    mg::detail::PartReader reader(std::size_t{64} << (round % 3 * 5));
    reader.read(*file, static_cast<std::uint64_t>(first) * 4, stored, target);
    for (std::int64_t i = 0; i < mg::numel(stored.shape); ++i) {
      std::int64_t rest = i, at = first;
      for (int axis = rank - 1; axis >= 0; --axis) {
        at += rest % stored.shape[axis] * stored.strides[axis];
        rest /= stored.shape[axis];
      }
      REQUIRE(found[static_cast<std::size_t>(i)] == static_cast<std::uint32_t>(at));
    }
  }
}

TEST_CASE("the running CRC has a value only for bytes seen in order and without a gap") {
  const std::vector<std::byte> bytes{std::byte{'1'}, std::byte{'2'}, std::byte{'3'}, std::byte{'4'}, std::byte{'5'},
                                     std::byte{'6'}, std::byte{'7'}, std::byte{'8'}, std::byte{'9'}};
  const std::span all(bytes);
  mg::detail::RunningCrc whole(10);
  whole.add(10, all.first(4));
  CHECK_FALSE(whole.value_at(19));
  whole.add(14, all.subspan(4));
  CHECK(whole.value_at(19) == 0xcbf43926u);  // the check value of CRC-32
  mg::detail::RunningCrc gap(10);
  gap.add(10, all.first(4));
  gap.add(15, all.subspan(5));
  CHECK_FALSE(gap.value_at(19));
}
