// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Writes a pickle of protocol 2, opcode by opcode, with only those that `torch.load(weights_only=True)` allows. Values
/// are written in the order in which Python's stack machine wants them:
///   w.protocol(); w.empty_dict().mark().text("iteration").integer(100).set_items(); w.stop();
/// Local. Bytes reach the target in blocks; `stop` sends the last one.
class PickleWriter {
 public:
  /// Appends to a vector, which must outlive the writer.
  explicit PickleWriter(std::vector<std::byte>& out)
      : target_(&out), send_([](void* target, std::span<const std::byte> block) {
          auto& bytes = *static_cast<std::vector<std::byte>*>(target);
          bytes.insert(bytes.end(), block.begin(), block.end());
        }) {}
  /// Calls `sink(std::span<const std::byte>)` for each block. The sink must outlive the writer.
  template <std::invocable<std::span<const std::byte>> Sink>
    requires(!std::is_const_v<Sink>)
  explicit PickleWriter(Sink& sink)
      : target_(&sink),
        send_([](void* target, std::span<const std::byte> block) { (*static_cast<Sink*>(target))(block); }) {}
  PickleWriter(const PickleWriter&) = delete;
  PickleWriter& operator=(const PickleWriter&) = delete;

  PickleWriter& protocol() { return raw("\x80\x02"); }
  /// Ends the pickle: one value must be on the stack.
  void stop() {
    op('.');
    flush();
  }

  PickleWriter& none() { return op('N'); }
  PickleWriter& boolean(bool value) { return op(value ? 0x88 : 0x89); }
  PickleWriter& integer(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    if (value >= 0 && value <= 0xFF) return op('K').little_endian(bits, 1);
    if (value >= 0 && value <= 0xFFFF) return op('M').little_endian(bits, 2);
    if (value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max()) {
      return op('J').little_endian(bits, 4);
    }
    // Two's complement in as few bytes as keep the sign.
    const unsigned used = static_cast<unsigned>(std::bit_width(value < 0 ? ~bits : bits)) / 8 + 1;
    return op(0x8a).little_endian(used, 1).little_endian(bits, used);
  }
  PickleWriter& unsigned_integer(std::uint64_t value) {
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return integer(static_cast<std::int64_t>(value));
    }
    return op(0x8a).little_endian(9, 1).little_endian(value, 8).little_endian(0, 1);
  }
  PickleWriter& real(double value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    std::uint64_t swapped = 0;
    for (int i = 0; i < 8; ++i) swapped |= (bits >> (8 * i) & 0xFFu) << (56 - 8 * i);
    return op('G').little_endian(swapped, 8);
  }
  /// A str; UTF-8.
  PickleWriter& text(std::string_view value) {
    if (value.size() > 0xFFFFFFFFu)
      throw InvalidArgument("a text of 4 GiB or more does not fit into a pickle of protocol 2");
    return op('X').little_endian(value.size(), 4).raw(value);
  }
  /// A class or function by name.
  PickleWriter& global(std::string_view module, std::string_view class_name) {
    return op('c').raw(module).raw("\n").raw(class_name).raw("\n");
  }

  PickleWriter& mark() { return op('('); }
  PickleWriter& empty_dict() { return op('}'); }
  PickleWriter& empty_list() { return op(']'); }
  /// Keys and values since the mark go into the dict below it.
  PickleWriter& set_items() { return op('u'); }
  /// Values since the mark go to the end of the list below it.
  PickleWriter& appends() { return op('e'); }
  /// The top `n` <= 3 values become a tuple.
  PickleWriter& tuple(std::size_t n) {
    constexpr std::uint8_t ops[] = {')', 0x85, 0x86, 0x87};
    if (n > 3) throw InvalidArgument("a tuple of more than 3 elements starts with a mark and ends with marked_tuple");
    return op(ops[n]);
  }
  /// The values since the mark become a tuple.
  PickleWriter& marked_tuple() { return op('t'); }
  /// Integers as a tuple.
  PickleWriter& integers(std::span<const std::int64_t> values) {
    if (values.size() > 3) mark();
    for (const std::int64_t value : values) integer(value);
    return values.size() > 3 ? marked_tuple() : tuple(values.size());
  }

  /// Callable and argument tuple on the stack become the result of the call.
  PickleWriter& reduce() { return op('R'); }
  /// Class and argument tuple on the stack become an instance.
  PickleWriter& new_object() { return op(0x81); }
  /// The state on the stack goes into the object below it.
  PickleWriter& build() { return op('b'); }
  /// An empty collections.OrderedDict, to which set_items adds.
  PickleWriter& empty_ordered_dict() { return global("collections", "OrderedDict").tuple(0).reduce(); }
  /// The value on the stack becomes a reference that the archive resolves.
  PickleWriter& persistent_id() { return op('Q'); }

  /// Remembers the value on the stack under a number; Python expects 0, 1, 2, ...
  PickleWriter& put(std::uint32_t memo) {
    return memo <= 0xFF ? op('q').little_endian(memo, 1) : op('r').little_endian(memo, 4);
  }
  /// Pushes a value remembered before.
  PickleWriter& get(std::uint32_t memo) {
    return memo <= 0xFF ? op('h').little_endian(memo, 1) : op('j').little_endian(memo, 4);
  }

 private:
  PickleWriter& op(int code) {
    if (used_ == sizeof buffer_) flush();
    buffer_[used_++] = static_cast<std::byte>(code);
    return *this;
  }
  PickleWriter& little_endian(std::uint64_t value, unsigned bytes) {
    if (sizeof buffer_ - used_ < 8) flush();
    if constexpr (std::endian::native == std::endian::little) {
      std::memcpy(buffer_ + used_, &value, sizeof value);
    } else {
      for (unsigned i = 0; i < bytes; ++i) buffer_[used_ + i] = static_cast<std::byte>(value >> (8 * i));
    }
    used_ += bytes;
    return *this;
  }
  PickleWriter& raw(std::string_view text) {
    if (text.size() > sizeof buffer_ - used_) {
      flush();
      if (text.size() > sizeof buffer_) {
        send_(target_, std::as_bytes(std::span(text)));
        return *this;
      }
    }
    if (!text.empty()) std::memcpy(buffer_ + used_, text.data(), text.size());
    used_ += text.size();
    return *this;
  }
  void flush() {
    send_(target_, std::span<const std::byte>(buffer_, used_));
    used_ = 0;
  }

  void* target_;
  void (*send_)(void*, std::span<const std::byte>);
  std::size_t used_ = 0;
  std::byte buffer_[4096];  // what is not written is never read
};

MGROUPS_END_NAMESPACE
