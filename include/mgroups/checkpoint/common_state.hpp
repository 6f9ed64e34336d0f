// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <mgroups/checkpoint/directory.hpp>
#include <mgroups/checkpoint/load_report.hpp>
#include <mgroups/checkpoint/stored_object.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/value.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/shard/sharded_object.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// What the common state becomes on disk: items, or the content of `common.pt`, which `torch_dist` always has unless the
/// state was loaded from an item of its own.
struct StoredCommon {
  std::vector<ObjectItem> items;
  std::vector<std::byte> file;
};

[[nodiscard]] inline std::string path_key(const std::vector<PathElement>& path) {
  std::string key;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (i > 0) key += '.';
    std::visit([&](const auto& element) { key += concat(element); }, path[i]);
  }
  return key;
}

/// PyTorch's rule from 2.4 on: every dict is descended into, a list where it holds a dict or tensor at any depth.
[[nodiscard]] inline bool is_descended(const Value& value) {
  if (value.get_if<Value::Dict>() || value.get_if<Value::Tensor>()) return true;
  const auto* list = value.get_if<Value::List>();
  return list != nullptr && std::any_of(list->begin(), list->end(), is_descended);
}

inline void flatten_common(const Value& value, std::vector<PathElement>& path, std::vector<ObjectItem>& out) {
  if (const auto* dict = value.get_if<Value::Dict>()) {
    for (const auto& [key, element] : *dict) {
      if (const auto* text = key.get_if<std::string>()) {
        path.emplace_back(*text);
      } else if (const auto* number = key.get_if<std::int64_t>()) {
        path.emplace_back(concat(*number));
      } else {
        throw InvalidArgument(concat("the common state has ", key.kind(), " as a key, in '", path_key(path),
                                     "'; the dcp flavour has strings and integers"));
      }
      flatten_common(element, path, out);
      path.pop_back();
    }
  } else if (const auto* list = value.get_if<Value::List>(); list != nullptr && is_descended(value)) {
    for (std::size_t i = 0; i < list->size(); ++i) {
      path.emplace_back(static_cast<std::int64_t>(i));
      flatten_common((*list)[i], path, out);
      path.pop_back();
    }
  } else {
    out.push_back({path_key(path), path, encode_object(value)});
  }
}

/// Throws UnsupportedError and InvalidArgument for a state that the flavour cannot hold.
[[nodiscard]] inline StoredCommon store_common(const Object* common, Flavour flavour) {
  StoredCommon out;
  if (common == nullptr || (common->stored().empty() && common->understood() && common->value().is_none())) {
    if (flavour == Flavour::torch_dist) out.file = encode_object(Value::dict(), "common");
    return out;
  }
  if (flavour == Flavour::torch_dist) {
    if (!common->stored().empty() && common->form() == Object::Form::listed) {
      out.items.push_back({std::string(common_key), {}, common->stored()});
      return out;
    }
    if (common->stored().empty() && common->value().get_if<Value::Dict>() == nullptr) {
      throw InvalidArgument(concat("the common state is ", common->value().kind(), "; it must be a dict"));
    }
    out.file = archive_of(*common, Object::Form::plain, "common state", "common");
    return out;
  }
  if (common->value().get_if<Value::Dict>() == nullptr) {
    throw InvalidArgument(concat("the common state is ", common->value().kind(), "; it must be a dict"));
  }
  std::vector<PathElement> path;
  flatten_common(common->value(), path, out.items);
  std::set<std::string_view> keys;
  for (const ObjectItem& item : out.items) {
    if (keys.insert(item.key).second) continue;
    throw InvalidArgument(concat("two entries of the common state have the joined key '", item.key,
                                 "'; rename one of them, or save as torch_dist"),
                          {.key = item.key});
  }
  return out;
}

/// Refuses items of bytes that overlap: all of them are read, and would take many times the memory of their file.
inline void check_no_overlap(const OpenedCheckpoint& opened) {
  std::vector<std::pair<StorageInfo, std::string_view>> order;
  for (const auto& [key, at] : opened.metadata.objects) order.emplace_back(at, key);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first.file, a.first.offset, a.first.length) < std::tie(b.first.file, b.first.offset, b.first.length);
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const auto& [before, other] = order[i - 1];
    const auto& [at, key] = order[i];
    if (before.file != at.file || before.offset + before.length <= at.offset) continue;
    const std::string path = join_path(opened.directory, opened.metadata.files[at.file]);
    throw FormatError(concat("the objects '", other, "' and '", key, "' overlap in ", path, " at byte ", at.offset,
                             "; .metadata is damaged"),
                      {.verb = "load", .key = std::string(key), .file = path});
  }
}

/// Reads the common state: Megatron's item, else `common.pt` (beside an item it is what an earlier save has left), else, in
/// a checkpoint of PyTorch, every item of bytes that is not `taken` by somebody else.
[[nodiscard]] inline StoredCommon read_common(FileSystem& files, const OpenedCheckpoint& opened,
                                              const std::set<std::string, std::less<>>& taken) {
  StoredCommon out;
  const std::string path = join_path(opened.directory, std::string(common_name));
  const auto read_at = [&](const std::string& key, const StorageInfo& at) {
    return read_item(files, opened, opened.metadata.files[at.file], at.offset, at.length, key);
  };
  const auto item = opened.metadata.objects.find(common_key);
  if (item != opened.metadata.objects.end()) {
    out.items.push_back({item->first, {}, read_at(item->first, item->second)});
    return out;
  }
  if (files.status(path).kind == FileKind::file) {
    out.file = read_item(files, opened, common_name, 0, files.status(path).size, "the common state");
    return out;
  }
  if (opened.flavour == Flavour::torch_dist) return out;
  check_no_overlap(opened);
  for (const auto& [key, at] : opened.metadata.objects) {
    if (taken.contains(key) || opened.metadata.unreadable.contains(key)) continue;
    const auto known = opened.metadata.paths.find(key);
    std::vector<PathElement> way = known != opened.metadata.paths.end() ? known->second : std::vector<PathElement>{key};
    if (way.empty()) way.emplace_back(key);
    out.items.push_back({key, std::move(way), read_at(key, at)});
  }
  // Elements of a list in the order of their indices.
  std::stable_sort(out.items.begin(), out.items.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return out;
}

inline void to_wire(WireWriter& out, const StoredCommon& common) {
  out.bytes(common.file);
  out.number(common.items.size());
  for (const ObjectItem& item : common.items) {
    out.text(item.key);
    out.number(item.path.size());
    for (const PathElement& element : item.path) {
      const auto* text = std::get_if<std::string>(&element);
      out.number(text != nullptr ? 1 : 0);
      text != nullptr ? out.text(*text) : out.number(static_cast<std::uint64_t>(std::get<std::int64_t>(element)));
    }
    out.bytes(item.archive);
  }
}

[[nodiscard]] inline StoredCommon common_from_wire(WireReader& in) {
  StoredCommon out;
  const auto bytes = [&] {
    const auto view = in.bytes();
    return std::vector<std::byte>(view.begin(), view.end());
  };
  out.file = bytes();
  for (auto n = in.number(); n > 0; --n) {
    ObjectItem item{std::string(in.text()), {}, {}};
    for (auto k = in.number(); k > 0; --k) {
      if (in.number() != 0) {
        item.path.emplace_back(std::string(in.text()));
      } else {
        item.path.emplace_back(static_cast<std::int64_t>(in.number()));
      }
    }
    item.archive = bytes();
    out.items.push_back(std::move(item));
  }
  return out;
}

/// Puts `leaf` where `path` leads in a nested dict; false where something else stands in the way.
[[nodiscard]] inline bool put_at_path(Value& root, std::span<const PathElement> path, Value leaf) {
  if (path.empty()) {
    if (!root.is_none()) return false;
    root = std::move(leaf);
    return true;
  }
  if (const auto* key = std::get_if<std::string>(&path.front())) {
    if (root.is_none()) root = Value::dict();
    auto* dict = root.get_if<Value::Dict>();
    if (dict == nullptr) return false;
    if (root.find(*key) == nullptr) root.set(*key, Value());
    return put_at_path(const_cast<Value&>(root.at(*key)), path.subspan(1), std::move(leaf));
  }
  const std::int64_t index = std::get<std::int64_t>(path.front());
  if (root.is_none()) root = Value::list();
  auto* list = root.get_if<Value::List>();
  if (list == nullptr || index < 0 || static_cast<std::uint64_t>(index) > list->size()) return false;
  if (static_cast<std::size_t>(index) == list->size()) list->emplace_back();
  return put_at_path((*list)[static_cast<std::size_t>(index)], path.subspan(1), std::move(leaf));
}

/// The common state out of what was stored of it. What is not understood is noted in `report`.
[[nodiscard]] inline Object make_common(StoredCommon stored, const std::string& directory, LoadReport& report) {
  const auto note = [&](const std::string& key, const Object& object) {
    if (!object.understood()) report.not_understood.push_back({key, object.fault()});
  };
  if (!stored.file.empty()) {
    Object out =
        object_from(std::move(stored.file), Object::Form::plain, join_path(directory, std::string(common_name)), {});
    note(std::string(common_name), out);
    return out;
  }
  if (stored.items.size() == 1 && stored.items[0].path.empty()) {
    Object out = object_from(std::move(stored.items[0].archive), Object::Form::listed, directory, stored.items[0].key);
    note(stored.items[0].key, out);
    return out;
  }
  Value root = Value::dict();
  for (ObjectItem& item : stored.items) {
    const Object leaf = object_from(std::move(item.archive), Object::Form::plain, directory, item.key);
    note(item.key, leaf);
    if (leaf.understood() && !put_at_path(root, item.path, leaf.value())) root.set(item.key, leaf.value());
  }
  return root;
}

}  // namespace detail

MGROUPS_END_NAMESPACE
