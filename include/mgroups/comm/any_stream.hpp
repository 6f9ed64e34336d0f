// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <concepts>
#include <type_traits>

#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// A stream whose type has been forgotten: the handle of a CUDA stream, or null for the default one. Converts from raw
/// stream handles (`cudaStream_t` is a pointer) and from wrappers that give theirs out by `get()` or `value()`. Cheap, owns
/// nothing.
class any_stream {
 public:
  constexpr any_stream() = default;
  constexpr any_stream(void* handle) noexcept : handle_(handle) {}
  template <class T>
    requires(!std::is_void_v<T> && !std::is_const_v<T>)
  constexpr any_stream(T* handle) noexcept : handle_(handle) {}
  template <class Wrapper>
    requires requires(const Wrapper& stream) {
      { stream.get() } -> std::convertible_to<void*>;
    }
  constexpr any_stream(const Wrapper& stream) noexcept : handle_(stream.get()) {}
  template <class Wrapper>
    requires requires(const Wrapper& stream) {
      { stream.value() } -> std::convertible_to<void*>;
    }
  constexpr any_stream(const Wrapper& stream) noexcept : handle_(stream.value()) {}

  [[nodiscard]] constexpr void* handle() const noexcept { return handle_; }
  [[nodiscard]] friend constexpr bool operator==(any_stream, any_stream) noexcept = default;

 private:
  void* handle_ = nullptr;
};

/// The stream as a backend spells it. Specialise it for a backend whose `stream_type` is not a pointer.
template <class Stream>
struct stream_cast {
  static_assert(std::is_pointer_v<Stream>, "specialise mgroups::stream_cast for a stream_type that is not a pointer");
  [[nodiscard]] static Stream from(any_stream stream) noexcept { return static_cast<Stream>(stream.handle()); }
};

MGROUPS_END_NAMESPACE
