// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <mgroups/core/dims.hpp>
#include <mgroups/core/little_endian.hpp>
#include <mgroups/format/torch_dist/metadata_records.hpp>
#include <mgroups/format/torch_dist/pickle_value.hpp>
#include <mgroups/format/utf8.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Reads the state of one record straight from the opcodes: from behind NEWOBJ to behind BUILD, no node is made. It knows
/// what picklers write there, numbers, texts, tuples of numbers and torch.Size of those; at everything else it gives up, and
/// the pickle machine must read the object instead.
class MetadataScanner {
 public:
  enum class Kind : std::uint8_t { none, number, text, counts };
  struct Value {
    Kind kind = Kind::none;
    std::uint8_t rank = 0;
    std::int64_t number = 0;                    // none is negative
    std::string_view text;                      // a view of the input
    std::array<std::int64_t, max_rank> counts;  // `rank` numbers, none of them negative
    [[nodiscard]] std::span<const std::int64_t> span() const noexcept { return std::span(counts).first(rank); }
  };
  /// A value that the pickle stores under a number of the memo: the object itself, or that of an attribute.
  struct Put {
    std::uint64_t number;
    RecordAttribute value;
  };

  MetadataScanner(PickleTree& tree, const MetadataMemo& memo) : tree_(tree), memo_(memo), input_(tree.input) {}

  /// True where the state that begins at byte `position` is one of a record of this type: `end()`, the values and the puts
  /// are valid until the next call. `memo_used` is the number that MEMOIZE gives next.
  [[nodiscard]] bool scan(RecordType type, std::size_t position, std::uint64_t memo_used) {
    memo_used_ = memo_used;
    notes_puts_ = true;
    return scan_state(type, position);
  }
  /// The same for a state that was scanned before.
  void read(RecordType type, std::uint64_t position) {
    notes_puts_ = false;
    if (!scan_state(type, static_cast<std::size_t>(position))) tree_.fail("has a state that cannot be read again");
  }

  [[nodiscard]] std::size_t end() const noexcept { return at_; }
  [[nodiscard]] const Value& operator[](RecordAttribute which) const noexcept {
    return values_[static_cast<std::size_t>(which)];
  }
  [[nodiscard]] std::span<const Put> puts() const noexcept { return std::span(puts_).first(put_count_); }
  [[nodiscard]] std::uint64_t memo_used() const noexcept { return memo_used_; }
  /// Whether it gave up because of a value that the memo might be asked for.
  [[nodiscard]] bool stopped_by_put() const noexcept { return stopped_by_put_; }

 private:
  using A = RecordAttribute;

  [[nodiscard]] static constexpr std::uint32_t bit(A which) noexcept { return 1u << static_cast<unsigned>(which); }
  [[nodiscard]] bool is(A which, Kind kind) const noexcept { return (*this)[which].kind == kind; }

  [[nodiscard]] bool scan_state(RecordType type, std::size_t position) {
    at_ = position;
    put_count_ = 0;
    stopped_by_put_ = false;
    seen_ = 0;
    if (!puts(A::unseen, true) || !take('}') || !puts(A::other, false) || !take('(')) return false;
    while (!take('u')) {
      const std::uint32_t key = fetched();
      if (key == no_node) return false;
      const A which = record_attribute(tree_, key);
      if (which == A::other || (seen_ & bit(which)) != 0) return false;
      seen_ |= bit(which);
      if (!scan_value(values_[static_cast<std::size_t>(which)]) || !puts(which, true)) return false;
    }
    return take('b') && is_whole(type);
  }
  /// Whether the attributes are those of the class, and of the right kinds.
  [[nodiscard]] bool is_whole(RecordType type) noexcept {
    constexpr std::uint32_t chunk = bit(A::offsets) | bit(A::sizes), index = bit(A::fqn) | bit(A::offset) | bit(A::index),
                            info = bit(A::path) | bit(A::offset) | bit(A::length);
    const auto optional = [&](A which, Kind kind) {
      Value& value = values_[static_cast<std::size_t>(which)];
      if ((seen_ & bit(which)) == 0) value.kind = Kind::none;
      return value.kind == kind || value.kind == Kind::none;
    };
    switch (type) {
      case RecordType::chunk:
        return seen_ == chunk && is(A::offsets, Kind::counts) && is(A::sizes, Kind::counts) &&
               (*this)[A::offsets].rank == (*this)[A::sizes].rank;
      case RecordType::index:
        return (seen_ | index) == index && (seen_ & bit(A::fqn)) != 0 && is(A::fqn, Kind::text) &&
               optional(A::offset, Kind::counts) && optional(A::index, Kind::number);
      case RecordType::info:
        return (seen_ & ~bit(A::transforms)) == info && is(A::path, Kind::text) && is(A::offset, Kind::number) &&
               is(A::length, Kind::number) && optional(A::transforms, Kind::none);
      case RecordType::none: break;
    }
    return false;
  }

  [[nodiscard]] std::uint8_t peek() const noexcept {
    return at_ < input_.size() ? std::to_integer<std::uint8_t>(input_[at_]) : std::uint8_t{0};
  }
  [[nodiscard]] bool take(int opcode) noexcept {
    if (peek() != opcode) return false;
    ++at_;
    return true;
  }
  /// The argument of an opcode; false where the input ends.
  template <std::size_t Width>
  [[nodiscard]] bool argument(std::uint64_t& out) noexcept {
    if (input_.size() - at_ < Width) return false;
    out = little_endian(input_.subspan(at_).first<Width>());
    at_ += Width;
    return true;
  }
  /// The node that an opcode fetches from the memo; `no_node` where none stands here.
  [[nodiscard]] std::uint32_t fetched() noexcept {
    if (input_.size() - at_ < 5) return no_node;  // nothing that ends with BUILD and STOP
    const std::uint8_t opcode = peek();
    if (opcode == 'h') {
      at_ += 2;
      return memo_.find_short(std::to_integer<std::uint8_t>(input_[at_ - 1]));
    }
    ++at_;
    std::uint64_t number = 0;
    if (opcode != 'j' || !argument<4>(number)) return no_node;
    return memo_.find(number);
  }
  /// Passes over stores to the memo, and over frames. False where something would be stored that may be fetched, and that
  /// cannot be made from what is known.
  [[nodiscard]] bool puts(A which, bool can_be_made) noexcept {
    const std::uint8_t opcode = peek();
    return (opcode != 0x94 && opcode != 'q' && opcode != 'r' && opcode != 0x95) || note_puts(which, can_be_made);
  }
  [[nodiscard]] bool note_puts(A which, bool can_be_made) noexcept {
    while (true) {
      std::uint64_t number = memo_used_;
      switch (peek()) {
        case 0x94: ++at_; break;
        case 'q':
          ++at_;
          if (!argument<1>(number)) return false;
          break;
        case 'r':
          ++at_;
          if (!argument<4>(number)) return false;
          break;
        case 0x95:
          ++at_;
          if (!argument<8>(number) || number > input_.size() - at_) return false;
          continue;
        default: return true;
      }
      if (!notes_puts_) continue;
      if (number > at_) return false;
      if (number >= memo_used_) memo_used_ = number + 1;
      if (!memo_.may_be_fetched(number)) continue;
      stopped_by_put_ = !can_be_made || put_count_ == puts_.size();
      if (stopped_by_put_) return false;
      puts_[put_count_++] = {number, which};
    }
  }

  [[nodiscard]] bool scan_number(std::int64_t& out) noexcept {
    std::uint64_t bits = 0, width = 0;
    switch (peek()) {
      case 'K': ++at_; return argument<1>(bits) && set(out, bits);
      case 'M': ++at_; return argument<2>(bits) && set(out, bits);
      case 'J': ++at_; return argument<4>(bits) && bits >> 31 == 0 && set(out, bits);
      case 0x8a:
        ++at_;
        if (!argument<1>(width) || width > 8 || width > input_.size() - at_) return false;
        bits = little_endian(input_.subspan(at_, static_cast<std::size_t>(width)));
        at_ += static_cast<std::size_t>(width);
        return (width == 0 || bits >> (8 * width - 1) == 0) && set(out, bits);
      default: return false;
    }
  }
  [[nodiscard]] static bool set(std::int64_t& out, std::uint64_t bits) noexcept {
    out = static_cast<std::int64_t>(bits);
    return true;
  }
  [[nodiscard]] bool scan_value(Value& out) {
    switch (peek()) {
      case 'N':
        ++at_;
        out.kind = Kind::none;
        return true;
      case 'K':
      case 'M':
      case 'J':
      case 0x8a: out.kind = Kind::number; return scan_number(out.number) && look_for_tuple(out);
      case 'X': ++at_; return scan_text<4>(out);
      case 0x8c: ++at_; return scan_text<1>(out);
      case 'h':
      case 'j': return scan_fetched(out);
      case '(':
      case ')': return scan_counts(out);
      default: return false;
    }
  }
  template <std::size_t Width>
  [[nodiscard]] bool scan_text(Value& out) {
    std::uint64_t length = 0;
    if (!argument<Width>(length) || length > input_.size() - at_) return false;
    out.kind = Kind::text;
    out.text = {reinterpret_cast<const char*>(input_.data()) + at_, static_cast<std::size_t>(length)};
    at_ += out.text.size();
    return !notes_puts_ || utf8_fault(out.text) == std::string_view::npos;
  }
  [[nodiscard]] bool scan_fetched(Value& out) {
    const std::uint32_t node = fetched();
    if (node == no_node) return false;
    if (node == size_class_) return scan_size(out);
    const PickleValue known(&tree_, node);
    switch (known.kind()) {
      case PickleKind::string:
        out.kind = Kind::text;
        out.text = known.as_string();
        return true;
      case PickleKind::none: out.kind = Kind::none; return true;
      case PickleKind::tuple:
        if (known.size() > out.counts.size()) return false;
        out.kind = Kind::counts;
        out.rank = static_cast<std::uint8_t>(known.size());
        for (std::size_t i = 0; i < out.rank; ++i) {
          if (!known[i].is(PickleKind::integer) || known[i].as_int() < 0) return false;
          out.counts[i] = known[i].as_int();
        }
        return true;
      case PickleKind::global:
        if (!known.is_global("torch", "Size")) return false;
        size_class_ = node;
        return scan_size(out);
      default: return false;
    }
  }
  /// torch.Size(tuple), from behind the class.
  [[nodiscard]] bool scan_size(Value& out) noexcept {
    return scan_counts(out) && puts(A::other, false) && take(0x85) && puts(A::other, false) && take('R');
  }
  /// A tuple of numbers.
  [[nodiscard]] bool scan_counts(Value& out) noexcept {
    out.kind = Kind::counts;
    out.rank = 0;
    if (take(')')) return true;
    const bool marked = take('(');
    return scan_rest(out, marked);
  }
  [[nodiscard]] bool scan_rest(Value& out, bool marked) noexcept {
    while (true) {
      const std::uint8_t opcode = peek();
      if (marked ? opcode == 't' : opcode >= 0x85 && opcode <= 0x87) {
        ++at_;
        return marked || out.rank == opcode - 0x84;
      }
      if (out.rank == (marked ? out.counts.size() : 3) || !scan_number(out.counts[out.rank])) return false;
      ++out.rank;
    }
  }
  /// A number may be the first of a tuple that is not marked.
  [[nodiscard]] bool look_for_tuple(Value& out) noexcept {
    switch (peek()) {
      case 'K':
      case 'M':
      case 'J':
      case 0x8a:
      case 0x85: break;
      default: return true;
    }
    out.kind = Kind::counts;
    out.rank = 1;
    out.counts[0] = out.number;
    return scan_rest(out, false);
  }

  PickleTree& tree_;
  const MetadataMemo& memo_;
  std::span<const std::byte> input_;
  std::size_t at_ = 0;
  std::uint64_t memo_used_ = 0;
  bool notes_puts_ = true, stopped_by_put_ = false;
  std::uint32_t seen_ = 0;  // a bit for each attribute
  std::array<Value, static_cast<std::size_t>(RecordAttribute::other)> values_;
  std::array<Put, 4> puts_;
  std::size_t put_count_ = 0;
  std::uint32_t size_class_ = no_node;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
