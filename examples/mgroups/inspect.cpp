// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/value.hpp>

#include "contents.hpp"
#include "support/progress.hpp"
#include "support/sha256.hpp"
#include "verbs.hpp"

namespace mg = mgroups;

namespace {

/// Python's values in JSON's: bytes in hexadecimal, tensors and instances as objects that say so.
nlohmann::json to_json(const mg::Value& value) {
  const auto listed = [](const mg::Value::List& elements) {
    nlohmann::json out = nlohmann::json::array();
    for (const mg::Value& element : elements) out.push_back(to_json(element));
    return out;
  };
  const auto hexadecimal = [](const mg::Value::Bytes& bytes) {
    std::string out;
    for (const std::byte byte : bytes) {
      for (const unsigned digit : {std::to_integer<unsigned>(byte) >> 4, std::to_integer<unsigned>(byte) & 15u}) {
        out += "0123456789abcdef"[digit];
      }
    }
    return out;
  };
  if (const auto* boolean = value.get_if<bool>()) return *boolean;
  if (const auto* integer = value.get_if<std::int64_t>()) return *integer;
  if (const auto* large = value.get_if<std::uint64_t>()) return *large;
  if (const auto* real = value.get_if<double>()) return *real;
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (const auto* bytes = value.get_if<mg::Value::Bytes>()) return {{"bytes", hexadecimal(*bytes)}};
  if (const auto* list = value.get_if<mg::Value::List>()) return listed(*list);
  if (const auto* tuple = value.get_if<mg::Value::Tuple>()) return listed(tuple->elements);
  if (const auto* global = value.get_if<mg::Value::Global>()) return mg::concat(global->module, '.', global->name);
  if (const auto* tensor = value.get_if<mg::Value::Tensor>()) {
    return {{"tensor", mg::name(tensor->dtype)},
            {"shape", std::vector<std::int64_t>(tensor->shape.begin(), tensor->shape.end())},
            {"bytes", hexadecimal(tensor->bytes)}};
  }
  if (const auto* instance = value.get_if<mg::Value::Instance>()) {
    nlohmann::json out{{"class", mg::concat(instance->type.module, '.', instance->type.name)}};
    if (!instance->arguments.empty()) out["arguments"] = listed(instance->arguments);
    for (const auto& [name, part] : {std::pair{"state", &instance->state}, std::pair{"items", &instance->items}}) {
      if (!part->empty()) out[name] = to_json(part->front());
    }
    return out;
  }
  if (const auto* dict = value.get_if<mg::Value::Dict>()) {
    nlohmann::json out = nlohmann::json::object();
    for (const auto& [key, element] : *dict) {
      const auto* text = key.get_if<std::string>();
      out[text != nullptr ? *text : to_json(key).dump()] = to_json(element);
    }
    return out;
  }
  return nullptr;
}

void keep_only(Contents& contents, const std::vector<std::string>& keys) {
  if (keys.empty()) return;
  std::vector<std::string> known;
  for (const auto& [key, tensor] : contents.tensors) known.push_back(key);
  for (const auto& [key, error] : contents.objects) known.push_back(key);
  for (const std::string& key : keys) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string nearest = mg::nearest_name(key, known);
    throw mg::InvalidArgument(
        mg::concat("there is no key '", key, "'", nearest.empty() ? "" : mg::concat("; the nearest is '", nearest, "'")));
  }
  const auto unwanted = [&](const auto& entry) { return std::find(keys.begin(), keys.end(), entry.first) == keys.end(); };
  std::erase_if(contents.tensors, unwanted);
  std::erase_if(contents.objects, unwanted);
}

/// Runs `read`; what it throws is the item's error.
template <class Read>
void attempt(std::string& error, Read&& read) {
  if (!error.empty()) return;
  try {
    read();
  } catch (const mg::Error& found) {
    error = found.what();
  }
}

/// In PyTorch's flavour the objects are all there is.
bool has_common(const Contents& contents) { return contents.flavour == mg::Flavour::torch_dist; }

struct Values {
  std::map<std::string, mg::Value> objects;
  mg::Value common;
  std::string common_error;
};

void read_values(Contents& contents, Values& out) {
  for (auto& [key, error] : contents.objects) {
    attempt(error, [&] { out.objects[key] = contents.read_object(key).value(); });
  }
  if (has_common(contents)) attempt(out.common_error, [&] { out.common = contents.read_common().value(); });
}

void print_json(const Contents& contents, const InspectOptions& options, const Values& values) {
  nlohmann::json out{
      {"format", contents.format}, {"tensors", nlohmann::json::object()}, {"objects", nlohmann::json::array()}};
  for (const auto& [key, tensor] : contents.tensors) {
    nlohmann::json row{{"dtype", tensor.dtype},
                       {"shape", std::vector<std::int64_t>(tensor.shape.begin(), tensor.shape.end())},
                       {"shards", tensor.shards}};
    if (!tensor.sha256.empty()) row["sha256"] = tensor.sha256;
    if (!tensor.error.empty()) row["error"] = tensor.error;
    out["tensors"][key] = std::move(row);
  }
  for (const auto& [key, error] : contents.objects) {
    out["objects"].push_back(key);
    if (!error.empty()) out["object_errors"][key] = error;
  }
  if (!contents.extra_files.empty()) out["leftover_files"] = contents.extra_files;
  if (!contents.metadata.empty()) out["metadata"] = contents.metadata;
  if (options.values) {
    out["values"] = nlohmann::json::object();
    for (const auto& [key, value] : values.objects) out["values"][key] = to_json(value);
    if (has_common(contents)) out["common"] = to_json(values.common);
    if (!values.common_error.empty()) out["common_error"] = values.common_error;
  }
  // Keys are whatever the file holds; bytes that are no UTF-8 must not end the listing.
  std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

void print_text(const Contents& contents, const InspectOptions& options, const Values& values) {
  std::size_t widest = 3, widest_shape = 5;
  for (const auto& [key, tensor] : contents.tensors) {
    widest = std::max(widest, key.size());
    widest_shape = std::max(widest_shape, mg::to_string(tensor.shape).size());
  }
  const int width = static_cast<int>(std::min<std::size_t>(widest, 80)), shape_width = static_cast<int>(widest_shape);
  if (!contents.tensors.empty())
    std::printf("%-*s  %-15s  %-*s  %6s\n", width, "key", "dtype", shape_width, "shape", "shards");
  for (const auto& [key, tensor] : contents.tensors) {
    std::printf("%-*s  %-15s  %-*s  %6zu%s%s%s%s\n", width, key.c_str(), tensor.dtype.c_str(), shape_width,
                mg::to_string(tensor.shape).c_str(), tensor.shards, tensor.sha256.empty() ? "" : "  ", tensor.sha256.c_str(),
                tensor.error.empty() ? "" : "  error: ", tensor.error.c_str());
  }
  const auto shown = [](const mg::Value& value) {
    return to_json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  for (const auto& [key, error] : contents.objects) {
    const auto value = values.objects.find(key);
    std::printf("%-*s  object%s%s%s%s\n", width, key.c_str(), error.empty() ? "" : "  error: ", error.c_str(),
                value != values.objects.end() ? "  " : "",
                value != values.objects.end() ? shown(value->second).c_str() : "");
  }
  if (options.values && has_common(contents)) {
    std::printf("common state: %s\n",
                values.common_error.empty() ? shown(values.common).c_str() : values.common_error.c_str());
  }
  for (const std::string& file : contents.extra_files) std::printf("%s is no part of the checkpoint\n", file.c_str());
  std::printf("%s: %zu tensors, %.1f MB, %zu objects\n", contents.format.c_str(), contents.tensors.size(),
              static_cast<double>(contents.bytes()) / 1e6, contents.objects.size());
}

/// One sentence for all that could not be read.
void throw_if_any_failed(const Contents& contents, const Values& values) {
  std::vector<std::string> keys;
  std::string first;
  const auto add = [&](const std::string& key, const std::string& error) {
    if (error.empty()) return;
    if (keys.empty()) first = error;
    keys.push_back(key);
  };
  for (const auto& [key, tensor] : contents.tensors) add(key, tensor.error);
  for (const auto& [key, error] : contents.objects) add(key, error);
  add("the common state", values.common_error);
  if (!keys.empty()) throw mg::CheckpointError(mg::concat("cannot read ", mg::list_text(keys, 8), ": ", first));
}

}  // namespace

void inspect(const InspectOptions& options) {
  Contents contents = open_contents(options.path);
  keep_only(contents, options.keys);
  if (options.sha256) {
    Progress progress("reading", contents.bytes());
    for (auto& [key, tensor] : contents.tensors) {
      attempt(tensor.error, [&, &name = key, &info = tensor] {
        Sha256 hash;
        contents.read_all(name, [&](std::span<const std::byte> bytes) {
          hash.add(bytes);
          progress.bytes() += bytes.size();
        });
        info.sha256 = hash.finish();
      });
    }
  }
  Values values;
  if (options.values) read_values(contents, values);
  options.json ? print_json(contents, options, values) : print_text(contents, options, values);
  throw_if_any_failed(contents, values);
}
