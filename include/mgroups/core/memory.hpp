// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Where memory lies. `device` is memory that the host must not dereference.
enum class MemorySpace : std::uint8_t { host, device };

/// A contiguous run of elements in device memory. Deliberately not a range: the host cannot read it.
template <class T>
class device_span {
 public:
  constexpr device_span() = default;
  constexpr device_span(T* data, std::size_t size) noexcept : data_(data), size_(size) {}
  /// From mutable to read-only elements.
  template <class U>
    requires(std::is_same_v<const U, T> && !std::is_same_v<U, T>)
  constexpr device_span(device_span<U> other) noexcept : data_(other.data()), size_(other.size()) {}

  [[nodiscard]] constexpr T* data() const noexcept { return data_; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// `n` elements of device memory at `data`.
template <class T>
[[nodiscard]] constexpr device_span<T> device(T* data, std::size_t n) noexcept {
  return {data, n};
}

MGROUPS_END_NAMESPACE
