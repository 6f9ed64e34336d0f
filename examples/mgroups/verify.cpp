// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <mgroups/checkpoint/verify.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/format/json.hpp>
#include <mgroups/format/relative_path.hpp>
#include <mgroups/format/safetensors.hpp>
#include <mgroups/io/posix.hpp>

#include "contents.hpp"
#include "support/progress.hpp"
#include "support/sha256.hpp"
#include "verbs.hpp"

namespace mg = mgroups;

namespace {

std::string sha256_of_file(const std::string& path) {
  const auto file = mg::posix_file_system().open_read(path);
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  Sha256 hash;
  for (std::uint64_t at = 0, size = file->size(); at < size;) {
    const auto part = std::span(buffer).first(static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), size - at)));
    file->read_at(at, part);
    hash.add(part);
    at += part.size();
  }
  return hash.finish();
}

/// Megatron-Core's `integrity.json`, where it is there: the SHA-256 of every file.
void check_manifest(const std::string& directory, mg::VerifyReport& report) {
  const std::string path = mg::join_path(directory, std::string(mg::detail::manifest_name));
  mg::FileSystem& files = mg::posix_file_system();
  if (files.status(path).kind != mg::FileKind::file) return;
  try {
    const std::vector<std::byte> bytes = mg::detail::read_whole_file(files, path);
    const auto document =
        mg::JsonDocument::parse(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), path);
    if (const auto algorithm = document.root().at("algorithm").as_string(); algorithm != "sha256") {
      report.notes.push_back(mg::concat(path, " has checksums of the kind ", algorithm, ", which are not compared"));
      return;
    }
    document.root().at("files").for_each_member([&](std::string_view name, mg::JsonValue value) {
      if (const auto fault = mg::detail::relative_path_fault(name)) {
        report.faults.push_back(mg::concat(path, " names ", name, ", a path that ", *fault));
        return;
      }
      const std::string file = mg::join_path(directory, std::string(name));
      if (files.status(file).kind != mg::FileKind::file) {
        report.faults.push_back(mg::concat(file, ", which ", path, " lists, does not exist"));
      } else if (sha256_of_file(file) != value.as_string()) {
        report.faults.push_back(
            mg::concat(file, " does not have the SHA-256 that ", path, " lists: it was changed afterwards"));
      }
    });
    report.unchecked_bytes = 0;
  } catch (const mg::Error& error) {
    report.faults.emplace_back(error.what());
  }
}

mg::VerifyReport verify_safetensors(const std::string& path) {
  mg::VerifyReport report;
  try {
    const Contents contents = open_contents(path);
    report.tensors = contents.tensors.size();
    for (const auto& [key, tensor] : contents.tensors) {
      if (!tensor.error.empty() &&
          std::find(report.faults.begin(), report.faults.end(), tensor.error) == report.faults.end()) {
        report.faults.push_back(tensor.error);
      }
    }
    report.bytes = report.unchecked_bytes = contents.bytes();
    for (const std::string& file : contents.extra_files) {
      report.notes.push_back(mg::concat(mg::join_path(path, file), " is no part of the checkpoint"));
    }
  } catch (const mg::Error& error) {
    report.faults.emplace_back(error.what());
  }
  return report;
}

}  // namespace

bool verify(const VerifyOptions& options) {
  mg::VerifyReport report;
  if (is_safetensors(options.path)) {
    report = verify_safetensors(options.path);
  } else {
    std::uint64_t total = 0;
    mg::FileSystem& files = mg::posix_file_system();
    if (files.status(options.path).kind == mg::FileKind::directory) {
      for (const std::string& name : files.list(options.path)) total += files.status(mg::join_path(options.path, name)).size;
    }
    Progress progress("verifying", total);
    report = mg::verify_checkpoint(options.path, {.progress = &progress.bytes()});
    check_manifest(options.path, report);
  }
  if (options.json) {
    const nlohmann::json out{{"whole", report.faults.empty()},
                             {"faults", report.faults},
                             {"notes", report.notes},
                             {"tensors", report.tensors},
                             {"objects", report.objects},
                             {"bytes", report.bytes},
                             {"unchecked_bytes", report.unchecked_bytes}};
    std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return report.faults.empty();
  }
  for (const std::string& fault : report.faults) std::printf("fault: %s\n", fault.c_str());
  for (const std::string& note : report.notes) std::printf("note: %s\n", note.c_str());
  const std::size_t count = report.faults.size();
  std::printf("%s%s: %zu tensors, %zu objects, %.1f MB of data", options.path.c_str(),
              count == 0 ? " is whole" : mg::concat(" has ", count, count == 1 ? " fault" : " faults").c_str(),
              report.tensors, report.objects, static_cast<double>(report.bytes) / 1e6);
  if (report.unchecked_bytes > 0) {
    std::printf(", %.1f MB of it without any checksum", static_cast<double>(report.unchecked_bytes) / 1e6);
  }
  std::printf("\n");
  return count == 0;
}
