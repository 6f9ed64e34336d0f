// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/value.hpp>
#include <mgroups/format/torch_dist/archive_reader.hpp>
#include <mgroups/format/torch_dist/metadata_types.hpp>
#include <mgroups/format/torch_dist/object_decoder.hpp>
#include <mgroups/format/torch_dist/object_encoder.hpp>
#include <mgroups/shard/sharded_object.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// An item of bytes, with its key and, for a part of PyTorch's nested state dict, the way to it.
struct ObjectItem {
  std::string key;
  std::vector<PathElement> path;
  std::vector<std::byte> archive;
};

/// The archive in which `object` is stored: its own bytes where it was loaded in that form and not changed, else its value
/// as torch.save would write it. Throws UnsupportedError where it can be neither.
[[nodiscard]] inline std::vector<std::byte> archive_of(const Object& object, Object::Form form, std::string_view key,
                                                       std::string_view prefix = "archive") {
  if (!object.stored().empty() && object.form() == form) return object.stored();
  if (!object.understood()) {
    throw UnsupportedError(concat("object '", key,
                                  "' was loaded from a checkpoint of another flavour and is not understood, so "
                                  "it can only be saved in that flavour: ",
                                  object.fault()),
                           {.key = std::string(key)});
  }
  return encode_object(form == Object::Form::listed ? Value::list({object.value()}) : object.value(), prefix);
}

/// Compares every record of an archive with its checksum.
inline void check_archive(std::span<const std::byte> bytes, std::string_view file, std::string_view key) {
  const Archive archive(bytes, bytes.size(), file, key);
  std::vector<std::byte> scratch;
  for (const ArchiveRecord& record : archive.records()) static_cast<void>(archive.view_record(record, scratch));
  static_cast<void>(archive.at("data.pkl"));
}

/// The object in an archive. An archive that is damaged is a FormatError. Whatever else is odd about it (no value of ours
/// can hold it, it would take a thousand times its size, its text is none) leaves it not understood, with its bytes.
[[nodiscard]] inline Object object_from(std::vector<std::byte> archive, Object::Form form, std::string_view file,
                                        std::string_view key) {
  check_archive(archive, file, key);
  Value value;
  std::string fault;
  try {
    value = decode_object(std::span<const std::byte>(archive), archive.size(), file, key);
    if (form == Object::Form::listed) {
      const Value::List* const list = value.get_if<Value::List>();
      if (list == nullptr || list->size() != 1) {
        throw UnsupportedError(concat(file, ": '", key, "' holds ", value.kind(), " where a list of one object must be"));
      }
      Value only = list->front();
      value = std::move(only);
    }
  } catch (const Error& error) {
    value = {};
    fault = error.what();
  }
  return {std::move(archive), form, std::move(value), std::move(fault)};
}

}  // namespace detail

MGROUPS_END_NAMESPACE
