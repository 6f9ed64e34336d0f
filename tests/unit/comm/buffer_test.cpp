// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <doctest/doctest.h>

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/comm/buffer.hpp>

namespace mg = mgroups;

namespace {

struct Point {
  float x, y, z;
};
struct Virtual {
  virtual ~Virtual() = default;
};

static_assert(mg::transportable<float> && mg::transportable<const int> && mg::transportable<bool>);
static_assert(mg::transportable<mg::bfloat16> && mg::transportable<std::complex<double>> && mg::transportable<std::byte>);
static_assert(mg::transportable<Point> && mg::transportable<std::array<int, 3>>);
static_assert(!mg::transportable<int*> && !mg::transportable<int&> && !mg::transportable<void> && !mg::transportable<int()>);
static_assert(!mg::transportable<int Point::*> && !mg::transportable<std::nullptr_t> && !mg::transportable<volatile int>);
static_assert(!mg::transportable<std::string> && !mg::transportable<std::vector<int>> && !mg::transportable<Virtual>);
static_assert(!mg::transportable<std::unique_ptr<int>>);
static_assert(!mg::transportable<std::span<int>> && !mg::transportable<std::string_view>);

static_assert(mg::element_type_of<float> == mg::ElementType(mg::DType::float32));
static_assert(mg::element_type_of<Point> == mg::ElementType::opaque(12));
static_assert(mg::element_type_of<std::int32_t> != mg::ElementType::opaque(4));
static_assert(!mg::element_type_of<std::byte>.dtype() && mg::element_type_of<std::byte>.size() == 1);

}  // namespace

TEST_CASE("a buffer counts elements, whatever their size") {
  std::vector<double> values(7);
  const mg::buffer whole{std::span(values)};
  CHECK(whole.data == values.data());
  CHECK(whole.count == 7);
  CHECK(whole.bytes() == 56);
  CHECK(whole.space == mg::MemorySpace::host);
  const mg::const_buffer read = whole;
  CHECK(read.type == mg::ElementType(mg::DType::float64));

  Point point{};
  const mg::const_buffer fixed{std::span<const Point, 1>(&point, 1)};
  CHECK(fixed.bytes() == 12);
  const mg::buffer far{mg::device(values.data(), 3)};
  CHECK(far.space == mg::MemorySpace::device);
  CHECK(far.count == 3);
  CHECK(mg::const_buffer{}.bytes() == 0);
}

TEST_CASE("elements in words") {
  CHECK(mg::elements_text(4, mg::DType::bfloat16) == "4 bfloat16");
  CHECK(mg::elements_text(1, mg::ElementType::opaque(12)) == "1 element of 12 bytes");
  CHECK(mg::elements_text(0, mg::ElementType::opaque(1)) == "0 elements of 1 byte");
}
