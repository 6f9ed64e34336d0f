// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <openssl/evp.h>

namespace mgroups_test {

/// A file or folder below the fixtures that the real libraries wrote, or nothing where they are not installed: the
/// environment's MGROUPS_SHARED_DIR, else the build's, else `shared` beside the source tree.
inline std::optional<std::string> fixture(const std::string& name) {
  std::vector<std::string> roots;
  if (const char* const root = std::getenv("MGROUPS_SHARED_DIR")) roots.emplace_back(root);
#ifdef MGROUPS_SHARED_DIR
  roots.emplace_back(MGROUPS_SHARED_DIR);
#endif
  std::error_code ignored;
  const auto here = std::filesystem::weakly_canonical(__FILE__, ignored);
  roots.push_back((here.parent_path() / "../../../shared").lexically_normal().string());
  for (const std::string& root : roots) {
    const std::string path = root + "/fixtures/" + name;
    if (std::filesystem::exists(path)) return path;
  }
  return std::nullopt;
}

/// A whole file; one that cannot be read is empty.
inline std::vector<std::byte> file_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// Lower-case hexadecimal SHA-256.
inline std::string sha256(std::span<const std::byte> data) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  EVP_Digest(data.data(), data.size(), digest, &length, EVP_sha256(), nullptr);
  constexpr char hex[] = "0123456789abcdef";
  std::string out;
  for (unsigned int i = 0; i < length; ++i) {
    out.push_back(hex[digest[i] >> 4]);
    out.push_back(hex[digest[i] & 0xF]);
  }
  return out;
}

}  // namespace mgroups_test
