// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <mgroups/checkpoint/safetensors_reader.hpp>
#include <mgroups/core/box.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/tensor_view.hpp>

#include "split_rules.hpp"
#include "support/sha256.hpp"

/// A whole model in host memory: the truth that every layout is compared with.
struct Model {
  struct Tensor {
    std::string name;
    mgroups::DType dtype;
    mgroups::Dims shape;
    std::vector<std::byte> bytes;
    std::string sha256;

    mgroups::TensorView view() const {
      return {const_cast<std::byte*>(bytes.data()), dtype, shape, mgroups::row_major_strides(shape)};
    }
  };

  std::string source;
  std::vector<Tensor> tensors = {};
  std::int64_t layers = 0;
  std::uint64_t bytes = 0;

  void add(std::string name, mgroups::DType dtype, const mgroups::Dims& shape, std::vector<std::byte> values) {
    layers = std::max(layers, layer_number(name) + 1);
    bytes += values.size();
    const std::string sha256 = sha256_of(values);
    tensors.push_back({std::move(name), dtype, shape, std::move(values), sha256});
  }
};

/// A safetensors file, or a folder with a sharded model and its index.
inline Model read_model(const std::string& path) {
  Model model{.source = path};
  mgroups::SafetensorsReader stored(path);
  for (const auto& [name, tensor] : stored.model().tensors) {
    const mgroups::DType dtype = tensor.element_type(name);
    std::vector<std::byte> values(static_cast<std::size_t>(mgroups::numel(tensor.shape)) * mgroups::size_of(dtype));
    stored.read(name, mgroups::whole(tensor.shape),
                {values.data(), dtype, tensor.shape, mgroups::row_major_strides(tensor.shape)});
    model.add(name, dtype, tensor.shape, std::move(values));
  }
  return model;
}

/// A model of the shapes of all-MiniLM-L6-v2 (a BERT of 6 layers, hidden size 384) with random values: for machines
/// without a network.
inline Model generate_model() {
  Model model{.source = "generated, with the shapes of all-MiniLM-L6-v2"};
  std::mt19937_64 random(2026);
  const auto add = [&](const std::string& name, const mgroups::Dims& shape, mgroups::DType dtype = mgroups::DType::float32) {
    std::vector<std::byte> values(static_cast<std::size_t>(mgroups::numel(shape)) * mgroups::size_of(dtype));
    for (std::size_t at = 0; at < values.size(); at += 8) {
      const std::uint64_t value = random();
      std::memcpy(values.data() + at, &value, std::min<std::size_t>(8, values.size() - at));
    }
    model.add(name, dtype, shape, std::move(values));
  };
  const auto linear = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    add(name + ".weight", {out, in});
    add(name + ".bias", {out});
  };
  const auto norm = [&](const std::string& name) {
    add(name + ".weight", {384});
    add(name + ".bias", {384});
  };
  add("embeddings.position_ids", {1, 512}, mgroups::DType::int64);
  add("embeddings.word_embeddings.weight", {30522, 384});
  add("embeddings.position_embeddings.weight", {512, 384});
  add("embeddings.token_type_embeddings.weight", {2, 384});
  norm("embeddings.LayerNorm");
  for (int layer = 0; layer < 6; ++layer) {
    const std::string prefix = "encoder.layer." + std::to_string(layer);
    for (const char* part : {"query", "key", "value"}) linear(prefix + ".attention.self." + part, 384, 384);
    linear(prefix + ".attention.output.dense", 384, 384);
    norm(prefix + ".attention.output.LayerNorm");
    linear(prefix + ".intermediate.dense", 1536, 384);
    linear(prefix + ".output.dense", 384, 1536);
    norm(prefix + ".output.LayerNorm");
  }
  linear("pooler.dense", 384, 384);
  return model;
}
