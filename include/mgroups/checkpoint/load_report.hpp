// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// How a state dict and a checkpoint differ. Equal on all ranks; sorted.
struct LoadReport {
  struct Mismatch {
    std::string key;
    std::string reason;  ///< "shape [2, 2] stored, [2, 3] wanted"
  };

  std::vector<std::string> missing;     ///< in the state dict of some rank, not in the checkpoint
  std::vector<std::string> unexpected;  ///< in the checkpoint, in no rank's state dict
  std::vector<Mismatch> mismatched;     ///< in both, but not the same thing
  /// Objects that were loaded but whose value is not understood, and why: their bytes are there, and are saved as they are.
  std::vector<Mismatch> not_understood;
};

/// A checkpoint that does not fit the state dict. Nothing was loaded.
class LoadError : public CheckpointError {
 public:
  LoadError(const std::string& sentence, ErrorContext context, LoadReport report)
      : CheckpointError(sentence, std::move(context)), report_(std::move(report)) {}
  [[nodiscard]] const LoadReport& report() const noexcept { return report_; }

 private:
  LoadReport report_;
};

namespace detail {

/// One sentence with everything that differs, each missing key with the stored key nearest to it.
template <class StoredKeys>
[[nodiscard]] std::string report_sentence(const std::string& directory, const LoadReport& report,
                                          const StoredKeys& stored_keys) {
  constexpr std::size_t most = 16;
  std::string text = concat("the checkpoint ", directory, " does not fit the state dict");
  const auto part = [&](std::string_view title, std::size_t count, auto&& describe) {
    if (count == 0) return;
    text += concat("; ", title, ": ");
    for (std::size_t i = 0; i < std::min(most, count); ++i) text += concat(i > 0 ? ", " : "", describe(i));
    if (count > most) text += concat(" and ", count - most, " more");
  };
  part("mismatched", report.mismatched.size(),
       [&](std::size_t i) { return concat("'", report.mismatched[i].key, "' (", report.mismatched[i].reason, ")"); });
  part("missing", report.missing.size(), [&](std::size_t i) {
    // A key that was renamed is among those that nobody asks for.
    std::string nearest = nearest_name(report.missing[i], report.unexpected);
    if (nearest.empty()) nearest = nearest_name(report.missing[i], stored_keys);
    return concat("'", report.missing[i], "'", nearest.empty() ? "" : concat(" (nearest: '", nearest, "')"));
  });
  part("unexpected", report.unexpected.size(), [&](std::size_t i) { return concat("'", report.unexpected[i], "'"); });
  return text;
}

inline void to_wire(WireWriter& out, const LoadReport& report) {
  for (const auto* keys : {&report.missing, &report.unexpected}) {
    out.number(keys->size());
    for (const std::string& key : *keys) out.text(key);
  }
  for (const auto* list : {&report.mismatched, &report.not_understood}) {
    out.number(list->size());
    for (const auto& [key, reason] : *list) {
      out.text(key);
      out.text(reason);
    }
  }
}

[[nodiscard]] inline LoadReport report_from_wire(WireReader& in) {
  LoadReport report;
  for (auto* keys : {&report.missing, &report.unexpected}) {
    for (auto n = in.number(); n > 0; --n) keys->emplace_back(in.text());
  }
  for (auto* list : {&report.mismatched, &report.not_understood}) {
    for (auto n = in.number(); n > 0; --n) {
      std::string key(in.text());
      list->push_back({std::move(key), std::string(in.text())});
    }
  }
  return report;
}

}  // namespace detail

MGROUPS_END_NAMESPACE
