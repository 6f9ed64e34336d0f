// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include <mgroups/core/little_endian.hpp>
#include <mgroups/format/torch_dist/metadata_filter.hpp>
#include <mgroups/format/torch_dist/metadata_records.hpp>
#include <mgroups/format/torch_dist/metadata_scanner.hpp>
#include <mgroups/format/torch_dist/pickle_builder.hpp>
#include <mgroups/format/torch_dist/pickle_value.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Builds the tree of a `.metadata` in which every object that says where a chunk lies is one node, a record. An object that
/// is not as picklers write it is built as any other.
class MetadataBuilder : public PickleBuilder {
 public:
  /// With a filter, entries of storage_data that belong to tensors that are not wanted are passed over.
  MetadataBuilder(PickleTree& tree, MetadataMemo& memo, const MetadataFilter* filter)
      : PickleBuilder(tree), memo_(memo), filter_(filter), scanner_(tree, memo) {}

 protected:
  void push_global(std::uint32_t module, std::uint32_t class_name) {
    PickleBuilder::push_global(module, class_name);
    tree_.nodes.back().tag = static_cast<std::uint8_t>(record_type_of_class(PickleValue(&tree_, stack_.back())));
  }
  void put(std::uint64_t number) {
    check_put(number);
    memo_used_ = std::max(memo_used_, number + 1);
    if (memo_.may_be_fetched(number)) return memo_.set(number, share_top());
    static_cast<void>(top());
  }
  void get(std::uint64_t number) {
    const std::uint32_t node = memo_.find(number);
    if (node == no_node) fail_unknown(number);
    push(node);
  }
  void call(bool instantiated) {
    const RecordType type = instantiated ? type_on_top() : RecordType::none;
    if (type == RecordType::none || !scan(type)) return PickleBuilder::call(instantiated);
    stack_.resize(stack_.size() - 2);
    push_record(type);
    // Records mostly stand one behind the other.
    while (push_next_record()) continue;
  }

 private:
  /// What an instance of the class on the stack, below an empty tuple of arguments, becomes.
  [[nodiscard]] RecordType type_on_top() const {
    if (stack_.size() < floor() + 2 || stack_.back() != empty_tuple_node) return RecordType::none;
    return class_type(stack_[stack_.size() - 2]);
  }
  [[nodiscard]] RecordType class_type(std::uint32_t node) const {
    const PickleNode& type = tree_.nodes[node];
    return type.kind == PickleKind::global ? static_cast<RecordType>(type.tag) : RecordType::none;
  }

  [[nodiscard]] bool scan(RecordType type) {
    ++scanned_;
    if (scanner_.scan(type, position_, memo_used_)) return true;
    // Only the numbers that the whole pickle fetches tell whether most of what CPython stores must be kept. Our own writer
    // stores what it fetches.
    if (!scanner_.stopped_by_put() || memo_.knows_fetches() || ++stopped_ <= 64 + scanned_ / 16) return false;
    memo_.learn_fetches(tree_.input);
    return scanner_.scan(type, position_, memo_used_);
  }
  /// Pushes what was scanned last.
  void push_record(RecordType type) {
    PickleNode record{.kind = PickleKind::record, .tag = static_cast<std::uint8_t>(type)};
    record.set_bits(position_);
    const std::uint32_t node = add(record);
    position_ = scanner_.end();
    memo_used_ = scanner_.memo_used();
    for (const MetadataScanner::Put& put : scanner_.puts()) {
      memo_.set(put.number, put.value == RecordAttribute::unseen ? node : node_of(scanner_[put.value]));
    }
    push(node);
    if (filter_ != nullptr) pass_over(type, node);
  }
  /// With a filter: takes an entry of storage_data off the stack again, as if the pickle did not have it.
  void pass_over(RecordType type, std::uint32_t node) {
    if (type != RecordType::info) {
      const bool placed = scanner_[RecordAttribute::offset].kind == MetadataScanner::Kind::counts;
      const bool unwanted = type == RecordType::index && placed && scanner_.puts().empty() && !is_wanted();
      unwanted_index_ = unwanted ? node : no_node;
      return;
    }
    const std::uint32_t index = std::exchange(unwanted_index_, no_node);
    // It must be a key and a value of several that go into a dict at once.
    if (index == no_node || index + 1 != node || tree_.nodes.size() != node + std::size_t{1} || !scanner_.puts().empty())
      return;
    if (marks_.empty() || marks_.back() == 0 || tree_.nodes[stack_[marks_.back() - 1]].kind != PickleKind::dict) return;
    const std::size_t above = stack_.size() - marks_.back();
    if (above < 2 || above % 2 != 0 || stack_[stack_.size() - 2] != index) return;
    if (position_ < tree_.input.size() && tree_.input[position_] == std::byte{'s'}) return;
    stack_.resize(stack_.size() - 2);
    tree_.nodes.resize(index);
  }
  [[nodiscard]] bool is_wanted() {
    const std::string_view key = scanner_[RecordAttribute::fqn].text;
    if (key.data() != last_key_.data() || key.size() != last_key_.size()) {
      last_key_ = key;
      last_wanted_ = filter_->find(key) != nullptr;
    }
    return last_wanted_;
  }
  [[nodiscard]] std::uint32_t node_of(const MetadataScanner::Value& value) {
    switch (value.kind) {
      case MetadataScanner::Kind::number: return int_node(value.number);
      case MetadataScanner::Kind::text:
        return add_slice(PickleKind::string,
                         static_cast<std::size_t>(value.text.data() - reinterpret_cast<const char*>(tree_.input.data())),
                         value.text.size());
      case MetadataScanner::Kind::counts:
        for (const std::int64_t count : value.span()) push(int_node(count));
        push_tuple(stack_.size() - value.rank);
        return pop();
      default: return none_node;
    }
  }
  /// Where an object of a class that the memo knows begins at the next byte, and is a record: pushes it.
  [[nodiscard]] bool push_next_record() {
    const auto byte_at = [&](std::size_t i) {
      return i < tree_.input.size() ? std::to_integer<std::uint8_t>(tree_.input[i]) : std::uint8_t{0};
    };
    const std::size_t begin = position_;
    std::uint64_t number = byte_at(begin + 1);
    std::size_t behind = begin + 2;
    if (byte_at(begin) == 'j') {
      behind = begin + 5;
      if (behind > tree_.input.size()) return false;
      number = little_endian(tree_.input.subspan(begin + 1).first<4>());
    } else if (byte_at(begin) != 'h') {
      return false;
    }
    const std::uint32_t node = memo_.find(number);
    if (node == no_node || byte_at(behind) != ')' || byte_at(behind + 1) != 0x81) return false;
    const RecordType type = class_type(node);
    if (type == RecordType::none) return false;
    position_ = behind + 2;
    if (scan(type)) {
      push_record(type);
      return true;
    }
    position_ = begin;
    return false;
  }

  MetadataMemo& memo_;
  const MetadataFilter* filter_;
  MetadataScanner scanner_;
  std::size_t scanned_ = 0, stopped_ = 0;
  std::uint32_t unwanted_index_ = no_node;  // the record pushed last, if it is of a tensor that is not wanted
  std::string_view last_key_;
  bool last_wanted_ = false;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
