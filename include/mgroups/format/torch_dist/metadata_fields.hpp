// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/format/torch_dist/pickle_text.hpp>
#include <mgroups/format/torch_dist/pickle_value.hpp>
#include <mgroups/format/utf8.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// An attribute of ours in the root of `.metadata`: see CheckpointMetadata::save_id. Python readers carry it along unread.
inline constexpr std::string_view save_id_attribute = "mgroups_save_id";

/// Reads single fields of the metadata's classes; whatever is not as it should be is an error that names file and key.
class MetadataFields {
 public:
  /// Attributes are searched one by one, and a pickle may give many objects the same ones. Torch's classes have up to seven.
  static constexpr std::size_t most_attributes = 100;

  explicit MetadataFields(std::string_view file_name) : file_(file_name) {}

  [[noreturn]] void fail(std::string_view key, const std::string& what) const {
    throw FormatError(concat(file_, ": ", key.empty() ? "" : in_quotes(key), key.empty() ? "" : " ", what),
                      {.key = std::string(key), .file = std::string(file_)});
  }
  /// A tensor that cannot be read, in a file that is as it should be: it does not hide the others.
  [[noreturn]] void refuse(std::string_view key, const std::string& what) const {
    throw UnsupportedError(concat("it ", what), {.key = std::string(key), .file = std::string(file_)});
  }

  /// True for an instance of a class of one of the three generations of torch's modules.
  [[nodiscard]] static bool is_instance(PickleValue value, std::string_view class_name) {
    return value.is(PickleKind::object) && is_class(value.callable(), class_name);
  }
  [[nodiscard]] static bool is_class(PickleValue type, std::string_view class_name) {
    if (!type.is(PickleKind::global) || type.class_name() != class_name) return false;
    constexpr std::string_view modules[] = {
        "torch.distributed.checkpoint.metadata",
        "torch.distributed._shard.checkpoint.metadata",
        "torch.distributed._shard.sharded_tensor.metadata",
        "torch.distributed.checkpoint.filesystem",
        "torch.distributed._shard.checkpoint.filesystem",
    };
    return std::find(std::begin(modules), std::end(modules), type.module_name()) != std::end(modules);
  }
  [[nodiscard]] PickleValue need(std::string_view key, PickleValue value, std::string_view attribute) const {
    const auto state = value.state();
    const auto large = [](PickleValue part) { return part.is(PickleKind::dict) && part.size() > most_attributes; };
    const bool pair = state && state->is(PickleKind::tuple) && state->size() == 2;
    if (state && (pair ? large((*state)[0]) || large((*state)[1]) : large(*state)))
      fail(key, concat("has an object of more than ", most_attributes, " attributes, which is none of torch's"));
    const auto found = value.attribute(attribute);
    if (!found) fail(key, concat("lacks ", attribute, " in ", to_string(value, 160)));
    return *found;
  }
  [[nodiscard]] std::string_view key_text(PickleValue value) const {
    if (!value.is(PickleKind::string)) fail({}, concat("has a key that is no str, ", to_string(value, 80)));
    return value.as_string();
  }
  /// A torch.Size, tuple or list of non-negative numbers.
  [[nodiscard]] Dims dims(std::string_view key, PickleValue value) const {
    if (!value.is(PickleKind::tuple) && !value.is(PickleKind::list))
      fail(key, concat("has ", to_string(value, 80), " where a torch.Size must be"));
    if (value.size() > std::size_t{max_rank}) {
      refuse(key, concat("has ", value.size(), " axes; mgroups supports ", max_rank));
    }
    Dims out;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const PickleValue number = value[i];
      if (!number.is(PickleKind::integer) || number.as_int() < 0)
        fail(key, concat("has ", to_string(value, 80), " where sizes must be"));
      out.push_back(number.as_int());
    }
    return out;
  }
  [[nodiscard]] DType read_dtype(std::string_view key, PickleValue properties) const {
    const auto state = properties.is(PickleKind::object) ? properties.state() : std::nullopt;
    if (!is_instance(properties, "TensorProperties") || !state || !state->is(PickleKind::tuple) || state->size() < 5) {
      fail(key, concat("has the properties ", to_string(properties, 160), ", which name no dtype"));
    }
    const PickleValue dtype = (*state)[0], layout = (*state)[1];
    if (layout.is(PickleKind::object) && layout.args().size() == 1 && layout.args()[0].is(PickleKind::string) &&
        layout.args()[0].as_string() != "torch.strided") {
      refuse(key, concat("has layout ", in_quotes(layout.args()[0].as_string()), "; mgroups reads dense tensors"));
    }
    const auto known =
        dtype.is(PickleKind::global) && dtype.module_name() == "torch" ? dtype_from_name(dtype.class_name()) : std::nullopt;
    if (!known) refuse(key, concat("has dtype ", to_string(dtype, 60), ", which mgroups does not know"));
    return *known;
  }
  [[nodiscard]] std::uint64_t count(std::string_view key, PickleValue value, std::string_view what) const {
    if (!value.is(PickleKind::integer) || value.as_int() < 0)
      fail(key, concat("has ", to_string(value, 80), " as its ", what));
    return static_cast<std::uint64_t>(value.as_int());
  }

 private:
  std::string_view file_;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
