// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Where `text` stops being UTF-8 (overlong forms, surrogates and numbers past U+10FFFF are not), or npos.
[[nodiscard]] inline std::size_t utf8_fault(std::string_view text) noexcept {
  const std::size_t n = text.size();
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  std::size_t i = 0;
  while (i < n) {
    std::uint64_t word = 0;
    if (n - i >= sizeof word) {
      std::memcpy(&word, text.data() + i, sizeof word);
      if ((word & 0x8080808080808080u) == 0) {
        i += sizeof word;
        continue;
      }
    }
    const unsigned lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = lead >= 0xC2 && lead < 0xE0   ? 2u
                               : (lead & 0xF0u) == 0xE0      ? 3u
                               : lead >= 0xF0 && lead < 0xF5 ? 4u
                                                             : 0u;
    if (length == 0 || length > n - i) return i;
    for (std::size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xC0u) != 0x80) return i;
    }
    const unsigned second = byte(i + 1);
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second >= 0xA0) || (lead == 0xF0 && second < 0x90) ||
        (lead == 0xF4 && second >= 0x90)) {
      return i;
    }
    i += length;
  }
  return std::string_view::npos;
}

/// Writes the UTF-8 form of a code point that is no surrogate to `out` (room for 4 bytes); returns its length.
[[nodiscard]] inline std::size_t encode_utf8(std::uint32_t code, char* out) noexcept {
  const auto tail = [&](unsigned shift) { return static_cast<char>(0x80u | ((code >> shift) & 0x3Fu)); };
  if (code < 0x80) {
    out[0] = static_cast<char>(code);
    return 1;
  }
  if (code < 0x800) {
    out[0] = static_cast<char>(0xC0u | (code >> 6));
    out[1] = tail(0);
    return 2;
  }
  if (code < 0x10000) {
    out[0] = static_cast<char>(0xE0u | (code >> 12));
    out[1] = tail(6);
    out[2] = tail(0);
    return 3;
  }
  out[0] = static_cast<char>(0xF0u | (code >> 18));
  out[1] = tail(12);
  out[2] = tail(6);
  out[3] = tail(0);
  return 4;
}

/// A text from a file, fit for one line of an error: quoted, cut after `limit` bytes, control characters and broken
/// UTF-8 as `?`.
[[nodiscard]] inline std::string in_quotes(std::string_view text, std::size_t limit = 120) {
  std::string out = "'";
  bool whole = true;
  if (text.size() > limit) {
    whole = false;
    while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0u) == 0x80) --limit;
    text = text.substr(0, limit);
  }
  const bool valid = utf8_fault(text) == std::string_view::npos;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    out += code < 0x20 || code == 0x7F || (code >= 0x80 && !valid) ? '?' : c;
  }
  return out + (whole ? "'" : "...'");
}

}  // namespace detail

MGROUPS_END_NAMESPACE
