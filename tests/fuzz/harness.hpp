// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include <sanitizer/allocator_interface.h>

#include <mgroups/core/error.hpp>

namespace mgroups_fuzz {

using Bytes = std::span<const std::byte>;

/// Calls `f`, which may succeed or throw an Error of the library. Every other exception goes on to libFuzzer, which reports
/// it as a crash.
template <class F>
bool succeeds(F&& f) {
  try {
    f();
    return true;
  } catch (const mgroups::Error&) {
    return false;
  }
}

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "property violated: %s\n", what);
  std::abort();
}

/// Ends the process where a scope holds more memory than it is allowed: readers must need only a multiple of their input,
/// whatever the input says of sizes.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::size_t bytes) {
    [[maybe_unused]] static const int installed = __sanitizer_install_malloc_and_free_hooks(&on_malloc, &on_free);
    held = 0;
    limit = static_cast<std::ptrdiff_t>(bytes);
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;
  ~MemoryLimit() { limit = 0; }

 private:
  static inline std::ptrdiff_t held = 0, limit = 0;  // no limit: 0

  static void on_malloc(const volatile void*, std::size_t size) {
    if (limit == 0) return;
    held += static_cast<std::ptrdiff_t>(size);
    if (held <= limit) return;
    limit = 0;  // what follows allocates too
    require(false, "no more memory than a multiple of the input");
  }
  static void on_free(const volatile void* address) {
    if (limit != 0) held -= static_cast<std::ptrdiff_t>(__sanitizer_get_allocated_size(address));
  }
};

/// Several files in one input: before each its length, as four bytes, the lowest first. The last one may be cut.
inline std::vector<Bytes> split_files(Bytes input) {
  std::vector<Bytes> files;
  while (input.size() >= 4) {
    std::size_t length = 0;
    for (std::size_t i = 4; i-- > 0;) length = length << 8 | std::to_integer<std::size_t>(input[i]);
    input = input.subspan(4);
    files.push_back(input.first(std::min(length, input.size())));
    input = input.subspan(files.back().size());
  }
  return files;
}

/// One run on one input: to be defined by each target.
void run(Bytes input);

}  // namespace mgroups_fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mgroups_fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
