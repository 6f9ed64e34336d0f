// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/core/dims.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/little_endian.hpp>
#include <mgroups/core/value.hpp>
#include <mgroups/format/read_at.hpp>
#include <mgroups/format/torch_dist/archive_reader.hpp>
#include <mgroups/format/torch_dist/pickle_reader.hpp>
#include <mgroups/format/torch_dist/stored_tensor.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Turns the pickle of an archive into a Value. A pickle may share one value many times, so that the tree grows
/// exponentially: both its nodes and its bytes are bounded.
class ObjectDecoder {
 public:
  ObjectDecoder(const Archive& archive, std::uint64_t archive_bytes)
      : archive_(archive),
        big_endian_(archive_is_big_endian(archive)),
        nodes_left_((std::uint64_t{1} << 16) + 2 * archive_bytes),
        bytes_left_((std::uint64_t{1} << 20) + 4 * archive_bytes) {}

  [[nodiscard]] Value decode(PickleValue in) { return decode(in, 0); }

 private:
  static constexpr int most_depth = 200;

  [[noreturn]] void refuse(const std::string& what) const {
    throw UnsupportedError(concat(archive_.title(), ' ', what),
                           {.key = std::string(archive_.key()), .file = std::string(archive_.file())});
  }
  void spend_bytes(std::uint64_t bytes) {
    if (bytes > bytes_left_) archive_.fail("repeats one value so often that it would take many times the file's size");
    bytes_left_ -= bytes;
  }

  void spend_nodes(std::uint64_t nodes) {
    if (nodes > nodes_left_) archive_.fail("repeats one value so often that it would take many times the file's size");
    nodes_left_ -= nodes;
  }

  /// Containers pay for their elements before they make room for them: one that holds itself would do so at each level.
  [[nodiscard]] Value::List elements(PickleValue in, int depth) {
    spend_nodes(in.size());
    Value::List out;
    out.reserve(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) out.push_back(decode(in[i], depth));
    return out;
  }
  [[nodiscard]] Value dict(PickleValue in, int depth) {
    spend_nodes(2 * std::uint64_t{in.size()});
    Value::Dict out;
    out.reserve(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      Value key = decode(in.key(i), depth);
      out.emplace_back(std::move(key), decode(in.value(i), depth));
    }
    return Value::dict(std::move(out));
  }

  [[nodiscard]] Value decode(PickleValue in, int depth) {
    if (depth > most_depth) refuse(concat("holds a value nested deeper than ", most_depth));
    switch (in.kind()) {
      case PickleKind::none: return {};
      case PickleKind::boolean: return in.as_bool();
      case PickleKind::integer: return in.as_int();
      case PickleKind::big_integer: return big_integer(in);
      case PickleKind::real: return in.as_double();
      case PickleKind::string: spend_bytes(in.as_string().size()); return in.as_string();
      case PickleKind::bytes: {
        spend_bytes(in.as_bytes().size());
        return Value::Bytes(in.as_bytes().begin(), in.as_bytes().end());
      }
      case PickleKind::tuple: return Value::tuple(elements(in, depth + 1));
      case PickleKind::list: return Value::list(elements(in, depth + 1));
      case PickleKind::dict: return dict(in, depth + 1);
      case PickleKind::set:
        return Value::Instance{{"builtins", "set"}, {Value::list(elements(in, depth + 1))}, {}, {}, true};
      case PickleKind::global: return global(in);
      case PickleKind::object: return object(in, depth);
      case PickleKind::persistent: refuse("refers to a storage outside of any tensor");
      case PickleKind::record: break;  // only in metadata
    }
    return {};
  }

  [[nodiscard]] Value big_integer(PickleValue in) const {
    const auto bytes = in.as_big_integer();
    if (bytes.size() != 9 || bytes[8] != std::byte{0}) refuse("holds an int that does not fit into 64 bits");
    return little_endian(bytes.first<8>());
  }
  [[nodiscard]] Value::Global global(PickleValue in) {
    spend_bytes(in.module_name().size() + in.class_name().size());
    return {std::string(in.module_name()), std::string(in.class_name())};
  }

  [[nodiscard]] Value object(PickleValue in, int depth) {
    const PickleValue callable = in.callable();
    if (!callable.is(PickleKind::global)) refuse(concat("calls ", to_string(callable, 100), ", which is no class"));
    if (callable.module_name() == "torch._utils" && callable.class_name().starts_with("_rebuild_")) return tensor(in);
    if (callable.is_global("_codecs", "encode")) {
      if (auto bytes = latin1(in)) return std::move(*bytes);
    }
    // Protocol 2 has empty bytes as a call without arguments, under the name that the module had in Python 2.
    if ((callable.is_global("__builtin__", "bytes") || callable.is_global("builtins", "bytes")) && in.args().size() == 0) {
      return Value::Bytes();
    }
    if (callable.is_global("collections", "OrderedDict") && in.args().size() == 0) {
      return in.items() ? dict(*in.items(), depth + 1) : Value::dict();
    }
    spend_nodes(2);  // state and items
    if (in.has_keywords()) refuse(concat("gives ", to_string(callable, 100), " keyword arguments"));
    Value::Instance out{global(callable), elements(in.args(), depth + 1), {}, {}, !in.instantiated()};
    if (const auto state = in.state()) out.state.push_back(decode(*state, depth + 1));
    if (const auto items = in.items()) out.items.push_back(decode(*items, depth + 1));
    return out;
  }

  /// Protocol 2 has no bytes: Python writes `_codecs.encode(text, 'latin1')`.
  [[nodiscard]] std::optional<Value> latin1(PickleValue in) {
    const PickleValue args = in.args();
    if (args.size() != 2 || !args[0].is(PickleKind::string) || !args[1].is(PickleKind::string)) return std::nullopt;
    if (args[1].as_string() != "latin1") return std::nullopt;
    const std::string_view text = args[0].as_string();
    spend_bytes(text.size());
    Value::Bytes out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto lead = static_cast<unsigned char>(text[i]);
      if (lead < 0x80) {
        out.push_back(static_cast<std::byte>(lead));
      } else {
        if ((lead != 0xC2 && lead != 0xC3) || i + 1 == text.size()) refuse("encodes text beyond U+00FF as latin1");
        const auto next = static_cast<unsigned char>(text[++i]);
        out.push_back(static_cast<std::byte>((lead & 0x03) << 6 | (next & 0x3F)));
      }
    }
    return Value(std::move(out));
  }

  [[nodiscard]] Value tensor(PickleValue in) {
    TensorDecoder decoder(archive_, big_endian_);
    const StoredTensor stored = decoder.decode(in);
    const std::size_t item = size_of(stored.dtype);
    if (stored.big_endian && item > 1) refuse("holds a tensor in big-endian byte order, which is not read");
    Value::Tensor out{stored.dtype, stored.shape, {}};
    const auto count = static_cast<std::uint64_t>(numel(stored.shape));
    spend_bytes(count * item);
    if (count == 0) return out;
    // The whole storage, checked, since its checksum covers all of it.
    std::vector<std::byte> scratch;
    const ArchiveRecord& record = decoder.record();
    spend_bytes(record.size);
    const auto storage = archive_.view_record(record, scratch);
    const std::byte* const first = storage.data() + (stored.data_offset - stored.storage_begin);
    out.bytes.resize(static_cast<std::size_t>(count) * item);
    Dims index = Dims::filled(stored.shape.rank(), 0);
    for (std::size_t at = 0; at < out.bytes.size(); at += item) {
      std::int64_t offset = 0;
      for (int axis = 0; axis < index.rank(); ++axis) offset += index[axis] * stored.strides[axis];
      std::memcpy(out.bytes.data() + at, first + static_cast<std::size_t>(offset) * item, item);
      for (int axis = index.rank() - 1; axis >= 0 && ++index[axis] == stored.shape[axis]; --axis) index[axis] = 0;
    }
    return out;
  }

  const Archive& archive_;
  bool big_endian_;
  std::uint64_t nodes_left_;
  std::uint64_t bytes_left_;
};

}  // namespace detail

/// The value in a torch.save archive: an item of bytes of a checkpoint, or a file such as `common.pt`. Local, blocking.
/// Throws FormatError for damaged archives (naming `file_name` and `key`, which may be empty), UnsupportedError for what a
/// Value cannot hold, such as integers of more than 64 bits, sparse tensors, or nesting beyond 200 levels.
[[nodiscard]] inline Value decode_object(ReadAt read, std::uint64_t length, std::string_view file_name,
                                         std::string_view key = {}) {
  const Archive archive(read, length, file_name, key);
  std::vector<std::byte> scratch;
  const auto pickle = archive.view_record(archive.at("data.pkl"), scratch);
  const std::string title = archive.title();
  const PickleDocument document(pickle, title, PersistentIds::allowed);
  return detail::ObjectDecoder(archive, length).decode(document.root());
}

MGROUPS_END_NAMESPACE
