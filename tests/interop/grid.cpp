// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// The C++ side of torch_test.py: saves or loads a set of tensors, whose elements tell their place, cut along both axes
// over thread ranks.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include <mgroups/checkpoint/load.hpp>
#include <mgroups/checkpoint/save.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/shard/sharded_tensor.hpp>
#include <mgroups/shard/state_dict.hpp>

namespace mg = mgroups;

namespace {

struct Tensor {
  const char* key;
  mg::DType dtype;
  mg::Dims shape;
};

// torch_test.py has the same list.
const std::vector<Tensor> tensors{
    {"decoder.fc1.weight", mg::DType::float32, {13, 10}},
    {"decoder.fc2.weight", mg::DType::bfloat16, {8, 12}},
    {"decoder.half", mg::DType::float16, {7, 5, 3}},
    {"decoder.ids", mg::DType::int64, {9}},
    {"decoder.small_ids", mg::DType::int32, {4, 4}},
    {"decoder.bytes", mg::DType::uint8, {6, 50}},
    {"decoder.mask", mg::DType::bool_, {3, 11}},
    {"scalar", mg::DType::float32, {}},
    {"empty", mg::DType::float32, {0, 4}},
    {"a key, with [odd] \"signs\" \xc3\xbc", mg::DType::float32, {2, 3}},
};

/// The element at `index` in row-major order; torch_test.py says the same.
void put_element(std::byte* at, mg::DType dtype, std::int64_t index) {
  const auto put = [&](auto value) { std::memcpy(at, &value, sizeof value); };
  switch (dtype) {
    case mg::DType::float32: return put(static_cast<float>(index));
    case mg::DType::bfloat16: return put(mg::bfloat16(static_cast<float>(index % 256)));
    case mg::DType::float16: return put(mg::float16(static_cast<float>(index % 2048)));
    case mg::DType::int64: return put(index + (std::int64_t{1} << 40));
    case mg::DType::int32: return put(static_cast<std::int32_t>(index - 5));
    case mg::DType::uint8: return put(static_cast<std::uint8_t>(index % 251));
    case mg::DType::bool_: return put(static_cast<std::uint8_t>(index % 3 == 0 ? 1 : 0));
    default: std::abort();
  }
}

struct Part {
  mg::Box box;
  std::vector<std::byte> bytes;
};

/// This rank's cell of a `rows` x `columns` grid over the first two axes; every element as it should be.
Part part_of(const Tensor& tensor, int rank, int rows, int columns) {
  Part part{mg::whole(tensor.shape), {}};
  const int parts[] = {rows, columns}, index[] = {rank % rows, rank / rows};
  for (int axis = 0; axis < std::min(2, tensor.shape.rank()); ++axis) {
    const mg::IndexRange range = mg::split_range(tensor.shape[axis], parts[axis], index[axis]);
    part.box.offsets[axis] = range.begin;
    part.box.sizes[axis] = range.size();
  }
  const std::size_t size = mg::size_of(tensor.dtype);
  part.bytes.resize(static_cast<std::size_t>(part.box.volume()) * size);
  const mg::Dims strides = mg::row_major_strides(tensor.shape);
  for (std::int64_t i = 0; i < part.box.volume(); ++i) {
    std::int64_t rest = i, global = 0;
    for (int axis = part.box.rank() - 1; axis >= 0; --axis) {
      global += (part.box.offsets[axis] + rest % part.box.sizes[axis]) * strides[axis];
      rest /= part.box.sizes[axis];
    }
    put_element(part.bytes.data() + static_cast<std::size_t>(i) * size, tensor.dtype, global);
  }
  return part;
}

/// Ranks beyond the axes that a tensor has hold copies.
mg::ReplicaId replica_of(const Tensor& tensor, int rank, int rows) {
  if (tensor.shape.rank() == 0) return rank;
  return tensor.shape.rank() == 1 ? rank / rows : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: grid write|read DIRECTORY ROWS COLUMNS\n";
    return 2;
  }
  const std::string verb = argv[1], directory = argv[2];
  const int rows = std::atoi(argv[3]), columns = std::atoi(argv[4]);
  try {
    const auto wrong = mg::run_threads(rows * columns, [&](auto& world) {
      std::vector<Part> parts;
      for (const Tensor& tensor : tensors) parts.push_back(part_of(tensor, world.rank(), rows, columns));
      std::vector<Part> target = parts;
      mg::ShardedStateDict<mg::TensorView> state;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (verb == "read") std::fill(target[i].bytes.begin(), target[i].bytes.end(), std::byte{0xa5});
        const mg::Dims& shape = target[i].box.sizes;
        state.add(mg::make_sharded_at(
            tensors[i].key, mg::TensorView{target[i].bytes.data(), tensors[i].dtype, shape, mg::row_major_strides(shape)},
            tensors[i].shape, target[i].box.offsets, {.replica_id = replica_of(tensors[i], world.rank(), rows)}));
      }
      if (verb == "write") {
        mg::save(directory, state, world);
        return 0;
      }
      mg::load(directory, state, world, {.allow_unexpected = false});
      int count = 0;
      for (std::size_t i = 0; i < tensors.size(); ++i) count += target[i].bytes == parts[i].bytes ? 0 : 1;
      return count;
    });
    int total = 0;
    for (const int count : wrong) total += count;
    if (total > 0) std::cerr << total << " parts differ\n";
    return total > 0 ? 1 : 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
