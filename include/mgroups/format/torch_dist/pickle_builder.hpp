// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/format/torch_dist/pickle_value.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// The stack and the memo of the pickle machine, and the values that grow on them. Every operation makes at most one
/// node, and links move by doubling, so that time and memory are linear in the number of operations.
class PickleBuilder {
 public:
  explicit PickleBuilder(PickleTree& tree) : tree_(tree) {
    const std::size_t bytes = tree.input.size();
    if (bytes >= no_node) tree.fail("a pickle of 4 GiB or more is not supported");
    // CPython writes 7 to 10 bytes per node of a checkpoint's metadata.
    tree.nodes.reserve(bytes / 6 + 16);
    tree.links.reserve(bytes / 8 + 16);
    stack_.reserve(64);
    memo_.reserve(bytes / 10 + 16);
    for (const PickleKind kind : {PickleKind::none, PickleKind::boolean, PickleKind::boolean, PickleKind::tuple}) {
      tree.nodes.push_back({.kind = kind});
    }
    tree.nodes[true_node].low = 1;
    cached_ints_.fill(no_node);
  }

 protected:
  static constexpr std::uint32_t none_node = 0, false_node = 1, true_node = 2, empty_tuple_node = 3;

  [[noreturn]] void fail(const std::string& what) const {
    tree_.fail(concat("the pickle is broken at byte ", opcode_position_, ": it ", what));
  }

  [[nodiscard]] std::uint32_t add(const PickleNode& node) {
    tree_.nodes.push_back(node);
    return static_cast<std::uint32_t>(tree_.nodes.size() - 1);
  }
  void push(std::uint32_t index) { stack_.push_back(index); }
  void push_new(const PickleNode& node) { push(add(node)); }
  [[nodiscard]] std::uint32_t int_node(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    std::uint32_t& cached = cached_ints_[(bits ^ bits >> 12 ^ bits >> 28) & (cached_ints_.size() - 1)];
    if (cached == no_node || tree_.nodes[cached].bits() != bits) {
      PickleNode node{.kind = PickleKind::integer};
      node.set_bits(bits);
      cached = add(node);
    }
    return cached;
  }
  [[nodiscard]] std::uint32_t add_slice(PickleKind kind, std::size_t begin, std::size_t length) {
    PickleNode node{.kind = kind, .extra = static_cast<std::uint32_t>(length)};
    node.set_bits(begin);
    return add(node);
  }

  [[nodiscard]] std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  [[nodiscard]] std::uint32_t top() const {
    if (stack_.size() <= floor()) fail("takes a value from an empty stack");
    return stack_.back();
  }
  [[nodiscard]] std::uint32_t share_top() {
    unshared_ = std::max(unshared_, top() + 1);
    return top();
  }
  [[nodiscard]] std::uint32_t pop() {
    const std::uint32_t index = top();
    stack_.pop_back();
    return index;
  }
  [[nodiscard]] std::size_t pop_mark() {
    if (marks_.empty()) fail("looks for a mark that was not set");
    const std::size_t begin = marks_.back();
    marks_.pop_back();
    return begin;
  }

  void push_global(std::uint32_t module, std::uint32_t class_name) {
    if (tree_.nodes[module].kind != PickleKind::string || tree_.nodes[class_name].kind != PickleKind::string) {
      fail("names a class by something that is no str");
    }
    push_new({.kind = PickleKind::global, .low = module, .high = class_name});
  }

  [[nodiscard]] std::uint32_t new_links(std::size_t n) {
    const std::size_t begin = tree_.links.size();
    if (n >= no_node - begin) fail("holds more than 2^32 elements");
    tree_.links.resize(begin + n, no_node);
    return static_cast<std::uint32_t>(begin);
  }
  /// Moves the values from stack position `begin` on behind the end of a list, dict or set.
  void extend(std::uint32_t container, std::size_t begin) {
    const std::size_t added = stack_.size() - begin, count = tree_.nodes[container].extra;
    PickleNode& node = tree_.nodes[container];
    if (node.high - count < added) {
      if (node.high > 0 && std::size_t{node.low} + node.high == tree_.links.size()) {
        node.high += static_cast<std::uint32_t>(added - (node.high - count));
        static_cast<void>(new_links(node.low + std::size_t{node.high} - tree_.links.size()));
      } else {
        const std::size_t capacity = count == 0 ? added : std::max(2 * count, count + added);
        const std::uint32_t moved = new_links(capacity);
        std::copy_n(tree_.links.begin() + node.low, count, tree_.links.begin() + moved);
        node.low = moved;
        node.high = static_cast<std::uint32_t>(capacity);
      }
    }
    std::copy_n(stack_.begin() + static_cast<std::ptrdiff_t>(begin), added,
                tree_.links.begin() + static_cast<std::ptrdiff_t>(node.low + count));
    node.extra = static_cast<std::uint32_t>(count + added);
    stack_.resize(begin);
  }
  /// The list, dict or set that an opcode adds to: the value itself, or the items of an object of a class of its own.
  [[nodiscard]] std::uint32_t container(std::uint32_t target, PickleKind kind) {
    if (tree_.nodes[target].kind == kind) return target;
    if (tree_.nodes[target].kind != PickleKind::object) {
      fail(concat("adds elements to ", name(tree_.nodes[target].kind), " as if it were ", name(kind)));
    }
    if (!tree_.nodes[target].extended) extend_object(target);
    std::uint32_t items = tree_.links[tree_.nodes[target].low + 3];
    if (items == no_node) {
      items = add({.kind = kind});
      tree_.links[tree_.nodes[target].low + 3] = items;
    } else if (tree_.nodes[items].kind != kind) {
      fail("uses one object as containers of two kinds");
    }
    return items;
  }
  void extend_object(std::uint32_t object) {
    const std::uint32_t begin = new_links(5);
    PickleNode& node = tree_.nodes[object];
    tree_.links[begin] = node.low;
    tree_.links[begin + 1] = node.high;
    tree_.links[begin + 2] = node.extra;
    node.extended = true;
    node.low = begin;
  }
  void add_marked(PickleKind kind) {
    const std::size_t begin = pop_mark();
    if (begin <= floor()) fail("adds elements to nothing");
    if (kind == PickleKind::dict && (stack_.size() - begin) % 2 != 0) fail("gives a dict a key without a value");
    extend(container(stack_[begin - 1], kind), begin);
  }
  void add_some(PickleKind kind, std::size_t n) {
    if (stack_.size() < floor() + n + 1) fail("takes a value from an empty stack");
    extend(container(stack_[stack_.size() - n - 1], kind), stack_.size() - n);
  }
  void push_tuple(std::size_t begin) {
    const std::size_t n = stack_.size() - begin;
    PickleNode node{.kind = PickleKind::tuple, .extra = static_cast<std::uint32_t>(n)};
    if (n == 0) return push(empty_tuple_node);
    if (n <= 2) {
      node.low = stack_[begin];
      node.high = n == 2 ? stack_[begin + 1] : no_node;
    } else {
      node.low = new_links(n);
      node.high = static_cast<std::uint32_t>(n);
      std::copy(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end(), tree_.links.begin() + node.low);
    }
    stack_.resize(begin);
    push_new(node);
  }
  void push_tuple_of(std::size_t n) {
    if (stack_.size() < floor() + n) fail("takes a value from an empty stack");
    push_tuple(stack_.size() - n);
  }
  void push_marked(PickleKind kind) {
    const std::size_t begin = pop_mark();
    const std::uint32_t index = add({.kind = kind});
    extend(index, begin);
    push(index);
  }

  void push_object(std::uint32_t callable, std::uint32_t args, bool instantiated) {
    if (tree_.nodes[args].kind != PickleKind::tuple) fail("calls something with arguments that are no tuple");
    push_new({.kind = PickleKind::object, .instantiated = instantiated, .extra = no_node, .low = callable, .high = args});
  }
  /// `instantiated`: by the class's __new__ alone, which Python does before it sets attributes.
  void call(bool instantiated) {
    const std::uint32_t args = pop(), callable = pop();
    if (!make_size(callable, args)) push_object(callable, args, instantiated);
  }
  /// torch.Size(tuple) is that tuple: three of them per chunk would make up a third of a checkpoint's tree.
  [[nodiscard]] bool make_size(std::uint32_t callable, std::uint32_t args) {
    const PickleNode arguments = tree_.nodes[args];
    if (arguments.kind != PickleKind::tuple || arguments.extra != 1 || tree_.nodes[arguments.low].kind != PickleKind::tuple)
      return false;
    if (callable != size_class_) {
      if (!PickleValue(&tree_, callable).is_global("torch", "Size")) return false;
      size_class_ = callable;
    }
    if (args + 1 == tree_.nodes.size() && args >= unshared_) tree_.nodes.pop_back();
    push(arguments.low);
    return true;
  }
  void call_with_keywords() {
    const std::uint32_t keywords = pop(), args = pop(), callable = pop();
    if (tree_.nodes[keywords].kind != PickleKind::dict) fail("calls something with keyword arguments that are no dict");
    push_object(callable, args, true);
    extend_object(stack_.back());
    tree_.links[tree_.nodes[stack_.back()].low + 4] = keywords;
  }
  void build() {
    const std::uint32_t state = pop(), object = top();
    if (tree_.nodes[object].kind != PickleKind::object) fail(concat("sets attributes of ", name(tree_.nodes[object].kind)));
    PickleNode& node = tree_.nodes[object];
    std::uint32_t& slot = node.extended ? tree_.links[node.low + 2] : node.extra;
    if (slot != no_node) fail("sets the state of one object twice");
    slot = state;
  }

  void check_put(std::uint64_t index) const {
    // Python numbers its memo from 0 without gaps, and each entry takes a byte at least.
    if (index > position_) fail(concat("stores to memo entry ", index, ", which no writer would have reached yet"));
  }
  [[noreturn]] void fail_unknown(std::uint64_t index) const {
    fail(concat("refers to memo entry ", index, ", which was never stored"));
  }
  void put(std::uint64_t index) {
    check_put(index);
    if (index >= memo_.size()) memo_.resize(static_cast<std::size_t>(index) + 1, no_node);
    memo_[static_cast<std::size_t>(index)] = share_top();
    memo_used_ = std::max(memo_used_, index + 1);
  }
  void get(std::uint64_t index) {
    if (index >= memo_.size() || memo_[static_cast<std::size_t>(index)] == no_node) fail_unknown(index);
    push(memo_[static_cast<std::size_t>(index)]);
  }

  PickleTree& tree_;
  std::size_t position_ = 0;         // the next byte of the input
  std::size_t opcode_position_ = 0;  // the opcode at work
  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;
  std::uint64_t memo_used_ = 0;  // the number that MEMOIZE gives next

 private:
  std::vector<std::uint32_t> memo_;
  std::array<std::uint32_t, 256> cached_ints_;
  std::uint32_t size_class_ = no_node;
  std::uint32_t unshared_ = 0;  // nodes from here on are on the stack once and nowhere else
};

}  // namespace detail

MGROUPS_END_NAMESPACE
