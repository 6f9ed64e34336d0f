// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/pack/pack.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "box_cases.hpp"

namespace mg = mgroups;
using box_cases::Layout;
using box_cases::Random;

TEST_CASE("pack lays tensors back to back in row-major order and unpack takes them apart again") {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Layout> layouts, other_layouts;
    std::vector<std::vector<std::byte>> buffers, others, expected_others;
    std::vector<mg::TensorView> sources, destinations;
    std::vector<std::byte> expected;
    const int tensors = static_cast<int>(random(0, 6));
    for (int i = 0; i < tensors; ++i) {
      const mg::DType dtype = box_cases::random_dtype(random);
      const mg::Dims shape = box_cases::random_shape(random, 500);
      layouts.push_back(box_cases::random_layout(random, dtype, shape, true));
      other_layouts.push_back(box_cases::random_layout(random, dtype, shape, false));
      buffers.emplace_back(layouts.back().buffer_bytes + 1);
      box_cases::fill_with_positions(buffers.back(), static_cast<std::uint64_t>(i));
      others.emplace_back(other_layouts.back().buffer_bytes + 1, std::byte{0xee});
      expected_others.push_back(others.back());
      sources.push_back(layouts.back().view(buffers.back().data()));
      destinations.push_back(other_layouts.back().view(others.back().data()));
      box_cases::naive_copy(sources.back(), other_layouts.back().view(expected_others.back().data()));
      mg::TensorView packed = sources.back();
      const std::size_t at = expected.size();
      expected.resize(at + packed.nbytes());
      packed.data = expected.data() + at;
      packed.strides = mg::row_major_strides(shape);
      box_cases::naive_copy(sources.back(), packed);
    }
    REQUIRE(mg::packed_size(sources) == expected.size());
    std::vector<std::byte> packed(expected.size());
    mg::pack(sources, packed);
    REQUIRE(packed == expected);
    mg::unpack(packed, destinations);
    REQUIRE(others == expected_others);
  }
}

TEST_CASE("several threads copy the same bytes as one") {
  Random random(11);
  // Large enough for several threads: one long run, many rows, few rows of many, a transpose, and small change in between.
  const std::vector<mg::Dims> shapes{{3'000'001}, {4099, 301}, {3, 500'003},     {},
                                     {2, 3, 5},   {0, 4},      {7, 11, 13, 601}, {1500, 1103}};
  std::vector<std::vector<std::byte>> buffers;
  std::vector<mg::TensorView> sources;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const mg::DType dtype = i % 2 == 0 ? mg::DType::uint8 : mg::DType::bfloat16;
    const Layout layout = box_cases::random_layout(random, dtype, shapes[i], true);
    buffers.emplace_back(layout.buffer_bytes + 1);
    box_cases::fill_with_positions(buffers.back(), i);
    sources.push_back(layout.view(buffers.back().data()));
  }
  sources.back().strides = {1, 1500};
  buffers.back().resize(1500 * 1103 * 2);
  box_cases::fill_with_positions(buffers.back(), 99);
  sources.back().data = buffers.back().data();

  const std::size_t bytes = mg::packed_size(sources);
  std::vector<std::byte> expected(bytes);
  mg::pack(sources, expected);
  for (const int threads : {2, 3, 4, 7}) {
    std::vector<std::byte> packed(bytes, std::byte{0xee});
    mg::pack(sources, packed, {.threads = threads});
    REQUIRE_MESSAGE(packed == expected, threads << " threads");

    std::vector<std::vector<std::byte>> back;
    std::vector<mg::TensorView> destinations;
    mg::RunTable table(1 << 20);
    for (const mg::TensorView& source : sources) {
      back.emplace_back(source.nbytes() + 1, std::byte{0xee});
      destinations.push_back({back.back().data(), source.dtype, source.shape, mg::row_major_strides(source.shape)});
      table.add(source, destinations.back());
    }
    mg::unpack(packed, destinations, {.threads = threads});
    std::vector<std::byte> repacked(bytes);
    mg::pack(destinations, repacked);
    REQUIRE(repacked == expected);
    for (auto& buffer : back) std::fill(buffer.begin(), buffer.end(), std::byte{0xee});
    mg::copy_runs(table.runs(), {.threads = threads});
    mg::pack(destinations, repacked);
    REQUIRE(repacked == expected);
  }
}

TEST_CASE("shares of any partition copy a box exactly once") {
  Random random(23);
  for (int round = 0; round < 400; ++round) {
    const mg::DType dtype = box_cases::random_dtype(random);
    const mg::Dims shape = round % 4 == 0 ? mg::Dims{random(1, 30'000)} : box_cases::random_shape(random, 3000);
    const Layout from = box_cases::random_layout(random, dtype, shape, true),
                 to = box_cases::random_layout(random, dtype, shape, false);
    std::vector<std::byte> source(from.buffer_bytes + 1), copied(to.buffer_bytes + 1, std::byte{0xee}), expected = copied;
    box_cases::fill_with_positions(source, 5);
    const mg::BoxCopy box = mg::make_box_copy(from.view(source.data()), to.view(copied.data()));
    box_cases::naive_copy(from.view(source.data()), to.view(expected.data()));
    const auto parts = random(1, 9);
    for (std::int64_t part = parts - 1; part >= 0; --part) {
      const mg::IndexRange share = mg::split_range(box.bytes(), parts, part);
      if (share.size() > 0) mg::detail::copy_part_on_host(box, share.begin, share.end);
    }
    REQUIRE(copied == expected);
  }
}

TEST_CASE("transposes of every element size, with ragged edges") {
  for (const mg::DType dtype :
       {mg::DType::uint8, mg::DType::bfloat16, mg::DType::float32, mg::DType::int64, mg::DType::complex128}) {
    for (const mg::Dims& shape :
         {mg::Dims{64, 64}, mg::Dims{129, 70}, mg::Dims{3, 600}, mg::Dims{517, 530}, mg::Dims{2, 65, 33, 3}}) {
      mg::Dims strides = mg::Dims::filled(shape.rank(), 1);
      for (int axis = 1; axis < shape.rank(); ++axis) strides[axis] = strides[axis - 1] * shape[axis - 1];
      const std::size_t bytes = static_cast<std::size_t>(mg::numel(shape)) * mg::size_of(dtype);
      std::vector<std::byte> source(bytes), copied(bytes), expected(bytes);
      box_cases::fill_with_positions(source, 3);
      const mg::TensorView from{source.data(), dtype, shape, strides};
      mg::copy_box(from, {copied.data(), dtype, shape, mg::row_major_strides(shape)});
      box_cases::naive_copy(from, {expected.data(), dtype, shape, mg::row_major_strides(shape)});
      REQUIRE_MESSAGE(copied == expected, mg::name(dtype) << ' ' << mg::to_string(shape));
    }
  }
}

TEST_CASE("what cannot be packed is refused before anything is written") {
  std::vector<float> a(6, 1.0f), b(6, 2.0f);
  std::vector<mg::TensorView> tensors{mg::view_of(a, {2, 3}), mg::view_of(b, {6})};
  std::vector<std::byte> out(48, std::byte{0xee});
  const auto untouched = out;
  CHECK_THROWS_WITH_AS(mg::pack(tensors, std::span(out).first(47)),
                       "2 tensors take 48 bytes when packed but the buffer has 47; give one of packed_size(tensors) bytes",
                       mg::InvalidArgument);
  CHECK_THROWS_AS(mg::unpack(std::vector<std::byte>(49), tensors), mg::InvalidArgument);
  CHECK_THROWS_WITH_AS(mg::pack(tensors, out, {.threads = 0}), "0 threads cannot copy anything; ask for at least 1",
                       mg::InvalidArgument);
  tensors[1].data = nullptr;
  CHECK_THROWS_AS(mg::pack(tensors, out), mg::InvalidArgument);
  tensors[1].data = b.data();
  tensors[1].space = mg::MemorySpace::device;
  CHECK_THROWS_WITH_AS(
      mg::pack(tensors, out),
      "pack() reads and writes host memory, but a tensor of shape [6] lies in device memory; pack/pack.cuh has the copy "
      "on a stream",
      mg::InvalidArgument);
  CHECK_THROWS_AS(mg::unpack(out, tensors), mg::InvalidArgument);
  CHECK_THROWS_AS(mg::copy_box(tensors[1], mg::view_of(b, {6})), mg::InvalidArgument);
  CHECK_THROWS_AS(mg::copy_box(mg::view_of(b, {6}), tensors[1]), mg::InvalidArgument);
  CHECK(out == untouched);
  const std::vector<float> kept = b;
  const std::vector<mg::TensorView> expanded{mg::view_of(a, {6}), {b.data(), mg::DType::float32, {6}, {0}}};
  CHECK_NOTHROW(mg::pack(expanded, out));
  CHECK_THROWS_AS(mg::unpack(untouched, expanded), mg::InvalidArgument);
  CHECK(a == std::vector<float>(6, 1.0f));
  CHECK(b == kept);
  const std::vector<mg::TensorView> huge(3, mg::TensorView{a.data(), mg::DType::uint8, {std::int64_t{1} << 62}, {1}});
  CHECK_THROWS_AS((void)mg::packed_size(huge), mg::InvalidArgument);
  CHECK(mg::packed_size({}) == 0);
  CHECK_NOTHROW(mg::pack({}, {}));
}
