// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <mgroups/checkpoint/agreement.hpp>
#include <mgroups/checkpoint/load_options.hpp>
#include <mgroups/checkpoint/read_chunks.hpp>
#include <mgroups/checkpoint/read_part.hpp>
#include <mgroups/checkpoint/shared_reads.hpp>
#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/core/align_up.hpp>
#include <mgroups/core/box.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/core/wire.hpp>
#include <mgroups/pack/pack.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// A part of a chunk that this rank reads for others, and maybe for itself.
struct SharedRead {
  struct Destination {
    int rank;
    Box part;  ///< within what is read
  };
  ChunkRead chunk;  ///< without a target
  std::vector<Destination> destinations;
};

/// Where something goes that another rank reads.
struct SharedPiece {
  DType dtype;  ///< as it is stored
  TensorView target;
};

/// What one rank does in shared reads: both lists in the coordinator's order, which is the order of messages.
struct SharedWork {
  std::vector<SharedRead> reads;
  std::vector<std::vector<SharedPiece>> pieces;  ///< by the rank that reads them
};

/// Reads what this rank reads for others and delivers it, round after round, each of bounded memory. Collective, blocking.
class SharedExchange {
 public:
  SharedExchange(any_communicator& comm, ChunkReader& reader, SharedWork& work, const LoadOptions& options)
      : comm_(comm), reader_(reader), work_(work), options_(options), next_piece_(work.pieces.size(), 0) {}

  void run() {
    while (true) {
      int more = at_ < work_.reads.size() ? 1 : 0;
      comm_.all_reduce(std::span(&more, 1), ReduceOp::max);
      if (more == 0) return;
      const Parcels outgoing = on_all_ranks(comm_, "load", [&] { return read_round(); });
      const Parcels incoming = exchange(comm_, outgoing);
      on_all_ranks(comm_, "load", [&] {
        incoming.for_each([&](int rank, std::span<const std::byte> bytes) {
          while (!bytes.empty()) bytes = bytes.subspan(take(rank, bytes.data()));
        });
      });
    }
  }

 private:
  struct Sending {
    int rank;
    TensorView part;
  };

  [[nodiscard]] Parcels read_round() {
    const std::size_t budget = shared_round_bytes(options_.buffer_bytes, comm_.size());
    std::size_t end = at_, bytes = 0;
    std::vector<std::size_t> places;
    while (end < work_.reads.size() && (end == at_ || bytes + bytes_of(work_.reads[end]) <= budget)) {
      places.push_back(bytes);
      bytes += align_up(bytes_of(work_.reads[end++]), 64);
    }
    if (bytes > capacity_) {
      memory_.reset(new std::byte[bytes]);
      capacity_ = bytes;
    }
    std::vector<ChunkRead> round;
    std::vector<Sending> sending;
    for (std::size_t i = at_; i < end; ++i) {
      SharedRead& read = work_.reads[i];
      read.chunk.target = {memory_.get() + places[i - at_], read.chunk.dtype, read.chunk.part.sizes,
                           row_major_strides(read.chunk.part.sizes)};
      round.push_back(read.chunk);
      for (const auto& destination : read.destinations) {
        sending.push_back({destination.rank, read.chunk.target.part(destination.part)});
      }
    }
    at_ = end;
    reader_.read(round);

    std::stable_sort(sending.begin(), sending.end(), [](const Sending& a, const Sending& b) { return a.rank < b.rank; });
    Parcels out(comm_.size());
    for (const Sending& one : sending) {
      if (one.rank != comm_.rank()) out.counts[static_cast<std::size_t>(one.rank)] += one.part.nbytes();
    }
    std::size_t total = 0;
    for (const std::size_t count : out.counts) total += count;
    out.bytes.resize(total);
    std::byte* to = out.bytes.data();
    for (const Sending& one : sending) {
      if (one.rank == comm_.rank()) {
        put(one.rank, one.part);
      } else {
        copy_box(one.part, {to, one.part.dtype, one.part.shape, row_major_strides(one.part.shape)});
        to += one.part.nbytes();
      }
    }
    return out;
  }

  /// Puts the next piece that rank `rank` reads into its place; `source` has its shape.
  void put(int rank, const TensorView& source) {
    const auto from = static_cast<std::size_t>(rank);
    const TensorView& target = work_.pieces[from][next_piece_[from]++].target;
    place(source, target);
    if (options_.progress != nullptr) *options_.progress += target.nbytes();
  }
  /// The same for a piece that has arrived at `bytes`. Returns its length.
  [[nodiscard]] std::size_t take(int rank, const std::byte* bytes) {
    const auto from = static_cast<std::size_t>(rank);
    const SharedPiece& piece = work_.pieces[from][next_piece_[from]];
    const TensorView source{const_cast<std::byte*>(bytes), piece.dtype, piece.target.shape,
                            row_major_strides(piece.target.shape)};
    put(rank, source);
    return source.nbytes();
  }
  [[nodiscard]] static std::size_t bytes_of(const SharedRead& read) noexcept {
    return static_cast<std::size_t>(read.chunk.part.volume()) * size_of(read.chunk.dtype);
  }

  any_communicator& comm_;
  ChunkReader& reader_;
  SharedWork& work_;
  const LoadOptions& options_;
  std::size_t at_ = 0;                   // the next read
  std::vector<std::size_t> next_piece_;  // by rank
  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace detail

MGROUPS_END_NAMESPACE
