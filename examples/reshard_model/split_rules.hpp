// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstdint>
#include <string_view>

#include <mgroups/core/box.hpp>

/// How Megatron splits a weight over its tensor-parallel group, told from the weight's name in the usual spellings (BERT,
/// GPT-2, Llama and their kin): column-parallel and vocabulary-parallel weights along axis 0, row-parallel ones along axis
/// 1; norms, biases of row-parallel layers, position and type embeddings are whole on every rank. -1 means whole.
inline int split_axis(std::string_view name, int rank) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (has("Norm") || has("norm") || has("ln_") || has("position") || has("token_type") || rank == 0) return -1;
  const bool bias = name.ends_with("bias");
  for (const std::string_view column : {"query", "key", "value", "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj",
                                        "intermediate.dense", "fc1", "c_fc", "c_attn"}) {
    if (has(column)) return 0;
  }
  for (const std::string_view row : {"output.dense", "o_proj", "out_proj", "down_proj", "fc2", "c_proj"}) {
    if (has(row)) return bias || rank < 2 ? -1 : 1;
  }
  for (const std::string_view vocabulary : {"word_embeddings", "embed_tokens", "wte", "lm_head"}) {
    if (has(vocabulary)) return 0;
  }
  return -1;
}

/// The number in `...layers.7.mlp...`, or -1 outside the layers.
inline std::int64_t layer_number(std::string_view name) {
  for (const std::string_view mark : {"layers.", "layer.", "h."}) {
    const auto at = name.find(mark);
    if (at == std::string_view::npos || (at > 0 && name[at - 1] != '.')) continue;
    std::int64_t number = -1;
    for (std::size_t i = at + mark.size(); i < name.size() && name[i] >= '0' && name[i] <= '9'; ++i) {
      number = (number < 0 ? 0 : number) * 10 + (name[i] - '0');
    }
    if (number >= 0) return number;
  }
  return -1;
}

/// The pipeline stage of a weight: layers in equal runs, embeddings on the first stage, what follows the layers on the last.
inline int stage_of(std::string_view name, std::int64_t layers, int stages) {
  const std::int64_t layer = layer_number(name);
  if (layer < 0)
    return name.find("embed") != std::string_view::npos || name.find("wte") != std::string_view::npos ? 0 : stages - 1;
  int stage = 0;
  while (mgroups::split_range(layers, stages, stage).end <= layer) ++stage;
  return stage;
}
