// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/core/crc32.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

namespace mg = mgroups;

namespace {

std::uint32_t crc_of(std::string_view text) { return mg::crc32(std::as_bytes(std::span(text))); }

// One bit at a time, as the definition says.
std::uint32_t slow_crc(std::span<const std::byte> data) {
  std::uint32_t state = 0xFFFFFFFFu;
  for (const std::byte byte : data) {
    state ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1u) != 0 ? 0xEDB88320u : 0u);
  }
  return ~state;
}

std::vector<std::byte> noise(std::size_t n) {
  std::mt19937_64 random(7);
  std::vector<std::byte> out(n);
  for (auto& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

}  // namespace

TEST_CASE("crc32: published check values") {
  CHECK(crc_of("") == 0x00000000u);
  CHECK(crc_of("a") == 0xE8B7BE43u);
  CHECK(crc_of("123456789") == 0xCBF43926u);
  CHECK(crc_of("The quick brown fox jumps over the lazy dog") == 0x414FA339u);
  CHECK(crc_of("\x80\x02K\x05.") == 0x00A314AFu);  // data.pkl of a fixture, as torch wrote it
  const std::vector<std::byte> zeros(1024);
  CHECK(mg::crc32(zeros) == 0xEFB5AF2Eu);
}

TEST_CASE("crc32: every length and alignment equals the definition, whole and in pieces") {
  const auto data = noise(700);
  const std::span all(data);
  for (std::size_t begin : {0u, 1u, 7u, 15u}) {
    for (std::size_t n = 0; begin + n <= 600; ++n) {
      const auto piece = all.subspan(begin, n);
      const std::uint32_t expected = slow_crc(piece);
      REQUIRE(mg::crc32(piece) == expected);
      REQUIRE(~mg::detail::crc32_slice(~0u, piece.data(), piece.size()) == expected);
#if MGROUPS_CRC32_PCLMUL
      if (n >= 128 && __builtin_cpu_supports("pclmul") != 0) {
        REQUIRE(~mg::detail::crc32_pclmul(~0u, piece.data(), piece.size()) == expected);
      }
#endif
      const std::size_t cut = n / 3;
      const std::uint32_t head = mg::crc32(piece.first(cut));
      REQUIRE(mg::crc32(piece.subspan(cut), head) == expected);
      REQUIRE(mg::crc32_combine(head, mg::crc32(piece.subspan(cut)), n - cut) == expected);
    }
  }
}

TEST_CASE("crc32: large buffer, and combination over more bytes than 32 bits count") {
  const auto data = noise((1u << 20) + 13);
  CHECK(mg::crc32(data) == slow_crc(data));
  // CRC-32 of n zero bytes, by doubling: combining must agree with itself however the length is cut.
  const std::vector<std::byte> zeros(1u << 16);
  std::uint32_t crc = mg::crc32(zeros);
  std::uint64_t length = zeros.size();
  while (length < (std::uint64_t{1} << 40)) {
    crc = mg::crc32_combine(crc, crc, length);
    length *= 2;
  }
  const std::uint32_t left = mg::crc32_combine(crc, mg::crc32(zeros), zeros.size());
  const std::uint32_t right = mg::crc32_combine(mg::crc32(zeros), crc, length);
  CHECK(left == right);
}
