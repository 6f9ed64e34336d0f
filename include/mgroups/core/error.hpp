// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <mgroups/core/text.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// What kind of thing went wrong. Each has an exception type of its own, named beside it.
enum class Errc : int {
  invalid_argument,  ///< InvalidArgument: an argument that no correct program passes
  topology,          ///< TopologyError: sizes that no grid of ranks can have
  not_a_member,      ///< NotAMember: the rank is outside the group it asked something of
  mismatch,          ///< MismatchedCall: ranks of one group called different things
  peer_failed,       ///< PeerFailed: another rank threw or left
  timeout,           ///< TimeoutError: a deadline passed while waiting for others
  unsupported,       ///< UnsupportedError: this backend, type or format feature is not available here
  io,                ///< IoError: the operating system refused something
  format,            ///< FormatError: a file is not what it should be
  checkpoint,        ///< CheckpointError: state dict and checkpoint, or the ranks' shards, do not fit together
  device,            ///< DeviceError: the accelerator's runtime refused something
};

/// Where an error belongs. Empty fields do not apply; `rank` is a world rank, -1 where none applies.
struct ErrorContext {
  std::string verb = {};
  std::string group = {};
  int rank = -1;
  std::string key = {};
  std::string file = {};
};

/// Base of every exception of the library. `what()` is one sentence: what was wrong, the values, the remedy.
class Error : public std::runtime_error {
 public:
  Error(Errc code, const std::string& sentence, ErrorContext context, std::source_location where)
      : std::runtime_error(sentence), code_(code), context_(std::move(context)), where_(where) {}

  [[nodiscard]] Errc code() const noexcept { return code_; }
  [[nodiscard]] const ErrorContext& context() const noexcept { return context_; }
  /// The place in the library that found the fault. On a rank that was told of it by another, the place that told it.
  [[nodiscard]] const std::source_location& where() const noexcept { return where_; }

 private:
  Errc code_;
  ErrorContext context_;
  std::source_location where_;
};

/// The exception type of one code, so that a handler can name what it handles.
template <Errc Code>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& sentence, ErrorContext context = {},
                   std::source_location where = std::source_location::current())
      : Error(Code, sentence, std::move(context), where) {}
};

using InvalidArgument = ErrorOf<Errc::invalid_argument>;
using TopologyError = ErrorOf<Errc::topology>;
using NotAMember = ErrorOf<Errc::not_a_member>;
using MismatchedCall = ErrorOf<Errc::mismatch>;
using PeerFailed = ErrorOf<Errc::peer_failed>;
using TimeoutError = ErrorOf<Errc::timeout>;
using UnsupportedError = ErrorOf<Errc::unsupported>;
using IoError = ErrorOf<Errc::io>;
using FormatError = ErrorOf<Errc::format>;
using CheckpointError = ErrorOf<Errc::checkpoint>;
using DeviceError = ErrorOf<Errc::device>;

/// Throws the exception type that belongs to `code`: how an error that travelled between ranks is raised again.
[[noreturn]] inline void throw_error(Errc code, const std::string& sentence, ErrorContext context = {},
                                     std::source_location where = std::source_location::current()) {
  switch (code) {
    case Errc::invalid_argument: throw InvalidArgument(sentence, std::move(context), where);
    case Errc::topology: throw TopologyError(sentence, std::move(context), where);
    case Errc::not_a_member: throw NotAMember(sentence, std::move(context), where);
    case Errc::mismatch: throw MismatchedCall(sentence, std::move(context), where);
    case Errc::peer_failed: throw PeerFailed(sentence, std::move(context), where);
    case Errc::timeout: throw TimeoutError(sentence, std::move(context), where);
    case Errc::unsupported: throw UnsupportedError(sentence, std::move(context), where);
    case Errc::io: throw IoError(sentence, std::move(context), where);
    case Errc::format: throw FormatError(sentence, std::move(context), where);
    case Errc::checkpoint: throw CheckpointError(sentence, std::move(context), where);
    case Errc::device: throw DeviceError(sentence, std::move(context), where);
  }
  throw Error(code, sentence, std::move(context), where);
}

MGROUPS_END_NAMESPACE
