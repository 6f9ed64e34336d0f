// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// How a reader gets at bytes: a reference to a callable `(std::uint64_t offset, std::span<std::byte> out) -> void` that
/// fills all of `out` or throws, or to bytes in memory. Does not own it: use as an argument, or outlive it.
class ReadAt {
 public:
  template <class F>
    requires(std::invocable<F&, std::uint64_t, std::span<std::byte>> && !std::same_as<std::remove_cvref_t<F>, ReadAt>)
  ReadAt(F&& f) noexcept  // NOLINT: implicit, as a function reference is
      : target_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* target, std::uint64_t offset, std::span<std::byte> out) {
          (*static_cast<std::remove_reference_t<F>*>(target))(offset, out);
        }) {}
  /// Of bytes in memory, which are then used where they lie.
  template <class Bytes>
    requires std::convertible_to<const Bytes&, std::span<const std::byte>>
  ReadAt(const Bytes& memory) noexcept : memory_(memory) {}  // NOLINT: implicit

  /// Offset and length must lie within what there is: readers check that first.
  void operator()(std::uint64_t offset, std::span<std::byte> out) const {
    if (call_ != nullptr) {
      call_(target_, offset, out);
    } else if (!out.empty()) {
      std::memcpy(out.data(), memory_.data() + offset, out.size());
    }
  }
  [[nodiscard]] bool in_memory() const noexcept { return call_ == nullptr; }
  /// The bytes, where `in_memory`.
  [[nodiscard]] std::span<const std::byte> memory() const noexcept { return memory_; }

 private:
  void* target_ = nullptr;
  void (*call_)(void*, std::uint64_t, std::span<std::byte>) = nullptr;
  std::span<const std::byte> memory_;
};

MGROUPS_END_NAMESPACE
