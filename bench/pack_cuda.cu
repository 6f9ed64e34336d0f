// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors

// Packing pieces of device memory that lie apart: CUB over the run iterators, against one device-to-device copy of the same
// bytes (the limit) and a loop of cudaMemcpyAsync (what code without a pack does). Prints one table of GB/s, counting every
// byte once.

#include <mgroups/pack/pack.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

namespace mg = mgroups;
using mg::detail::check_cuda;

namespace {

constexpr std::int64_t packed_bytes = std::int64_t{1} << 30;
constexpr std::int64_t boxes_in_table = 1024;
constexpr std::int64_t loop_copies =
    8192;  // the loop is timed on the first pieces alone: with all 4 Mi it would take a minute
constexpr int repetitions = 11;

std::byte* allocate(std::int64_t bytes) {
  void* data = nullptr;
  check_cuda(cudaMalloc(&data, static_cast<std::size_t>(bytes)), "cudaMalloc");
  return static_cast<std::byte*>(data);
}

class Timer {
 public:
  explicit Timer(cudaStream_t stream) : stream_(stream) {
    check_cuda(cudaEventCreate(&begin_), "cudaEventCreate");
    check_cuda(cudaEventCreate(&end_), "cudaEventCreate");
  }
  /// Median milliseconds.
  template <class Work>
  [[nodiscard]] double operator()(Work&& work) {
    std::vector<float> times;
    for (int i = 0; i < repetitions + 2; ++i) {
      float milliseconds = 0;
      check_cuda(cudaEventRecord(begin_, stream_), "cudaEventRecord");
      work();
      check_cuda(cudaEventRecord(end_, stream_), "cudaEventRecord");
      check_cuda(cudaEventSynchronize(end_), "cudaEventSynchronize");
      check_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
      if (i >= 2) times.push_back(milliseconds);
    }
    std::nth_element(times.begin(), times.begin() + repetitions / 2, times.end());
    return times[repetitions / 2];
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

double gigabytes_per_second(std::int64_t bytes, double milliseconds) {
  return static_cast<double>(bytes) / milliseconds / 1e6;
}

void run() {
  cudaDeviceProp device{};
  check_cuda(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  Timer time(stream);

  // The source holds each piece and a gap of the same size. Its content repeats after a length that divides no piece.
  std::byte* const source = allocate(2 * packed_bytes);
  std::byte* const packed = allocate(packed_bytes);
  std::vector<std::byte> pattern((std::size_t{16} << 20) - 13);
  std::uint64_t state = 1;
  for (std::byte& byte : pattern)
    byte = static_cast<std::byte>((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
  const auto period = static_cast<std::int64_t>(pattern.size());
  for (std::int64_t at = 0; at < 2 * packed_bytes; at += period) {
    const auto length = static_cast<std::size_t>(std::min(period, 2 * packed_bytes - at));
    check_cuda(cudaMemcpy(source + at, pattern.data(), length, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  // Every piece is checked at its first and last byte, on the host.
  std::vector<std::byte> result(static_cast<std::size_t>(packed_bytes));
  const auto correct = [&](std::int64_t piece) {
    check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    check_cuda(cudaMemcpy(result.data(), packed, result.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (std::int64_t at = 0; at < packed_bytes; at += piece) {
      for (const std::int64_t within : {std::int64_t{0}, piece / 2 + 1, piece - 1}) {
        if (result[static_cast<std::size_t>(at + within)] != pattern[static_cast<std::size_t>((2 * at + within) % period)])
          return false;
      }
    }
    return true;
  };

  std::printf("pack of %lld MiB on %s, GB/s, median of %d\n", static_cast<long long>(packed_bytes >> 20), device.name,
              repetitions);
  std::printf("%10s %12s %12s %12s %12s %10s %12s %8s\n", "piece", "one box", "1024 boxes", "memcpy D2D", "memcpy loop",
              "ours/D2D", "with upload", "bytes");
  for (const std::int64_t piece :
       {std::int64_t{256}, std::int64_t{1} << 10, std::int64_t{1} << 12, std::int64_t{1} << 16, std::int64_t{1} << 20}) {
    const std::int64_t pieces = packed_bytes / piece;
    const auto view = [&](std::byte* data, std::int64_t rows, std::int64_t stride) {
      return mg::TensorView{data, mg::DType::uint8, {rows, piece}, {stride, 1}, mg::MemorySpace::device, stream};
    };
    mg::RunTable one, many;
    one.add(view(source, pieces, 2 * piece), view(packed, pieces, piece));
    std::vector<mg::TensorView> tensors;
    for (std::int64_t box = 0; box < boxes_in_table; ++box) {
      const mg::IndexRange rows = mg::split_range(pieces, boxes_in_table, box);
      tensors.push_back(view(source + 2 * piece * rows.begin, rows.size(), 2 * piece));
      many.add(tensors.back(), view(packed + piece * rows.begin, rows.size(), piece));
    }
    bool equal = true;
    double ms_one = 0, ms_many = 0;
    const auto poison = [&] { check_cuda(cudaMemsetAsync(packed, 0xee, packed_bytes, stream), "cudaMemsetAsync"); };
    {
      const mg::DeviceRuns runs(one.runs(), stream);
      poison();
      ms_one = time([&] { runs.copy(); });
      equal = correct(piece);
    }
    {
      const mg::DeviceRuns runs(many.runs(), stream);
      poison();
      ms_many = time([&] { runs.copy(); });
      equal = correct(piece) && equal;
    }
    const mg::device_span<std::byte> out(packed, static_cast<std::size_t>(packed_bytes));
    poison();
    const double ms_upload = time([&] { mg::pack_async(tensors, out, stream); });
    equal = correct(piece) && equal;
    const double ms_copy = time([&] {
      check_cuda(cudaMemcpyAsync(packed, source, packed_bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
    });
    const std::int64_t copies = std::min(pieces, loop_copies);
    const double ms_loop = time([&] {
      for (std::int64_t i = 0; i < copies; ++i) {
        check_cuda(cudaMemcpyAsync(packed + i * piece, source + 2 * i * piece, static_cast<std::size_t>(piece),
                                   cudaMemcpyDeviceToDevice, stream),
                   "cudaMemcpyAsync");
      }
    });
    const double ours = gigabytes_per_second(packed_bytes, ms_one), copy = gigabytes_per_second(packed_bytes, ms_copy);
    char label[32];
    std::snprintf(label, sizeof label, piece < 1024 ? "%lld B" : "%lld KiB",
                  static_cast<long long>(piece < 1024 ? piece : piece >> 10));
    std::printf("%10s %12.1f %12.1f %12.1f %12.1f %10.2f %12.1f %8s\n", label, ours,
                gigabytes_per_second(packed_bytes, ms_many), copy, gigabytes_per_second(copies * piece, ms_loop),
                ours / copy, gigabytes_per_second(packed_bytes, ms_upload), equal ? "equal" : "WRONG");
    if (!equal) throw mg::DeviceError("the packed bytes are wrong");
  }
  check_cuda(cudaFree(source), "cudaFree");
  check_cuda(cudaFree(packed), "cudaFree");
  check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no device to run on");
    return 77;
  }
  try {
    run();
  } catch (const std::exception& error) {
    std::printf("bench failed: %s\n", error.what());
    return 1;
  }
  return 0;
}
