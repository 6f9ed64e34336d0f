// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Delivers every rank's messages: what comes back is what each rank sent to this one. Collective, blocking.
[[nodiscard]] inline Parcels exchange(any_communicator& comm, const Parcels& outgoing) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const std::vector<std::size_t> ones(ranks, 1);
  Parcels incoming(comm.size());
  comm.all_to_all_v(std::span<const std::size_t>(outgoing.counts), ones, std::span<std::size_t>(incoming.counts), ones);
  incoming.bytes.resize(std::accumulate(incoming.counts.begin(), incoming.counts.end(), std::size_t{0}));
  comm.all_to_all_v(std::span<const std::byte>(outgoing.bytes), outgoing.counts, std::span<std::byte>(incoming.bytes),
                    incoming.counts);
  return incoming;
}

/// What every rank gave, at rank `root`; elsewhere empty messages. Collective, blocking.
[[nodiscard]] inline Parcels gather(any_communicator& comm, std::vector<std::byte> message, int root) {
  Parcels outgoing(comm.size());
  outgoing.counts[static_cast<std::size_t>(root)] = message.size();
  outgoing.bytes = std::move(message);
  return exchange(comm, outgoing);
}

/// `message` of rank `root` on every rank. Collective, blocking.
inline void broadcast_bytes(any_communicator& comm, std::vector<std::byte>& message, int root) {
  std::uint64_t size = message.size();
  comm.broadcast(std::span(&size, 1), root);
  message.resize(size);
  comm.broadcast(std::span(message), root);
}

/// An error that can travel between ranks.
struct Failure {
  Errc code;
  std::string sentence;
  ErrorContext context;
};

inline std::vector<std::byte> to_wire(const Failure& failure) {
  std::vector<std::byte> out;
  WireWriter writer(out);
  writer.number(static_cast<std::uint64_t>(failure.code));
  for (const std::string* text :
       {&failure.sentence, &failure.context.verb, &failure.context.group, &failure.context.key, &failure.context.file}) {
    writer.text(*text);
  }
  writer.number(static_cast<std::uint64_t>(failure.context.rank + 1));
  return out;
}

inline Failure failure_from_wire(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  Failure out{static_cast<Errc>(reader.number()), {}, {}};
  for (std::string* text : {&out.sentence, &out.context.verb, &out.context.group, &out.context.key, &out.context.file}) {
    *text = std::string(reader.text());
  }
  out.context.rank = static_cast<int>(reader.number()) - 1;
  return out;
}

/// Raises on every rank the failure of the lowest rank that has one; returns when none has. Collective, blocking.
inline void agree(any_communicator& comm, const std::optional<Failure>& mine) {
  const int none = comm.size();
  int first = mine ? comm.rank() : none;
  comm.all_reduce(std::span(&first, 1), ReduceOp::min);
  if (first == none) return;
  std::vector<std::byte> message;
  if (first == comm.rank()) message = to_wire(*mine);
  broadcast_bytes(comm, message, first);
  Failure failure = failure_from_wire(message);
  throw_error(failure.code, failure.sentence, std::move(failure.context));
}

/// Runs `step`, which must not communicate, and returns its result when it succeeded on every rank; else every rank throws
/// the error of the lowest rank where it failed, with that rank's number before the sentence. Collective, blocking.
template <class Step>
auto on_all_ranks(any_communicator& comm, std::string_view verb, Step&& step) {
  using Result = std::invoke_result_t<Step>;
  std::optional<std::conditional_t<std::is_void_v<Result>, std::monostate, Result>> result;
  std::optional<Failure> failure;
  const auto failed = [&](Errc code, std::string_view sentence, ErrorContext context) {
    if (context.verb.empty()) context.verb = verb;
    context.rank = comm.rank();
    failure =
        Failure{code, comm.size() == 1 ? std::string(sentence) : concat("rank ", comm.rank(), ": ", sentence), context};
  };
  try {
    if constexpr (std::is_void_v<Result>) {
      step();
      result.emplace();
    } else {
      result.emplace(step());
    }
  } catch (const Error& error) {
    failed(error.code(), error.what(), error.context());
  } catch (const std::exception& error) {
    failed(Errc::peer_failed, concat(verb, " failed: ", error.what()), {});
  } catch (...) {
    failed(Errc::peer_failed, concat(verb, " failed with an exception that is no std::exception"), {});
  }
  agree(comm, failure);
  if constexpr (!std::is_void_v<Result>) return std::move(*result);
}

}  // namespace detail

MGROUPS_END_NAMESPACE
