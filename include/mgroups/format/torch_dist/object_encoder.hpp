// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/value.hpp>
#include <mgroups/format/torch_dist/archive_writer.hpp>
#include <mgroups/format/torch_dist/pickle_writer.hpp>
#include <mgroups/format/utf8.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Writes a Value as the pickle of an archive; collects the tensors in it.
class ObjectEncoder {
 public:
  explicit ObjectEncoder(PickleWriter& out) : out_(out) {}

  void put(const Value& value) {
    if (value.is_none()) {
      out_.none();
    } else if (const auto* boolean = value.get_if<bool>()) {
      out_.boolean(*boolean);
    } else if (const auto* integer = value.get_if<std::int64_t>()) {
      out_.integer(*integer);
    } else if (const auto* large = value.get_if<std::uint64_t>()) {
      out_.unsigned_integer(*large);
    } else if (const auto* real = value.get_if<double>()) {
      out_.real(*real);
    } else if (const auto* text = value.get_if<std::string>()) {
      put_text(*text);
    } else if (const auto* bytes = value.get_if<Value::Bytes>()) {
      put_bytes(*bytes);
    } else if (const auto* list = value.get_if<Value::List>()) {
      out_.empty_list();
      if (list->empty()) return;
      out_.mark();
      for (const Value& element : *list) put(element);
      out_.appends();
    } else if (const auto* tuple = value.get_if<Value::Tuple>()) {
      const bool marked = tuple->elements.size() > 3;
      if (marked) out_.mark();
      for (const Value& element : tuple->elements) put(element);
      marked ? out_.marked_tuple() : out_.tuple(tuple->elements.size());
    } else if (const auto* dict = value.get_if<Value::Dict>()) {
      put_dict(*dict);
    } else if (const auto* tensor = value.get_if<Value::Tensor>()) {
      put_tensor(*tensor);
    } else if (const auto* global = value.get_if<Value::Global>()) {
      check_global(*global);
      out_.global(global->module, global->name);
    } else if (const auto* instance = value.get_if<Value::Instance>()) {
      put_instance(*instance);
    }
  }

  [[nodiscard]] const std::vector<const Value::Tensor*>& tensors() const noexcept { return tensors_; }

 private:
  void put_text(const std::string& text) {
    if (const std::size_t fault = utf8_fault(text); fault != std::string::npos) {
      throw InvalidArgument(
          concat("a text to be saved is not UTF-8 at byte ", fault, ": ", in_quotes(text), "; save it as bytes"));
    }
    out_.text(text);
  }
  void put_bytes(const Value::Bytes& bytes) {
    std::string text;
    text.reserve(bytes.size() + bytes.size() / 2);
    for (const std::byte byte : bytes) {
      const auto code = static_cast<unsigned>(byte);
      if (code < 0x80) {
        text += static_cast<char>(code);
      } else {
        text += static_cast<char>(0xC0 | code >> 6);
        text += static_cast<char>(0x80 | (code & 0x3F));
      }
    }
    out_.global("_codecs", "encode").text(text).text("latin1").tuple(2).reduce();
  }
  void put_dict(const Value::Dict& dict) {
    out_.empty_dict();
    if (!dict.empty()) put_pairs(dict);
  }
  void put_pairs(const Value::Dict& dict) {
    out_.mark();
    for (const auto& [key, value] : dict) {
      if (key.get_if<Value::List>() || key.get_if<Value::Dict>() || key.get_if<Value::Tensor>()) {
        throw InvalidArgument(concat(key.kind(), " cannot be the key of a dict"));
      }
      put(key);
      put(value);
    }
    out_.set_items();
  }
  /// The class by its name, then what Python would do: make it, fill it, set its attributes.
  void put_instance(const Value::Instance& instance) {
    check_global(instance.type);
    if (instance.state.size() > 1 || instance.items.size() > 1) {
      throw InvalidArgument(concat("an instance of ", instance.type.module, '.', instance.type.name,
                                   " has more than one state, or contents of more than one kind"));
    }
    out_.global(instance.type.module, instance.type.name);
    put(Value::tuple(instance.arguments));
    instance.called ? out_.reduce() : out_.new_object();
    if (!instance.items.empty()) {
      if (const auto* dict = instance.items[0].get_if<Value::Dict>()) {
        put_pairs(*dict);
      } else {
        out_.mark();
        for (const Value& element : instance.items[0].as_list()) put(element);
        out_.appends();
      }
    }
    if (!instance.state.empty()) {
      put(instance.state[0]);
      out_.build();
    }
  }
  void put_tensor(const Value::Tensor& tensor) {
    if (!countable(tensor.shape) ||
        static_cast<std::uint64_t>(numel(tensor.shape)) * size_of(tensor.dtype) != tensor.bytes.size()) {
      throw InvalidArgument(concat("a tensor of shape ", to_string(tensor.shape), " and dtype ", name(tensor.dtype),
                                   " does not have ", tensor.bytes.size(), " bytes"));
    }
    put_tensor_call(out_, tensor.dtype, tensor.shape, numel(tensor.shape), concat(tensors_.size()));
    tensors_.push_back(&tensor);
  }
  static void check_global(const Value::Global& global) {
    if (global.module.empty() || global.name.empty() ||
        (global.module + global.name).find_first_of("\n\r") != std::string::npos) {
      throw InvalidArgument(concat("a class is named by ", in_quotes(global.module), " and ", in_quotes(global.name),
                                   "; both must be there, without line breaks"));
    }
  }

  PickleWriter& out_;
  std::vector<const Value::Tensor*> tensors_;
};

}  // namespace detail

/// A value as torch.save would write it, readable by `torch.load(weights_only=True)` as far as the classes of its instances
/// are allowed there. `prefix` is as in ObjectArchive. Throws InvalidArgument for texts that are not UTF-8 and the like.
[[nodiscard]] inline std::vector<std::byte> encode_object(const Value& value, std::string_view prefix = "archive") {
  std::vector<std::byte> pickle;
  PickleWriter writer(pickle);
  detail::ObjectEncoder encoder(writer);
  writer.protocol();
  encoder.put(value);
  writer.stop();
  ObjectArchive archive(pickle, prefix);
  for (std::size_t i = 0; i < encoder.tensors().size(); ++i) archive.add(concat("data/", i), encoder.tensors()[i]->bytes);
  return archive.finish();
}

MGROUPS_END_NAMESPACE
