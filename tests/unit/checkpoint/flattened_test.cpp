// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/flattened.hpp>
#include <mgroups/checkpoint/load.hpp>
#include <mgroups/checkpoint/reader.hpp>
#include <mgroups/checkpoint/safetensors_reader.hpp>
#include <mgroups/comm/solo.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/shard/state_dict.hpp>

#include <doctest/doctest.h>

#include "support/fixtures.hpp"
#include "support/sentences.hpp"

namespace mg = mgroups;

TEST_CASE("flattened ranges: every element of every cell is found where Megatron's formula has it") {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const int rank = static_cast<int>(random() % 4);
    mg::Dims shape, parts, cell;
    for (int axis = 0; axis < rank; ++axis) {
      parts.push_back(static_cast<std::int64_t>(1 + random() % 3));
      cell.push_back(static_cast<std::int64_t>(1 + random() % 4));
      shape.push_back(parts[axis] * cell[axis]);
    }
    const std::int64_t length = mg::numel(cell);
    mg::Dims stored_shape = parts;
    stored_shape.push_back(length);
    mg::TensorEntry stored(mg::DType::float32, stored_shape);
    // Each cell is cut at random places.
    const std::int64_t cells = mg::numel(parts);
    std::vector<mg::Box> chunks;
    for (std::int64_t c = 0; c < cells; ++c) {
      std::set<std::int64_t> cuts{0, length};
      for (int i = 0; i < 3; ++i) cuts.insert(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(length + 1)));
      for (auto at = cuts.begin(); std::next(at) != cuts.end(); ++at) {
        mg::Dims offsets, sizes = mg::Dims::filled(rank, 1);
        std::int64_t rest = c;
        const mg::Dims strides = mg::row_major_strides(parts);
        for (int axis = 0; axis < rank; ++axis) {
          offsets.push_back(rest / strides[axis]);
          rest %= strides[axis];
        }
        offsets.push_back(*at);
        sizes.push_back(*std::next(at) - *at);
        chunks.push_back({offsets, sizes});
        stored.add_chunk(chunks.back(), {0, 0, 0});
      }
    }
    const auto pieces = mg::detail::flat_pieces(stored, shape);
    REQUIRE(pieces.has_value());
    CHECK(pieces->size() <= chunks.size() * static_cast<std::size_t>(2 * rank + 1));
    std::vector<int> seen(static_cast<std::size_t>(mg::numel(shape)));
    const mg::Dims strides = mg::row_major_strides(shape), cell_strides = mg::row_major_strides(cell);
    for (const auto& piece : *pieces) {
      const mg::Dims box_strides = mg::row_major_strides(piece.box.sizes);
      for (std::int64_t n = 0; n < piece.box.volume(); ++n) {
        // Element n of the box: its place in the tensor, and by the formula its place in its cell.
        std::int64_t global = 0, in_cell = 0, rest = n;
        for (int axis = 0; axis < rank; ++axis) {
          const std::int64_t index = piece.box.offsets[axis] + rest / box_strides[axis];
          rest %= box_strides[axis];
          global += index * strides[axis];
          in_cell += index % cell[axis] * cell_strides[axis];
          REQUIRE(index / cell[axis] == chunks[piece.chunk].offsets[axis]);
        }
        ++seen[static_cast<std::size_t>(global)];
        REQUIRE(in_cell == chunks[piece.chunk].offsets[rank] + piece.first + n);
      }
    }
    CHECK(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }));
  }
  mg::TensorEntry odd(mg::DType::float32, {2, 5});
  CHECK_FALSE(mg::detail::flat_pieces(odd, {4}).has_value());  // cells of 2 are stored as 5
  CHECK_FALSE(mg::detail::flat_pieces(odd, {3}).has_value());
  CHECK_FALSE(mg::detail::flat_pieces(odd, {4, 5}).has_value());
}

TEST_CASE("optimizer state of Megatron-Core 0.15 is loaded in its true shape under other layouts") {
  const auto folder = mgroups_test::fixture("mcore_distopt_0.15_tp1dp2_fully_sharded_model_space");
  if (!folder) return;
  mg::SafetensorsReader truth(*folder + "/truth.safetensors");
  const mg::CheckpointReader reader(*folder);
  int compared = 0;
  for (const auto& [key, shape] : reader.metadata().original_shapes) {
    // "optimizer.state.exp_avg.decoder.layers.mlp..." stands for "exp_avg/decoder.layers.N.mlp..." with the layers as axis
    // 0.
    const std::string prefix = "optimizer.state.", layers = ".decoder.layers.";
    if (!key.starts_with(prefix)) continue;
    std::string name = key.substr(prefix.size());
    const std::size_t dot = name.find('.');
    const std::string what = name.substr(0, dot);
    name = name.substr(dot + 1);
    const bool stacked = name.starts_with("decoder.layers.");
    CAPTURE(key);
    const std::int64_t count = stacked ? shape[0] : 1;
    std::vector<float> wanted;
    for (std::int64_t layer = 0; layer < count; ++layer) {
      std::string one = name;
      if (stacked) one.insert(std::string("decoder.layers.").size(), mg::concat(layer, "."));
      for (const auto& [from, to] : {std::pair{"self_attention.linear_qkv.layer_norm_", "input_layernorm."},
                                     std::pair{"mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm."}}) {
        const std::size_t at = one.find(from);
        if (at != std::string::npos && !truth.model().tensors.contains(what + "/" + one))
          one.replace(at, std::string(from).size(), to);
      }
      const auto found = truth.model().tensors.find(what + "/" + one);
      REQUIRE(found != truth.model().tensors.end());
      std::vector<float> values(static_cast<std::size_t>(mg::numel(found->second.shape)));
      truth.read(what + "/" + one, mg::whole(found->second.shape), mg::view_of(values, found->second.shape));
      wanted.insert(wanted.end(), values.begin(), values.end());
    }
    REQUIRE(static_cast<std::int64_t>(wanted.size()) == mg::numel(shape));
    for (const int ranks : {1, 2, 3}) {
      const auto parts = mg::run_threads(ranks, [&, &key = key, &shape = shape](auto& world) {
        const int axis = shape.rank() - 1;
        const mg::IndexRange range = mg::split_range(shape[axis], ranks, world.rank());
        mg::Dims local = shape, offset = mg::Dims::filled(shape.rank(), 0);
        local[axis] = range.end - range.begin;
        offset[axis] = range.begin;
        std::vector<float> values(static_cast<std::size_t>(mg::numel(local)), -1.0f);
        mg::ShardedStateDict<mg::TensorView> state;
        state.add(mg::make_sharded_at(key, mg::view_of(values, local), shape, offset));
        mg::load(*folder, state, world);
        const mg::Dims strides = mg::row_major_strides(shape), local_strides = mg::row_major_strides(local);
        std::int64_t wrong = 0;
        for (std::int64_t n = 0; n < mg::numel(local); ++n) {
          std::int64_t global = 0, rest = n;
          for (int i = 0; i < shape.rank(); ++i) {
            global += (offset[i] + rest / local_strides[i]) * strides[i];
            rest %= local_strides[i];
          }
          wrong += values[static_cast<std::size_t>(n)] != wanted[static_cast<std::size_t>(global)];
        }
        return wrong;
      });
      for (const std::int64_t wrong : parts) CHECK(wrong == 0);
    }
    ++compared;
  }
  CHECK(compared == 30);
}
