// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mgroups_test {

inline std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Calls `attempt` with every cut of `good`, and with every byte of it changed: each single bit, all bits, and to 0
/// and 255. What `attempt` throws other than the errors it expects fails the test; crashes and wild allocations show
/// under the sanitizers. `stride` > 1 tries every stride-th position only.
template <class Attempt>
void attack(const std::vector<std::byte>& good, Attempt&& attempt, std::size_t stride = 1) {
  for (std::size_t cut = 0; cut < good.size(); cut += stride) {
    // A vector of its own, so that the address sanitizer sees reads behind its end.
    const std::vector<std::byte> bad(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(cut));
    attempt(bad, cut);
  }
  std::vector<std::byte> bad = good;
  for (std::size_t i = 0; i < good.size(); i += stride) {
    for (int change = 0; change < 11; ++change) {
      const auto old = std::to_integer<unsigned>(good[i]);
      const unsigned now = change < 8 ? old ^ (1u << change) : change == 8 ? old ^ 0xFFu : change == 9 ? 0u : 0xFFu;
      bad[i] = static_cast<std::byte>(now);
      attempt(bad, i);
    }
    bad[i] = good[i];
  }
}

inline std::uint64_t little_endian(std::span<const std::byte> bytes, std::size_t offset, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(bytes[offset + i]);
  return value;
}

}  // namespace mgroups_test
