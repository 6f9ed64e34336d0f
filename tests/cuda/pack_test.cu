// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors

// The run iterators that tests/unit/pack checks on the host, handed to CUB on a device, against the same element loop. A
// program of its own with nothing but the toolkit behind it, so that it builds on a bare GPU machine. Exit status: 0 passed,
// 1 failed, 77 no device.

#include <mgroups/pack/pack.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../unit/pack/box_cases.hpp"

namespace mg = mgroups;
using box_cases::Layout;
using box_cases::Random;
using mg::detail::check_cuda;

namespace {

int failures = 0;

void check(bool condition, const std::string& what) {
  if (condition) return;
  ++failures;
  std::printf("FAILED: %s\n", what.c_str());
}

template <class E, class F>
void check_throws(F&& f, const std::string& what) {
  try {
    f();
  } catch (const E& error) {
    return check(std::strlen(error.what()) > 20, what + ": no sentence");
  } catch (const std::exception& error) {
    return check(false, what + ": another exception, " + error.what());
  }
  check(false, what + ": no exception");
}

class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes) : bytes_(bytes) { check_cuda(cudaMalloc(&data_, bytes + 1), "cudaMalloc"); }
  explicit DeviceBuffer(const std::vector<std::byte>& host) : DeviceBuffer(host.size()) { upload(host); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { static_cast<void>(cudaFree(data_)); }

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  void upload(const std::vector<std::byte>& host) {
    check_cuda(cudaMemcpy(data_, host.data(), host.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  [[nodiscard]] std::vector<std::byte> download() const {
    std::vector<std::byte> host(bytes_);
    check_cuda(cudaMemcpy(host.data(), data_, bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return host;
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

struct Stream {
  cudaStream_t handle = nullptr;
  Stream() { check_cuda(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  Stream(const Stream&) = delete;
  ~Stream() { static_cast<void>(cudaStreamDestroy(handle)); }
  void wait() const { check_cuda(cudaStreamSynchronize(handle), "cudaStreamSynchronize"); }
};

/// One table of many random boxes, copied twice by the same DeviceRuns.
void random_boxes(const Stream& stream) {
  Random random(20240607);
  for (int round = 0; round < 40; ++round) {
    std::vector<Layout> from, to;
    std::vector<std::size_t> from_base, to_base;
    std::size_t from_bytes = 0, to_bytes = 0;
    for (int i = 0; i < 100; ++i) {
      const mg::DType dtype = box_cases::random_dtype(random);
      const mg::Dims shape = box_cases::random_shape(random, random.chance(5) ? 300'000 : 3000);
      from.push_back(box_cases::random_layout(random, dtype, shape, true));
      to.push_back(box_cases::random_layout(random, dtype, shape, false));
      from_base.push_back(from_bytes);
      to_base.push_back(to_bytes);
      from_bytes += from.back().buffer_bytes;
      to_bytes += to.back().buffer_bytes;
    }
    std::vector<std::byte> source(from_bytes);
    box_cases::fill_with_positions(source, static_cast<std::uint64_t>(round));
    std::vector<std::byte> expected(to_bytes, std::byte{0xee});
    const DeviceBuffer device_source(source), device_destination(expected);
    mg::RunTable table(random.chance(40) ? random(1, 20'000) : mg::unlimited_run);
    for (std::size_t i = 0; i < from.size(); ++i) {
      box_cases::naive_copy(from[i].view(source.data() + from_base[i]), to[i].view(expected.data() + to_base[i]));
      table.add(from[i].view(device_source.data() + from_base[i], mg::MemorySpace::device),
                to[i].view(device_destination.data() + to_base[i], mg::MemorySpace::device));
    }
    const mg::DeviceRuns runs(table.runs(), stream.handle);
    table.clear();
    runs.copy();
    stream.wait();
    check(device_destination.download() == expected, "random boxes, round " + std::to_string(round));
    check_cuda(cudaMemset(device_source.data(), 0x55, from_bytes), "cudaMemset");
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    runs.copy();
    stream.wait();
    check(device_destination.download() != expected, "a second copy moves what is there now");
  }
}

void pack_and_unpack(const Stream& stream) {
  Random random(3);
  std::vector<std::vector<std::byte>> hosts, others;
  std::vector<Layout> layouts, other_layouts;
  for (int i = 0; i < 60; ++i) {
    const mg::DType dtype = box_cases::random_dtype(random);
    const mg::Dims shape = box_cases::random_shape(random, 50'000);
    layouts.push_back(box_cases::random_layout(random, dtype, shape, true));
    other_layouts.push_back(box_cases::random_layout(random, dtype, shape, false));
    hosts.emplace_back(layouts.back().buffer_bytes);
    box_cases::fill_with_positions(hosts.back(), static_cast<std::uint64_t>(i));
    others.emplace_back(other_layouts.back().buffer_bytes, std::byte{0xee});
  }
  std::vector<std::unique_ptr<DeviceBuffer>> devices, device_others;
  std::vector<mg::TensorView> host_views, views, other_views, host_other_views;
  // Every third tensor is produced late, by a stream of its own.
  const Stream producer;
  const DeviceBuffer ballast(std::size_t{256} << 20);
  for (int i = 0; i < 8; ++i)
    check_cuda(cudaMemsetAsync(ballast.data(), i, std::size_t{256} << 20, producer.handle), "cudaMemsetAsync");
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    devices.push_back(std::make_unique<DeviceBuffer>(hosts[i]));
    device_others.push_back(std::make_unique<DeviceBuffer>(others[i]));
    host_views.push_back(layouts[i].view(hosts[i].data()));
    host_other_views.push_back(other_layouts[i].view(others[i].data()));
    views.push_back(layouts[i].view(devices[i]->data(), mg::MemorySpace::device));
    other_views.push_back(other_layouts[i].view(device_others[i]->data(), mg::MemorySpace::device));
    if (i % 3 == 0) {
      check_cuda(cudaMemset(devices[i]->data(), 0, hosts[i].size()), "cudaMemset");
      check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
  }
  for (std::size_t i = 0; i < hosts.size(); i += 3) {
    views[i].stream = producer.handle;
    check_cuda(cudaMemsetAsync(ballast.data(), 1, std::size_t{256} << 20, producer.handle), "cudaMemsetAsync");
    check_cuda(
        cudaMemcpyAsync(devices[i]->data(), hosts[i].data(), hosts[i].size(), cudaMemcpyHostToDevice, producer.handle),
        "cudaMemcpyAsync");
  }
  const std::size_t bytes = mg::packed_size(views);
  std::vector<std::byte> expected(bytes);
  mg::pack(host_views, expected);
  mg::unpack(expected, host_other_views);
  const DeviceBuffer packed(std::vector<std::byte>(bytes, std::byte{0xee}));
  mg::pack_async(views, mg::device(packed.data(), bytes), stream.handle);
  mg::unpack_async(mg::device(packed.data(), bytes), other_views, stream.handle);
  stream.wait();
  check(packed.download() == expected, "pack_async equals pack, after the producers' streams");
  for (std::size_t i = 0; i < others.size(); ++i) {
    check(device_others[i]->download() == others[i], "unpack_async equals unpack, tensor " + std::to_string(i));
  }
}

/// More runs than one launch takes: a transpose of single bytes.
void many_runs(const Stream& stream) {
  const std::int64_t rows = 2311, columns = 4099;
  std::vector<std::byte> source(static_cast<std::size_t>(rows * columns)), expected(source.size());
  box_cases::fill_with_positions(source, 8);
  const DeviceBuffer from(source), to(std::vector<std::byte>(source.size(), std::byte{0xee}));
  const auto views = [&](std::byte* a, std::byte* b, mg::MemorySpace space, auto&& use) {
    use(mg::TensorView{a, mg::DType::uint8, {rows, columns}, {1, rows}, space},
        mg::TensorView{b, mg::DType::uint8, {rows, columns}, {columns, 1}, space});
  };
  views(source.data(), expected.data(), mg::MemorySpace::host, [](const auto& a, const auto& b) { mg::copy_box(a, b); });
  mg::RunTable table;
  views(from.data(), to.data(), mg::MemorySpace::device, [&](const auto& a, const auto& b) { table.add(a, b); });
  check(table.runs().run_count() > 2 * mg::detail::runs_per_launch, "the transpose needs several launches");
  mg::copy_runs_async(table.runs(), stream.handle);
  stream.wait();
  check(to.download() == expected, "several launches");
}

/// One run of more than 4 GiB beside small ones, where the device has room.
void long_run(const Stream& stream) {
  const std::size_t bytes = (std::size_t{1} << 32) + 4099;
  std::size_t available = 0, total = 0;
  check_cuda(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
  if (available < 3 * bytes) {
    std::printf("skipped: a run of more than 4 GiB (%.1f GiB free)\n", static_cast<double>(available) / (1 << 30));
    return;
  }
  const DeviceBuffer from(bytes), to(bytes);
  check_cuda(cudaMemset(from.data(), 0x11, bytes), "cudaMemset");
  check_cuda(cudaMemset(from.data() + bytes - 4099, 0x77, 4099), "cudaMemset");
  check_cuda(cudaMemset(to.data(), 0xee, bytes), "cudaMemset");
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  mg::RunTable table;
  const auto n = static_cast<std::int64_t>(bytes);
  table.add({from.data(), mg::DType::uint8, {n - 1}, {1}, mg::MemorySpace::device},
            {to.data(), mg::DType::uint8, {n - 1}, {1}, mg::MemorySpace::device});
  mg::copy_runs_async(table.runs(), stream.handle);
  stream.wait();
  std::vector<std::byte> tail(8198);
  check_cuda(cudaMemcpy(tail.data(), to.data() + bytes - tail.size(), tail.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::vector<std::byte> expected(tail.size(), std::byte{0x11});
  std::fill(expected.end() - 4099, expected.end(), std::byte{0x77});
  expected.back() = std::byte{0xee};
  check(tail == expected, "a run of more than 4 GiB");
}

void captured_graph(const Stream& stream) {
  std::vector<std::byte> source(64 * 100);
  box_cases::fill_with_positions(source, 2);
  const DeviceBuffer from(source), to(std::vector<std::byte>(64 * 50));
  mg::RunTable table;
  const mg::TensorView a{from.data(), mg::DType::uint8, {64, 50}, {100, 1}, mg::MemorySpace::device};
  const mg::TensorView b{to.data(), mg::DType::uint8, {64, 50}, {50, 1}, mg::MemorySpace::device};
  table.add(a, b);
  const mg::DeviceRuns runs(table.runs(), stream.handle);
  stream.wait();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  runs.copy();
  check_throws<mg::UnsupportedError>([&] { mg::copy_runs_async(table.runs(), stream.handle); }, "an upload while capturing");
  check_cuda(cudaStreamEndCapture(stream.handle, &graph), "cudaStreamEndCapture");
  check_cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  check_cuda(cudaGraphLaunch(executable, stream.handle), "cudaGraphLaunch");
  stream.wait();
  std::vector<std::byte> expected(64 * 50);
  for (std::size_t row = 0; row < 64; ++row) std::memcpy(&expected[row * 50], &source[row * 100], 50);
  check(to.download() == expected, "a copy replayed from a graph");
  static_cast<void>(cudaGraphExecDestroy(executable));
  static_cast<void>(cudaGraphDestroy(graph));
}

void refusals(const Stream& stream) {
  std::vector<float> host(6);
  const DeviceBuffer device(std::size_t{64});
  const std::vector<mg::TensorView> on_host{mg::view_of(host, {6})};
  const std::vector<mg::TensorView> on_device{{device.data(), mg::DType::float32, {6}, {1}, mg::MemorySpace::device}};
  check_throws<mg::InvalidArgument>([&] { mg::pack_async(on_host, mg::device(device.data() + 32, 24), stream.handle); },
                                    "a host tensor");
  check_throws<mg::InvalidArgument>([&] { mg::pack_async(on_device, mg::device(device.data() + 32, 23), stream.handle); },
                                    "a wrong size");
  check_throws<mg::InvalidArgument>([&] { mg::pack(on_device, std::as_writable_bytes(std::span(host))); },
                                    "device memory on the host");
  mg::RunTable table;
  std::vector<float> other(6);
  table.add(on_host[0], mg::view_of(other, {6}));
  check_throws<mg::InvalidArgument>([&] { mg::copy_runs_async(table.runs(), stream.handle); }, "a table of host data");
  mg::RunTable device_table;
  device_table.add(on_device[0], {device.data() + 32, mg::DType::float32, {6}, {1}, mg::MemorySpace::device});
  const mg::DeviceRuns runs(device_table.runs(), stream.handle);
  check_throws<mg::InvalidArgument>([&] { mg::copy_runs_async(runs.runs(), mg::device(device.data(), 1), stream.handle); },
                                    "too little scratch");
  check_throws<mg::DeviceError>([&] { mg::detail::StreamMemory(std::size_t{1} << 60, stream.handle); },
                                "more memory than there is");
  check(cudaGetLastError() == cudaSuccess, "a reported failure leaves no error behind");
  mg::pack_async({}, {}, stream.handle);
  mg::DeviceRuns(mg::RunSet{}, stream.handle).copy();
  stream.wait();
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no device to run on");
    return 77;
  }
  try {
    const Stream stream;
    random_boxes(stream);
    pack_and_unpack(stream);
    many_runs(stream);
    long_run(stream);
    captured_graph(stream);
    refusals(stream);
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  } catch (const std::exception& error) {
    check(false, error.what());
  }
  std::puts(failures == 0 ? "pack test: passed" : "pack test: FAILED");
  return failures == 0 ? 0 : 1;
}
