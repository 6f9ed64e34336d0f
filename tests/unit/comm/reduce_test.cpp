// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <doctest/doctest.h>

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <mgroups/comm/reduce.hpp>

namespace mg = mgroups;

namespace {

template <class T>
std::vector<T> reduce(mg::ReduceOp op, const std::vector<std::vector<T>>& inputs) {
  std::vector<const void*> pointers;
  for (const auto& input : inputs) pointers.push_back(input.data());
  std::vector<T> out(inputs[0].size());
  mg::reduce_elements(mg::element_type_of<T>, op, pointers, out.data(), out.size());
  return out;
}

template <class T>
T one(mg::ReduceOp op, std::vector<T> values) {
  std::vector<std::vector<T>> inputs;
  for (const T& value : values) inputs.push_back({value});
  return reduce(op, inputs)[0];
}

unsigned bool_of(mg::ReduceOp op, bool a, bool b) {
  const bool values[] = {a, b};
  const void* inputs[] = {&values[0], &values[1]};
  bool out = false;
  mg::reduce_elements(mg::DType::bool_, op, inputs, &out, 1);
  return out ? 1 : 0;
}

}  // namespace

TEST_CASE_TEMPLATE("numbers", T, float, double, std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t,
                   std::uint16_t, std::uint32_t, std::uint64_t) {
  const std::vector<T> v{T{3}, T{7}, T{2}};
  CHECK(one<T>(mg::sum, v) == T{12});
  CHECK(one<T>(mg::product, v) == T{42});
  CHECK(one<T>(mg::min, v) == T{2});
  CHECK(one<T>(mg::max, v) == T{7});
  CHECK(one<T>(mg::avg, v) == T{4});
  CHECK(one<T>(mg::sum, {T{5}}) == T{5});
}

TEST_CASE("lengths around the block size, and in place") {
  for (const std::size_t n : {0u, 1u, 511u, 1023u, 1024u, 1025u, 4099u}) {
    std::vector<float> a(n), b(n);
    for (std::size_t i = 0; i < n; ++i) {
      a[i] = static_cast<float>(i);
      b[i] = static_cast<float>(2 * i);
    }
    const void* inputs[] = {a.data(), b.data()};
    mg::reduce_elements(mg::DType::float32, mg::sum, inputs, b.data(), n);
    for (std::size_t i = 0; i < n; ++i) REQUIRE(b[i] == static_cast<float>(3 * i));
  }
}

TEST_CASE("integers wrap around, and their average does not") {
  CHECK(one<std::uint8_t>(mg::sum, {200, 100}) == 44);
  CHECK(one<std::uint8_t>(mg::avg, {200, 101}) == 150);
  CHECK(one<std::int8_t>(mg::sum, {100, 100}) == -56);
  CHECK(one<std::uint16_t>(mg::product, {65535, 65535}) == 1);
  constexpr auto big = std::numeric_limits<std::int32_t>::max();
  CHECK(one<std::int32_t>(mg::sum, {big, 1}) == std::numeric_limits<std::int32_t>::min());
  CHECK(one<std::int32_t>(mg::avg, {big, big, big}) == big);
  CHECK(one<std::int64_t>(mg::sum, {std::numeric_limits<std::int64_t>::max(), 1}) ==
        std::numeric_limits<std::int64_t>::min());
  // Towards zero, on both sides of it.
  CHECK(one<std::int32_t>(mg::avg, {-3, 0}) == -1);
  CHECK(one<std::int32_t>(mg::avg, {3, 0}) == 1);
  CHECK(one<std::int16_t>(mg::min, {-5, 4}) == -5);
}

TEST_CASE("half types accumulate in float32 and round once") {
  // 2048 + 1 is no float16, so a sum that rounded at each step would stay at 2048.
  CHECK(static_cast<float>(one<mg::float16>(mg::sum, {mg::float16(2048), mg::float16(1), mg::float16(1)})) == 2050.0f);
  CHECK(static_cast<float>(one<mg::bfloat16>(mg::sum, {mg::bfloat16(256), mg::bfloat16(1), mg::bfloat16(1)})) == 258.0f);
  // The sum exceeds float16's range, the average does not.
  CHECK(static_cast<float>(one<mg::float16>(mg::avg, {mg::float16(60000), mg::float16(60000)})) == 60000.0f);
  CHECK(static_cast<float>(one<mg::bfloat16>(mg::min, {mg::bfloat16(2), mg::bfloat16(-1)})) == -1.0f);
}

TEST_CASE("a NaN is never lost") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const mg::ReduceOp op : {mg::sum, mg::product, mg::min, mg::max, mg::avg}) {
    CHECK(std::isnan(one<float>(op, {nan, 1.0f, 2.0f})));
    CHECK(std::isnan(one<float>(op, {1.0f, nan, 2.0f})));
    CHECK(std::isnan(one<float>(op, {1.0f, 2.0f, nan})));
  }
  CHECK(std::isnan(static_cast<float>(one<mg::float16>(mg::max, {mg::float16(1), mg::float16(nan)}))));
}

TEST_CASE("bool") {
  CHECK(bool_of(mg::sum, true, true) == 1);
  CHECK(bool_of(mg::sum, true, false) == 1);
  CHECK(bool_of(mg::max, false, false) == 0);
  CHECK(bool_of(mg::min, true, false) == 0);
  CHECK(bool_of(mg::product, true, true) == 1);
  CHECK_THROWS_WITH_AS(bool_of(mg::avg, true, true), "bool has no avg; convert to a floating type first",
                       mg::UnsupportedError);
}

TEST_CASE("complex") {
  using C = std::complex<float>;
  CHECK(one<C>(mg::sum, {{1, 2}, {3, 4}}) == C(4, 6));
  CHECK(one<C>(mg::avg, {{1, 2}, {3, 4}}) == C(2, 3));
  CHECK(one<C>(mg::product, {{1, 2}, {3, 4}}) == C(-5, 10));
  CHECK(one<std::complex<double>>(mg::product, {{0, 1}, {0, 1}}) == std::complex<double>(-1, 0));
  CHECK_THROWS_WITH_AS(one<C>(mg::max, {{1, 2}, {3, 4}}), "complex64 has no max, because complex numbers are not ordered",
                       mg::UnsupportedError);
  const mg::float16 a[] = {mg::float16(1), mg::float16(2)}, b[] = {mg::float16(3), mg::float16(4)};
  const void* inputs[] = {a, b};
  mg::float16 out[2];
  mg::reduce_elements(mg::DType::complex32, mg::sum, inputs, out, 1);
  CHECK(static_cast<float>(out[0]) == 4);
  CHECK(static_cast<float>(out[1]) == 6);
}

TEST_CASE("every pair of type and operation works or is refused with a sentence") {
  alignas(16) const unsigned char zeros[16] = {};
  alignas(16) unsigned char out[16];
  const void* inputs[] = {zeros, zeros};
  int refused = 0;
  for (int t = 0; t < mg::dtype_count; ++t) {
    for (const mg::ReduceOp op : {mg::sum, mg::product, mg::min, mg::max, mg::avg}) {
      const mg::ElementType type(static_cast<mg::DType>(t));
      if (mg::reduction_fault(type, op)) {
        ++refused;
        CHECK_THROWS_AS(mg::reduce_elements(type, op, inputs, out, 1), mg::UnsupportedError);
        continue;
      }
      for (unsigned char& byte : out) byte = 0xff;
      mg::reduce_elements(type, op, inputs, out, 1);
      for (std::size_t i = 0; i < type.size(); ++i) CHECK(out[i] == 0);
    }
  }
  CHECK(refused == 1 + 2 * 2 + 2 * 3 + 11 * 5);
  CHECK(mg::reduction_fault(mg::ElementType::opaque(12), mg::sum));
}
