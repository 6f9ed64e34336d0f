// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#if !defined(__CUDACC__)
#error "mgroups/pack/pack.cuh is compiled by nvcc; host code includes mgroups/pack/pack.hpp"
#endif

#include <cuda_runtime_api.h>

#if CUDART_VERSION < 12040
#error "mgroups/pack/pack.cuh needs the CUDA Toolkit 12.4 or newer"
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cub/device/device_memcpy.cuh>

#include <mgroups/core/error.hpp>
#include <mgroups/core/memory.hpp>
#include <mgroups/core/tensor_view.hpp>
#include <mgroups/pack/box_copy.hpp>
#include <mgroups/pack/pack.hpp>
#include <mgroups/pack/runs.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// Throws DeviceError when `status`, returned by the function `api`, is a failure. Resets the runtime's record of it.
inline void check_cuda(cudaError_t status, std::string_view api) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw DeviceError(concat(api, " failed with ", cudaGetErrorName(status), ": ", cudaGetErrorString(status)),
                    {.verb = std::string(api)});
}

/// Runs of one launch. CUB takes scratch memory per run, and before CCCL 3.0 it counted runs in 32 bits.
inline constexpr std::int64_t runs_per_launch = std::int64_t{1} << 22;

/// Device memory that is taken and given back in the order of a stream.
class StreamMemory {
 public:
  StreamMemory(std::size_t bytes, cudaStream_t stream) : stream_(stream) {
    if (bytes > 0) check_cuda(cudaMallocAsync(&data_, bytes, stream), "cudaMallocAsync");
  }
  StreamMemory(StreamMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)), stream_(other.stream_) {}
  StreamMemory& operator=(StreamMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~StreamMemory() {
    if (data_ != nullptr) static_cast<void>(cudaFreeAsync(data_, stream_));
  }
  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }
  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }

 private:
  void* data_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

/// Makes later work of `stream` wait for what `other` holds now.
inline void order_after(cudaStream_t stream, cudaStream_t other) {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  const cudaError_t recorded = cudaEventRecord(event, other);
  const cudaError_t waits = recorded == cudaSuccess ? cudaStreamWaitEvent(stream, event, 0) : cudaSuccess;
  static_cast<void>(cudaEventDestroy(event));  // released once it has happened
  check_cuda(recorded, "cudaEventRecord");
  check_cuda(waits, "cudaStreamWaitEvent");
}

inline void check_on_device(std::span<const TensorView> tensors, std::string_view verb) {
  for (const TensorView& tensor : tensors) {
    if (tensor.space != MemorySpace::device) {
      throw InvalidArgument(concat(verb, " reads and writes device memory, but a tensor of shape ", to_string(tensor.shape),
                                   " lies in host memory; pack/pack.hpp has the copy for it"));
    }
  }
}

inline void order_after_tensors(cudaStream_t stream, std::span<const TensorView> tensors) {
  std::vector<void*> seen;
  for (const TensorView& tensor : tensors) {
    if (tensor.stream == nullptr || tensor.stream == static_cast<void*>(stream)) continue;
    if (std::find(seen.rbegin(), seen.rend(), tensor.stream) != seen.rend()) continue;
    seen.push_back(tensor.stream);
    order_after(stream, static_cast<cudaStream_t>(tensor.stream));
  }
}

}  // namespace detail

/// Bytes of scratch device memory that `copy_runs_async` needs for this set; grows with the number of runs, up to about 120
/// MB. Throws DeviceError.
[[nodiscard]] inline std::size_t copy_runs_scratch_size(const RunSet& runs) {
  std::size_t bytes = 0;
  const auto count = static_cast<std::uint32_t>(std::min(runs.run_count(), detail::runs_per_launch));
  detail::check_cuda(cub::DeviceMemcpy::Batched(nullptr, bytes, runs.sources(), runs.destinations(), runs.sizes(), count),
                     "cub::DeviceMemcpy::Batched");
  return bytes;
}

/// Copies all runs of a set whose table and data lie in memory of the current device. Local; ordered on `stream`, neither
/// allocates nor synchronises, may be captured into a graph. `scratch` holds at least `copy_runs_scratch_size(runs)` bytes
/// and is in use until the stream has passed. CUB copies runs of up to 128 bytes byte by byte and asks the iterators for
/// every byte, longer ones by a warp or by many blocks: a transpose is far slower than a slice. Throws InvalidArgument,
/// DeviceError.
inline void copy_runs_async(const RunSet& runs, device_span<std::byte> scratch, cudaStream_t stream) {
  if (runs.run_count() == 0) return;
  if (runs.data_space() != MemorySpace::device || runs.table_space() != MemorySpace::device) {
    throw InvalidArgument(
        "copy_runs_async() needs runs whose table and data lie in device memory; DeviceRuns uploads a table");
  }
  if (const std::size_t needed = copy_runs_scratch_size(runs); scratch.size() < needed) {
    throw InvalidArgument(concat("copy_runs_async() needs ", needed, " bytes of scratch memory for ", runs.run_count(),
                                 " runs but was given ", scratch.size(), "; ask copy_runs_scratch_size()"));
  }
  std::size_t scratch_bytes = scratch.size();
  for (std::int64_t first = 0; first < runs.run_count(); first += detail::runs_per_launch) {
    const auto count = static_cast<std::uint32_t>(std::min(runs.run_count() - first, detail::runs_per_launch));
    detail::check_cuda(cub::DeviceMemcpy::Batched(scratch.data(), scratch_bytes, runs.sources() + first,
                                                  runs.destinations() + first, runs.sizes() + first, count, stream),
                       "cub::DeviceMemcpy::Batched");
  }
}

/// A run table in device memory, with its scratch memory: made once, copied as often as the same tensors move. Move-only.
class DeviceRuns {
 public:
  /// Uploads the table of `runs`, which lies in host memory and describes data of the current device, in the order of
  /// `stream`; all later work of this object is ordered on that stream too. The table may change on return. No
  /// synchronisation is asked for, but the driver may itself wait for earlier work of the stream while it stages a table of
  /// more than 64 KiB (150 boxes). Throws InvalidArgument, DeviceError, and UnsupportedError while the stream is being
  /// captured.
  DeviceRuns(const RunSet& runs, cudaStream_t stream) : runs_(runs), memory_(0, stream) {
    if (runs.run_count() == 0) return;
    if (runs.data_space() != MemorySpace::device || runs.table_space() != MemorySpace::host) {
      throw InvalidArgument(
          "DeviceRuns uploads a table from host memory that describes device memory; copy_runs() copies on the host");
    }
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    detail::check_cuda(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing");
    if (capture != cudaStreamCaptureStatusNone) {
      throw UnsupportedError(
          "a run table cannot be uploaded while its stream is being captured; make DeviceRuns before, capture its copy()");
    }
    const std::size_t boxes_bytes = static_cast<std::size_t>(runs.box_count()) * sizeof(BoxCopy);
    const std::size_t sums_bytes = (static_cast<std::size_t>(runs.box_count()) + 1) * sizeof(std::int64_t);
    scratch_bytes_ = copy_runs_scratch_size(runs);
    memory_ = detail::StreamMemory(boxes_bytes + sums_bytes + scratch_bytes_, stream);
    std::byte* const sums = memory_.data() + boxes_bytes;
    scratch_ = sums + sums_bytes;
    detail::check_cuda(cudaMemcpyAsync(memory_.data(), runs.boxes(), boxes_bytes, cudaMemcpyHostToDevice, stream),
                       "cudaMemcpyAsync");
    detail::check_cuda(cudaMemcpyAsync(sums, runs.first_run(), sums_bytes, cudaMemcpyHostToDevice, stream),
                       "cudaMemcpyAsync");
    runs_ = runs.with_device_table(reinterpret_cast<const BoxCopy*>(memory_.data()),
                                   reinterpret_cast<const std::int64_t*>(sums));
  }

  /// Copies all runs. Local, does not block, ordered on the stream. Throws DeviceError.
  void copy() const { copy_runs_async(runs_, {scratch_, scratch_bytes_}, memory_.stream()); }

  /// The set with its table in device memory, for kernels of your own on the same stream.
  [[nodiscard]] const RunSet& runs() const noexcept { return runs_; }

 private:
  RunSet runs_;
  detail::StreamMemory memory_;
  std::byte* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
};

/// Uploads the table of `runs`, copies, and frees the table, all in the order of `stream` (see DeviceRuns). Local, does not
/// block.
inline void copy_runs_async(const RunSet& runs, cudaStream_t stream) { DeviceRuns(runs, stream).copy(); }

namespace detail {

template <class Add>
void pack_on_device(std::span<const TensorView> tensors, std::byte* packed, cudaStream_t stream, Add&& add) {
  RunTable table;
  table.reserve(tensors.size());
  for_each_packed(tensors, packed,
                  [&](const TensorView& tensor, const TensorView& row_major) { add(table, tensor, row_major); });
  order_after_tensors(stream, tensors);
  copy_runs_async(table.runs(), stream);
}

}  // namespace detail

/// Gathers tensors in memory of the current device into one buffer there of exactly `packed_size(tensors)` bytes, as `pack`
/// does. Local, does not block. Ordered on `stream`, and after the present work of each tensor's own stream; a null one adds
/// nothing. Throws what DeviceRuns does, with nothing enqueued when an argument is refused.
inline void pack_async(std::span<const TensorView> tensors, device_span<std::byte> out, cudaStream_t stream) {
  detail::check_on_device(tensors, "pack_async()");
  detail::check_packed_size(tensors, out.size());
  detail::pack_on_device(
      tensors, out.data(), stream,
      [](RunTable& table, const TensorView& tensor, const TensorView& packed) { table.add(tensor, packed); });
}

/// Scatters what `pack_async` or `pack` gathered; ordered as pack_async is. Work of other streams that reads the tensors has
/// to wait for `stream`.
inline void unpack_async(device_span<const std::byte> in, std::span<const TensorView> tensors, cudaStream_t stream) {
  detail::check_on_device(tensors, "unpack_async()");
  detail::check_packed_size(tensors, in.size());
  auto* const data = const_cast<std::byte*>(in.data());  // only read: the packed side is the source
  detail::pack_on_device(tensors, data, stream, [](RunTable& table, const TensorView& tensor, const TensorView& packed) {
    table.add(packed, tensor);
  });
}

MGROUPS_END_NAMESPACE
