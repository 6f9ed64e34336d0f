// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include <mgroups/core/error.hpp>
#include <mgroups/core/little_endian.hpp>
#include <mgroups/format/torch_dist/pickle_builder.hpp>
#include <mgroups/format/torch_dist/pickle_value.hpp>
#include <mgroups/format/utf8.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Whether a pickle may refer to storages outside itself, as `data.pkl` of an archive does.
enum class PersistentIds : bool { refused, allowed };

namespace detail {

/// The pickle machine, which executes nothing: time and memory are linear in the input, however often shared values occur.
/// Opcodes of protocols 2 to 5 that Python writes; all others are refused. `Builder` is PickleBuilder, or one that derives
/// from it and hides some of its operations.
template <class Builder = PickleBuilder>
class PickleMachine : private Builder {
 public:
  template <class... Args>
  explicit PickleMachine(PickleTree& tree, PersistentIds persistent_ids, Args&&... args)
      : Builder(tree, std::forward<Args>(args)...), input_(tree.input), persistent_ids_(persistent_ids) {}

  /// Runs to STOP and returns the root.
  [[nodiscard]] std::uint32_t run() {
    if (input_.empty() || input_[0] != std::byte{0x80}) tree_.fail("does not start like a pickle of protocol 2 or newer");
    while (true) {
      opcode_position_ = position_;
      const auto opcode = static_cast<std::uint8_t>(take(1)[0]);
      if (opcode == '.') break;
      step(opcode);
    }
    if (!marks_.empty() || stack_.size() != 1) fail("stops with an unfinished value");
    if (position_ != input_.size()) fail(concat("has ", input_.size() - position_, " bytes behind its end"));
    return stack_.back();
  }

 private:
  using Builder::add, Builder::add_slice, Builder::int_node, Builder::push, Builder::push_new, Builder::pop,
      Builder::pop_mark, Builder::share_top, Builder::put, Builder::get, Builder::fail;
  using Builder::add_marked, Builder::add_some, Builder::push_marked, Builder::push_tuple, Builder::push_tuple_of;
  using Builder::build, Builder::call, Builder::call_with_keywords, Builder::push_global;
  using Builder::none_node, Builder::true_node, Builder::false_node, Builder::empty_tuple_node;
  using Builder::tree_, Builder::stack_, Builder::marks_, Builder::position_, Builder::opcode_position_, Builder::memo_used_;

  [[nodiscard]] std::span<const std::byte> take(std::uint64_t n) {
    if (n > input_.size() - position_) {
      fail(concat("wants ", n, " more bytes at byte ", position_, ", but ends at byte ", input_.size()));
    }
    const auto out = input_.subspan(position_, static_cast<std::size_t>(n));
    position_ += static_cast<std::size_t>(n);
    return out;
  }
  [[nodiscard]] std::uint64_t take_uint(std::size_t n) { return little_endian(take(n)); }

  void push_int(std::int64_t value) { push(int_node(value)); }
  void push_long(std::uint64_t n) {
    const std::size_t begin = position_;
    const auto bytes = take(n);
    const bool negative = n > 0 && (bytes.back() & std::byte{0x80}) != std::byte{};
    const std::byte fill{negative ? std::uint8_t{0xFF} : std::uint8_t{0}};
    std::size_t used = bytes.size();
    while (used > 8 && bytes[used - 1] == fill) --used;
    if (used > 8 || (used == 8 && ((bytes[7] & std::byte{0x80}) != std::byte{}) != negative)) {
      return push_slice(PickleKind::big_integer, begin, bytes.size());
    }
    std::uint64_t value = little_endian(bytes.first(used));
    if (negative && used < 8) value |= ~std::uint64_t{0} << (8 * used);
    push_int(static_cast<std::int64_t>(value));
  }
  void push_slice(PickleKind kind, std::size_t begin, std::size_t length) { push(add_slice(kind, begin, length)); }
  [[nodiscard]] bool utf8(std::size_t begin, std::size_t length) const {
    const auto* const first = reinterpret_cast<const char*>(input_.data());
    return utf8_fault({first + begin, length}) == std::string_view::npos;
  }
  void push_text(std::uint64_t length) {
    const std::size_t begin = position_;
    const auto bytes = take(length);
    if (!utf8(begin, bytes.size())) fail("holds a str that is not UTF-8");
    push_slice(PickleKind::string, begin, bytes.size());
  }
  /// A `str` of Python 2: text where it can be read as such.
  void push_old_text(std::uint64_t length) {
    const std::size_t begin = position_;
    const auto bytes = take(length);
    push_slice(utf8(begin, bytes.size()) ? PickleKind::string : PickleKind::bytes, begin, bytes.size());
  }
  void push_bytes(std::uint64_t length) {
    const std::size_t begin = position_;
    push_slice(PickleKind::bytes, begin, take(length).size());
  }
  [[nodiscard]] std::uint32_t take_line() {
    const auto rest = input_.subspan(position_);
    const auto end = std::find(rest.begin(), rest.end(), std::byte{'\n'});
    if (end == rest.end()) fail("holds a name without an end");
    const std::size_t begin = position_, length = static_cast<std::size_t>(end - rest.begin());
    position_ += length + 1;
    if (!utf8(begin, length)) fail("holds a name that is not UTF-8");
    return add_slice(PickleKind::string, begin, length);
  }
  void step(std::uint8_t opcode) {
    switch (opcode) {
      case 0x80: return protocol();
      case 0x95: return frame();
      case '(': return marks_.push_back(stack_.size());
      case '0': return pop_or_drop_mark();
      case '1': return stack_.resize(pop_mark());
      case '2': return push(share_top());
      case 'q': return put(take_uint(1));
      case 'r': return put(take_uint(4));
      case 0x94: return put(memo_used_);
      case 'h': return get(take_uint(1));
      case 'j': return get(take_uint(4));
      case 'N': return push(none_node);
      case 0x88: return push(true_node);
      case 0x89: return push(false_node);
      case 'K': return push_int(static_cast<std::int64_t>(take_uint(1)));
      case 'M': return push_int(static_cast<std::int64_t>(take_uint(2)));
      case 'J': return push_int(static_cast<std::int32_t>(static_cast<std::uint32_t>(take_uint(4))));
      case 0x8a: return push_long(take_uint(1));
      case 0x8b: return push_long(take_uint(4));
      case 'G': return push_real();
      case 'X': return push_text(take_uint(4));
      case 0x8c: return push_text(take_uint(1));
      case 0x8d: return push_text(take_uint(8));
      case 'T': return push_old_text(take_uint(4));
      case 'U': return push_old_text(take_uint(1));
      case 'B': return push_bytes(take_uint(4));
      case 'C': return push_bytes(take_uint(1));
      case 0x8e: return push_bytes(take_uint(8));
      case 0x96: return push_bytes(take_uint(8));
      case ')': return push(empty_tuple_node);
      case 't': return push_tuple(pop_mark());
      case 0x85: return push_tuple_of(1);
      case 0x86: return push_tuple_of(2);
      case 0x87: return push_tuple_of(3);
      case ']': return push_new({.kind = PickleKind::list});
      case 'a': return add_some(PickleKind::list, 1);
      case 'e': return add_marked(PickleKind::list);
      case '}': return push_new({.kind = PickleKind::dict});
      case 's': return add_some(PickleKind::dict, 2);
      case 'u': return add_marked(PickleKind::dict);
      case 0x8f: return push_new({.kind = PickleKind::set});
      case 0x90: return add_marked(PickleKind::set);
      case 0x91: return push_marked(PickleKind::set);
      case 'c': return global_by_line();
      case 0x93: return global_by_stack();
      case 'R': return call(false);
      case 0x81: return call(true);
      case 0x92: return call_with_keywords();
      case 'b': return build();
      case 'Q': return persistent();
      default: fail(concat("holds opcode ", int{opcode}, ", which Python does not write into checkpoints"));
    }
  }
  void protocol() {
    const std::uint64_t version = take_uint(1);
    if (version < 2 || version > 5) fail(concat("is of protocol ", version, "; 2 to 5 are known"));
  }
  void frame() {
    const std::uint64_t length = take_uint(8);
    if (length > input_.size() - position_) fail(concat("opens a frame of ", length, " bytes, more than are left"));
  }
  void pop_or_drop_mark() {
    if (!marks_.empty() && marks_.back() == stack_.size()) return marks_.pop_back();
    static_cast<void>(pop());
  }
  void push_real() {
    const auto bytes = take(8);
    std::uint64_t bits = 0;
    for (const std::byte byte : bytes) bits = bits << 8 | std::to_integer<std::uint64_t>(byte);
    PickleNode node{.kind = PickleKind::real};
    node.set_bits(bits);
    push_new(node);
  }
  void global_by_line() {
    const std::uint32_t module = take_line(), class_name = take_line();
    push_global(module, class_name);
  }
  void global_by_stack() {
    const std::uint32_t class_name = pop(), module = pop();
    push_global(module, class_name);
  }
  void persistent() {
    if (persistent_ids_ == PersistentIds::refused) fail("refers to a value outside itself");
    push_new({.kind = PickleKind::persistent, .low = pop()});
  }

  std::span<const std::byte> input_;
  PersistentIds persistent_ids_;
};

}  // namespace detail

/// A pickle as a tree of values. Nothing in it is executed, imported or looked up. Local, blocking.
class PickleDocument {
 public:
  /// Reads `input`, which must outlive the document, as must `file_name`, the text that errors start with. Throws
  /// FormatError naming file and byte.
  PickleDocument(std::span<const std::byte> input, std::string_view file_name,
                 PersistentIds persistent_ids = PersistentIds::refused) {
    tree_.input = input;
    tree_.file = file_name;
    root_ = detail::PickleMachine<>(tree_, persistent_ids).run();
  }
  PickleDocument(const PickleDocument&) = delete;
  PickleDocument& operator=(const PickleDocument&) = delete;

  [[nodiscard]] PickleValue root() const noexcept { return {&tree_, root_}; }
  /// Bytes that the tree takes, beside the input.
  [[nodiscard]] std::size_t memory() const noexcept {
    return tree_.nodes.capacity() * sizeof(detail::PickleNode) + tree_.links.capacity() * sizeof(std::uint32_t);
  }

 private:
  detail::PickleTree tree_;
  std::uint32_t root_ = 0;
};

MGROUPS_END_NAMESPACE
