// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <mgroups/version.hpp>

#if (defined(__x86_64__) || defined(_M_X64)) && (defined(__GNUC__) || defined(__clang__))
#define MGROUPS_CRC32_PCLMUL 1
#include <emmintrin.h>
#include <wmmintrin.h>
#else
#define MGROUPS_CRC32_PCLMUL 0
#endif

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// The polynomial of zip, gzip and Ethernet, lowest power in the highest bit.
inline constexpr std::uint32_t crc32_polynomial = 0xEDB88320u;

using Crc32Tables = std::array<std::array<std::uint32_t, 256>, 8>;

[[nodiscard]] consteval Crc32Tables make_crc32_tables() {
  Crc32Tables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1u) != 0 ? crc32_polynomial : 0u);
    tables[0][i] = value;
  }
  for (std::size_t t = 1; t < 8; ++t) {
    for (std::size_t i = 0; i < 256; ++i) {
      tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 0xFFu];
    }
  }
  return tables;
}

inline constexpr Crc32Tables crc32_tables = make_crc32_tables();

/// Advances a raw register (already inverted) over `n` bytes, eight at a time: "slicing by 8".
[[nodiscard]] constexpr std::uint32_t crc32_slice(std::uint32_t state, const std::byte* data, std::size_t n) noexcept {
  const auto byte = [&](std::size_t i) { return std::to_integer<std::uint32_t>(data[i]); };
  const auto& t = crc32_tables;
  for (; n >= 8; n -= 8, data += 8) {
    const std::uint32_t low = state ^ (byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24);
    state = t[7][low & 0xFFu] ^ t[6][(low >> 8) & 0xFFu] ^ t[5][(low >> 16) & 0xFFu] ^ t[4][low >> 24] ^ t[3][byte(4)] ^
            t[2][byte(5)] ^ t[1][byte(6)] ^ t[0][byte(7)];
  }
  for (; n > 0; --n, ++data) state = (state >> 8) ^ t[0][(state ^ byte(0)) & 0xFFu];
  return state;
}

/// a(x) * b(x) mod P(x), all with the lowest power in the highest bit.
[[nodiscard]] constexpr std::uint32_t crc32_multiply(std::uint32_t a, std::uint32_t b) noexcept {
  std::uint32_t product = 0;
  for (std::uint32_t mask = 0x80000000u; mask != 0; mask >>= 1) {
    if ((a & mask) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1u) != 0 ? crc32_polynomial : 0u);
  }
  return product;
}

/// x^power mod P(x).
[[nodiscard]] constexpr std::uint32_t crc32_power(std::uint64_t power) noexcept {
  std::uint32_t result = 0x80000000u;
  for (std::uint32_t square = 0x40000000u; power != 0; power >>= 1) {
    if ((power & 1u) != 0) result = crc32_multiply(result, square);
    square = crc32_multiply(square, square);
  }
  return result;
}

/// x^(8 * 2^i) mod P(x), which moves a CRC 2^i bytes further. (The length in bits may pass 64 bits.)
[[nodiscard]] consteval std::array<std::uint32_t, 64> make_crc32_shifts() {
  std::array<std::uint32_t, 64> shifts{};
  shifts[0] = crc32_power(8);
  for (std::size_t i = 1; i < 64; ++i) shifts[i] = crc32_multiply(shifts[i - 1], shifts[i - 1]);
  return shifts;
}
inline constexpr std::array<std::uint32_t, 64> crc32_shifts = make_crc32_shifts();

#if MGROUPS_CRC32_PCLMUL

/// The multiplier that moves 64 bits `bits` further, in the 33-bit form that a reflected carry-less product wants.
[[nodiscard]] consteval std::int64_t crc32_fold_constant(std::uint64_t bits) {
  return static_cast<std::int64_t>(std::uint64_t{crc32_power(bits)} << 1);
}

[[gnu::target("pclmul,sse2")]] inline __m128i crc32_fold(__m128i x, __m128i next, __m128i k) noexcept {
  return _mm_xor_si128(next, _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)));
}

/// Joins eight streams of 16 bytes, and goes on with the `n` bytes that are left.
[[nodiscard, gnu::target("pclmul,sse2")]] inline std::uint32_t crc32_finish(const __m128i* streams, const std::byte* data,
                                                                            std::size_t n) noexcept {
  const __m128i by_128 = _mm_set_epi64x(crc32_fold_constant(128 - 32), crc32_fold_constant(128 + 32));
  __m128i x = streams[0];
  for (int i = 1; i < 8; ++i) x = crc32_fold(x, streams[i], by_128);
  for (; n >= 16; n -= 16, data += 16) {
    x = crc32_fold(x, _mm_loadu_si128(reinterpret_cast<const __m128i*>(data)), by_128);
  }
  std::byte rest[16];
  std::memcpy(rest, &x, sizeof rest);
  return crc32_slice(crc32_slice(0, rest, sizeof rest), data, n);
}

/// Folds blocks of 16 bytes, eight streams at a time (Gopal et al., "Fast CRC Computation for Generic Polynomials Using
/// PCLMULQDQ", Intel 2009); what remains is 16 bytes congruent to the message, which the tables finish. `n` >= 128.
[[nodiscard, gnu::target("pclmul,sse2")]] inline std::uint32_t crc32_pclmul(std::uint32_t state, const std::byte* data,
                                                                            std::size_t n) noexcept {
  const auto load = [](const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); };
  const __m128i by_1024 = _mm_set_epi64x(crc32_fold_constant(1024 - 32), crc32_fold_constant(1024 + 32));
  __m128i x0 = _mm_xor_si128(load(data), _mm_cvtsi32_si128(static_cast<int>(state)));
  __m128i x1 = load(data + 16), x2 = load(data + 32), x3 = load(data + 48);
  __m128i x4 = load(data + 64), x5 = load(data + 80), x6 = load(data + 96), x7 = load(data + 112);
  data += 128;
  n -= 128;
  for (; n >= 128; n -= 128, data += 128) {
    x0 = crc32_fold(x0, load(data), by_1024);
    x1 = crc32_fold(x1, load(data + 16), by_1024);
    x2 = crc32_fold(x2, load(data + 32), by_1024);
    x3 = crc32_fold(x3, load(data + 48), by_1024);
    x4 = crc32_fold(x4, load(data + 64), by_1024);
    x5 = crc32_fold(x5, load(data + 80), by_1024);
    x6 = crc32_fold(x6, load(data + 96), by_1024);
    x7 = crc32_fold(x7, load(data + 112), by_1024);
  }
  const __m128i streams[8] = {x0, x1, x2, x3, x4, x5, x6, x7};
  return crc32_finish(streams, data, n);
}

// Of 256 bits, by the compilers' own names: their header for wide vectors takes half a second to compile.
using Crc32Wide = long long __attribute__((vector_size(32)));

[[gnu::target("vpclmulqdq,avx2")]] inline Crc32Wide crc32_fold_wide(Crc32Wide x, const std::byte* data,
                                                                    Crc32Wide k) noexcept {
  Crc32Wide next;
  __builtin_memcpy(&next, data, sizeof next);
#if defined(__clang__)
  return next ^ __builtin_ia32_pclmulqdq256(x, k, 0x00) ^ __builtin_ia32_pclmulqdq256(x, k, 0x11);
#else
  return next ^ __builtin_ia32_vpclmulqdq_v4di(x, k, 0x00) ^ __builtin_ia32_vpclmulqdq_v4di(x, k, 0x11);
#endif
}

/// The same eight streams, two in each register. `n` >= 128.
[[nodiscard, gnu::target("vpclmulqdq,avx2")]] inline std::uint32_t crc32_vpclmul(std::uint32_t state, const std::byte* data,
                                                                                 std::size_t n) noexcept {
  constexpr long long near = crc32_fold_constant(1024 + 32), far = crc32_fold_constant(1024 - 32);
  const Crc32Wide by_1024 = {near, far, near, far};
  Crc32Wide x[4];
  __builtin_memcpy(x, data, sizeof x);
  x[0] ^= Crc32Wide{static_cast<long long>(state), 0, 0, 0};
  data += 128;
  n -= 128;
  for (; n >= 128; n -= 128, data += 128) {
    x[0] = crc32_fold_wide(x[0], data, by_1024);
    x[1] = crc32_fold_wide(x[1], data + 32, by_1024);
    x[2] = crc32_fold_wide(x[2], data + 64, by_1024);
    x[3] = crc32_fold_wide(x[3], data + 96, by_1024);
  }
  __m128i streams[8];
  __builtin_memcpy(streams, x, sizeof streams);
  return crc32_finish(streams, data, n);
}

#endif

}  // namespace detail

/// The CRC-32 of zip files. For data that arrive in pieces pass the value so far as `seed`; 0 starts.
[[nodiscard]] inline std::uint32_t crc32(std::span<const std::byte> data, std::uint32_t seed = 0) noexcept {
  std::uint32_t state = ~seed;
#if MGROUPS_CRC32_PCLMUL
  if (data.size() >= 128) {
    if (__builtin_cpu_supports("vpclmulqdq") != 0 && __builtin_cpu_supports("avx2") != 0) {
      return ~detail::crc32_vpclmul(state, data.data(), data.size());
    }
    if (__builtin_cpu_supports("pclmul") != 0) return ~detail::crc32_pclmul(state, data.data(), data.size());
  }
#endif
  return ~detail::crc32_slice(state, data.data(), data.size());
}

/// The CRC-32 of two pieces joined, from the CRC-32 of each and the second one's length in bytes.
[[nodiscard]] constexpr std::uint32_t crc32_combine(std::uint32_t first, std::uint32_t second,
                                                    std::uint64_t second_bytes) noexcept {
  for (int i = 0; second_bytes != 0; ++i, second_bytes >>= 1) {
    if ((second_bytes & 1u) != 0) first = detail::crc32_multiply(detail::crc32_shifts[static_cast<std::size_t>(i)], first);
  }
  return first ^ second;
}

MGROUPS_END_NAMESPACE
