// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include <mgroups/core/box.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/memory.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/pack/box_copy.hpp>
#include <mgroups/pack/host_walk.hpp>
#include <mgroups/pack/runs.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// How to copy in host memory. Several threads pay where one does not reach the machine's memory bandwidth.
struct PackOptions {
  int threads = 1;  ///< at most; copies of few bytes use fewer
};

namespace detail {

inline void check_on_host(const TensorView& view, std::string_view verb) {
  if (view.space != MemorySpace::host) {
    throw InvalidArgument(concat(verb, " reads and writes host memory, but a tensor of shape ", to_string(view.shape),
                                 " lies in device memory; pack/pack.cuh has the copy on a stream"));
  }
}

/// Threads that may share `bytes`: each gets enough to pay for its start.
[[nodiscard]] inline int useful_threads(std::int64_t bytes, const PackOptions& options) {
  if (options.threads < 1)
    throw InvalidArgument(concat(options.threads, " threads cannot copy anything; ask for at least 1"));
  constexpr std::int64_t bytes_per_thread = std::int64_t{1} << 20;
  return static_cast<int>(std::clamp<std::int64_t>(bytes / bytes_per_thread, 1, options.threads));
}

/// Copies the bytes [begin, end) of all boxes, counted through.
inline void copy_share_on_host(std::span<const BoxCopy> boxes, std::int64_t begin, std::int64_t end) {
  std::int64_t first = 0;
  for (const BoxCopy& box : boxes) {
    const std::int64_t last = first + box.bytes();
    if (first < end && last > begin) copy_part_on_host(box, begin - first, end - first);
    first = last;
  }
}

inline void copy_all_on_host(std::span<const BoxCopy> boxes, std::int64_t bytes, int threads) {
  if (threads == 1) {
    for (const BoxCopy& box : boxes) copy_on_host(box);
    return;
  }
  std::vector<std::thread> workers;
  workers.reserve(static_cast<std::size_t>(threads - 1));
  int started = 1;
  for (; started < threads; ++started) {
    const IndexRange share = split_range(bytes, threads, started);
    try {
      workers.emplace_back([boxes, share] { copy_share_on_host(boxes, share.begin, share.end); });
    } catch (const std::exception&) {  // no more threads to be had: this one takes the rest
      break;
    }
  }
  copy_share_on_host(boxes, 0, split_range(bytes, threads, 0).end);
  if (started < threads) copy_share_on_host(boxes, split_range(bytes, threads, started).begin, bytes);
  for (std::thread& worker : workers) worker.join();
}

/// The row-major tensor that `tensor` is packed as, at `data`.
[[nodiscard]] inline TensorView packed_view(const TensorView& tensor, std::byte* data) {
  TensorView out = tensor;
  out.strides = row_major_strides(tensor.shape);
  out.data = data;
  return out;
}

}  // namespace detail

/// Copies every element of `source` to the same index of `destination`: equal dtype and shape, any strides (see
/// make_box_copy), host memory, no shared bytes. Local, blocking. Throws InvalidArgument.
inline void copy_box(const TensorView& source, const TensorView& destination) {
  detail::check_on_host(source, "copy_box()");
  detail::check_on_host(destination, "copy_box()");
  detail::copy_on_host(make_box_copy(source, destination));
}

/// Copies all runs of a set whose table and data lie in host memory. Walks the boxes instead of the run iterators, with the
/// same result. Local, blocking. Throws InvalidArgument for device memory.
inline void copy_runs(const RunSet& runs, const PackOptions& options = {}) {
  if (runs.data_space() != MemorySpace::host || runs.table_space() != MemorySpace::host) {
    throw InvalidArgument(
        "copy_runs() reads and writes host memory, but these runs lie in device memory; use copy_runs_async()");
  }
  const std::span<const BoxCopy> boxes(runs.boxes(), static_cast<std::size_t>(runs.box_count()));
  std::int64_t bytes = 0;
  for (const BoxCopy& box : boxes) bytes += box.bytes();
  detail::copy_all_on_host(boxes, bytes, detail::useful_threads(bytes, options));
}

/// Bytes that `tensors` take when packed: their elements in row-major order, one tensor right behind the other, without
/// padding. Throws InvalidArgument for a shape that cannot be.
[[nodiscard]] inline std::size_t packed_size(std::span<const TensorView> tensors) {
  std::int64_t total = 0;
  for (const TensorView& tensor : tensors) {
    for (const std::int64_t size : tensor.shape) {
      if (size < 0)
        throw InvalidArgument(
            concat("a tensor to pack has the negative size ", size, " in shape ", to_string(tensor.shape)));
    }
    const auto elements = checked_numel(tensor.shape);
    const auto bytes = elements ? checked_mul(*elements, static_cast<std::int64_t>(size_of(tensor.dtype))) : std::nullopt;
    const auto next = bytes ? checked_add(total, *bytes) : std::nullopt;
    if (!next) {
      throw InvalidArgument(concat("the tensors to pack exceed 63 bits of bytes at one of ", name(tensor.dtype),
                                   " with shape ", to_string(tensor.shape)));
    }
    total = *next;
  }
  return static_cast<std::size_t>(total);
}

namespace detail {

inline void check_packed_size(std::span<const TensorView> tensors, std::size_t bytes) {
  const std::size_t needed = packed_size(tensors);
  if (bytes != needed) {
    throw InvalidArgument(concat(tensors.size(), " tensors take ", needed, " bytes when packed but the buffer has ", bytes,
                                 "; give one of packed_size(tensors) bytes"));
  }
}

/// Calls `copy(tensor, its packed form)` for each tensor.
template <class Copy>
void for_each_packed(std::span<const TensorView> tensors, std::byte* packed, Copy&& copy) {
  for (const TensorView& tensor : tensors) {
    copy(tensor, packed_view(tensor, packed));
    packed += tensor.nbytes();
  }
}

/// All tensors are checked before the first byte moves.
template <class MakeBox>
void pack_on_host(std::span<const TensorView> tensors, std::byte* packed, std::size_t bytes, const PackOptions& options,
                  MakeBox&& make_box) {
  const int threads = useful_threads(static_cast<std::int64_t>(bytes), options);
  std::vector<BoxCopy> boxes;
  boxes.reserve(tensors.size());
  for_each_packed(tensors, packed, [&](const TensorView& tensor, const TensorView& row_major) {
    boxes.push_back(make_box(tensor, row_major));
  });
  copy_all_on_host(boxes, static_cast<std::int64_t>(bytes), threads);
}

}  // namespace detail

/// Gathers tensors of any strides into one buffer of exactly `packed_size(tensors)` bytes, laid out as said there. Host
/// memory. Local, blocking; nothing is written when an argument is refused. Throws InvalidArgument.
inline void pack(std::span<const TensorView> tensors, std::span<std::byte> out, const PackOptions& options = {}) {
  for (const TensorView& tensor : tensors) detail::check_on_host(tensor, "pack()");
  detail::check_packed_size(tensors, out.size());
  detail::pack_on_host(tensors, out.data(), out.size(), options,
                       [](const TensorView& tensor, const TensorView& packed) { return make_box_copy(tensor, packed); });
}

/// Scatters what `pack` gathered into tensors of the same dtypes and shapes, whose strides may differ from those packed.
/// Host memory. Local, blocking; nothing is written when an argument is refused. Throws InvalidArgument.
inline void unpack(std::span<const std::byte> in, std::span<const TensorView> tensors, const PackOptions& options = {}) {
  for (const TensorView& tensor : tensors) detail::check_on_host(tensor, "unpack()");
  detail::check_packed_size(tensors, in.size());
  auto* const data = const_cast<std::byte*>(in.data());  // only read: the packed side is the source
  detail::pack_on_host(tensors, data, in.size(), options,
                       [](const TensorView& tensor, const TensorView& packed) { return make_box_copy(packed, tensor); });
}

MGROUPS_END_NAMESPACE
