// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// Random models, saved under one random layout and loaded under another, by real thread ranks through real directories.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <mgroups/checkpoint/load.hpp>
#include <mgroups/checkpoint/save.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/shard/sharded_tensor.hpp>
#include <mgroups/shard/state_dict.hpp>

#include <doctest/doctest.h>

#include "support/indexed_tensor.hpp"
#include "support/temporary_directory.hpp"

namespace mg = mgroups;

namespace {

struct Layout {
  int tp = 1, pp = 1, dp = 1;
  int world() const { return tp * pp * dp; }
  int tp_rank(int rank) const { return rank % tp; }
  int dp_rank(int rank) const { return rank / tp % dp; }
  int pp_rank(int rank) const { return rank / (tp * dp); }
};

enum class Kind { column, row, stacked, replicated, flat, free };

struct Tensor {
  std::string key;
  std::uint64_t salt = 0;
  Kind kind = Kind::column;
  mg::DType dtype = mg::DType::float32;
  mg::Dims shape;  // global
};

struct Piece {
  const Tensor* tensor;
  mg::Box box;
  mg::ReplicaId replica;
  int prepended = 0;
};

int below(std::mt19937& random, int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }

std::vector<Tensor> random_model(std::mt19937& random) {
  const mg::DType dtypes[] = {mg::DType::float32, mg::DType::float16, mg::DType::bfloat16, mg::DType::int64,
                              mg::DType::int32,   mg::DType::uint8,   mg::DType::bool_,    mg::DType::complex128};
  std::vector<Tensor> model(static_cast<std::size_t>(1 + below(random, 8)));
  for (std::size_t i = 0; i < model.size(); ++i) {
    Tensor& tensor = model[i];
    tensor.kind = static_cast<Kind>(below(random, 6));
    tensor.key = "layers." + std::to_string(i) + ".w";
    tensor.salt = i + 1;
    tensor.dtype = dtypes[below(random, 8)];
    const int rank = tensor.kind == Kind::flat                                  ? 1
                     : tensor.kind == Kind::stacked || tensor.kind == Kind::row ? 2 + below(random, 2)
                     : tensor.kind == Kind::replicated                          ? below(random, 4)
                                                                                : 1 + below(random, 4);
    for (int axis = 0; axis < rank; ++axis) tensor.shape.push_back(below(random, 12) == 0 ? 0 : 1 + below(random, 9));
  }
  return model;
}

// Cut points of `size` into `parts`, anywhere: parts may be empty.
std::vector<std::int64_t> random_cuts(std::int64_t size, int parts, std::mt19937& random) {
  std::vector<std::int64_t> cuts{0, size};
  for (int i = 1; i < parts; ++i) cuts.push_back(size == 0 ? 0 : static_cast<std::int64_t>(random()) % (size + 1));
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

mg::Box slice(const mg::Dims& shape, int axis, mg::IndexRange range) {
  mg::Box box = mg::whole(shape);
  box.offsets[axis] = range.begin;
  box.sizes[axis] = range.size();
  return box;
}

/// What each rank holds of the model under a layout.
std::vector<std::vector<Piece>> distribute(const std::vector<Tensor>& model, const Layout& layout, std::mt19937& random) {
  std::vector<std::vector<Piece>> out(static_cast<std::size_t>(layout.world()));
  const auto give = [&](int rank, Piece piece) { out[static_cast<std::size_t>(rank)].push_back(std::move(piece)); };
  for (std::size_t t = 0; t < model.size(); ++t) {
    const Tensor& tensor = model[t];
    const int stage = static_cast<int>(t) % layout.pp;
    const auto cuts = tensor.kind == Kind::flat ? random_cuts(tensor.shape[0], layout.tp * layout.dp, random)
                                                : std::vector<std::int64_t>{};
    for (int rank = 0; rank < layout.world(); ++rank) {
      const int tp = layout.tp_rank(rank), dp = layout.dp_rank(rank);
      if (tensor.kind != Kind::stacked && layout.pp_rank(rank) != stage) continue;
      switch (tensor.kind) {
        case Kind::column:
        case Kind::row: {
          const int axis = tensor.kind == Kind::row ? 1 : 0;
          give(rank, {&tensor, slice(tensor.shape, axis, mg::split_range(tensor.shape[axis], layout.tp, tp)), {0, 0, dp}});
          break;
        }
        case Kind::stacked: {
          const mg::IndexRange layers = mg::split_range(tensor.shape[0], layout.pp, layout.pp_rank(rank));
          for (std::int64_t layer = layers.begin; layer < layers.end; ++layer) {
            mg::Box box = slice(tensor.shape, 1, mg::split_range(tensor.shape[1], layout.tp, tp));
            box.offsets[0] = layer;
            box.sizes[0] = 1;
            give(rank, {&tensor, box, {0, 0, dp}, 1});
          }
          break;
        }
        case Kind::replicated: give(rank, {&tensor, mg::whole(tensor.shape), {0, tp, dp}}); break;
        case Kind::flat: {
          const auto part = static_cast<std::size_t>(tp + layout.tp * dp);
          give(rank, {&tensor, {{cuts[part]}, {cuts[part + 1] - cuts[part]}}, 0});
          break;
        }
        case Kind::free: break;
      }
    }
    if (tensor.kind == Kind::free) {
      // Straight cuts at random places, each cell on random ranks, one of them the main one.
      std::vector<mg::Box> cells{mg::whole(tensor.shape)};
      for (int cut = below(random, 6); cut > 0; --cut) {
        mg::Box& cell = cells[random() % cells.size()];
        const int axis = below(random, tensor.shape.rank());
        if (cell.sizes[axis] < 2) continue;
        mg::Box rest = cell;
        const std::int64_t at = 1 + static_cast<std::int64_t>(random()) % (cell.sizes[axis] - 1);
        rest.offsets[axis] += at;
        rest.sizes[axis] -= at;
        cell.sizes[axis] = at;
        cells.push_back(rest);
      }
      for (const mg::Box& cell : cells) {
        const int main = below(random, layout.world());
        for (int rank = 0; rank < layout.world(); ++rank) {
          if (rank == main) {
            give(rank, {&tensor, cell, 0});
          } else if (below(random, 3) == 0) {
            give(rank, {&tensor, cell, 1 + rank});
          }
        }
      }
    }
  }
  return out;
}

/// A rank's tensors and the state dict over them.
struct RankState {
  std::deque<IndexedTensor> tensors;
  mg::ShardedStateDict<mg::TensorView> state;

  RankState(const std::vector<Piece>& pieces, bool strided, bool filled, std::mt19937& random) {
    for (const Piece& piece : pieces) {
      mg::Dims local;
      for (int axis = piece.prepended; axis < piece.box.rank(); ++axis) local.push_back(piece.box.sizes[axis]);
      tensors.push_back(IndexedTensor::random(piece.tensor->dtype, local, strided, random));
      if (filled) tensors.back().fill(piece.tensor->salt, piece.box, piece.tensor->shape);
      state.add(mg::make_sharded_at(piece.tensor->key, tensors.back().view(), piece.tensor->shape, piece.box.offsets,
                                    {.replica_id = piece.replica, .prepend_axis_num = piece.prepended}));
    }
  }
};

}  // namespace

TEST_CASE("any layout loads what any other has saved") {
  const char* wished = std::getenv("MGROUPS_PROPERTY_CASES");
  const int cases = wished != nullptr ? std::atoi(wished) : 1000;
  REQUIRE(cases > 0);
  const TemporaryDirectory directory;
  std::map<std::string, int> seen;
  std::int64_t elements = 0;

  for (int number = 0; number < cases; ++number) {
    CAPTURE(number);
    std::mt19937 random(static_cast<unsigned>(number));
    const std::vector<Tensor> model = random_model(random);
    const int sizes[] = {1, 2, 3, 4};
    const auto random_layout = [&] {
      Layout layout;
      do {
        layout = {sizes[below(random, 4)], sizes[below(random, 3)], sizes[below(random, 3)]};
      } while (layout.world() > 8);
      if (below(random, 8) == 0) layout = {7, 1, 1};
      return layout;
    };
    const Layout writing = random_layout(), reading = random_layout();
    const auto written = distribute(model, writing, random), wanted = distribute(model, reading, random);
    const bool strided_source = below(random, 3) == 0, strided_target = below(random, 3) == 0;
    const std::string path = directory / std::to_string(number % 7);

    const auto reports = mg::run_threads(writing.world(), [&](auto& world) {
      std::mt19937 mine(static_cast<unsigned>(number * 64 + world.rank()));
      const RankState rank(written[static_cast<std::size_t>(world.rank())], strided_source, true, mine);
      return mg::save(path, rank.state, world);
    });
    const auto has = [](const std::vector<std::vector<Piece>>& side, const Tensor& tensor) {
      return std::any_of(side.begin(), side.end(), [&](const auto& pieces) {
        return std::any_of(pieces.begin(), pieces.end(), [&](const Piece& piece) { return piece.tensor == &tensor; });
      });
    };
    std::uint64_t bytes = 0, model_bytes = 0;
    std::vector<std::string> missing;  // a stack of no layers is on no rank
    for (const mg::SaveReport& report : reports) bytes += report.bytes_written;
    for (const Tensor& tensor : model) {
      if (has(written, tensor))
        model_bytes += static_cast<std::uint64_t>(mg::numel(tensor.shape)) * mg::size_of(tensor.dtype);
      if (has(wanted, tensor) && !has(written, tensor)) missing.push_back(tensor.key);
    }
    REQUIRE(bytes == model_bytes);

    const auto wrong = mg::run_threads(reading.world(), [&](auto& world) {
      std::mt19937 mine(static_cast<unsigned>(number * 64 + 32 + world.rank()));
      const auto& pieces = wanted[static_cast<std::size_t>(world.rank())];
      const RankState rank(pieces, strided_target, false, mine);
      const mg::LoadOptions options{.allow_missing = true, .shared_reads = static_cast<mg::ReadSharing>(number % 3)};
      const mg::LoadReport report = mg::load(path, rank.state, world, options);
      std::int64_t count = report.missing == missing ? 0 : 1;
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        count += rank.tensors[i].count_wrong(pieces[i].tensor->salt, pieces[i].box, pieces[i].tensor->shape);
      }
      return count;
    });
    for (const std::int64_t count : wrong) REQUIRE(count == 0);

    const auto any_piece = [&](auto&& is) {
      for (const auto* side : {&written, &wanted}) {
        for (const auto& pieces : *side) {
          if (std::any_of(pieces.begin(), pieces.end(), is)) return true;
        }
      }
      return false;
    };
    for (const Tensor& tensor : model) elements += mg::numel(tensor.shape);
    seen["tp"] += writing.tp > 1 || reading.tp > 1;
    seen["pp"] += writing.pp > 1 || reading.pp > 1;
    seen["dp"] += writing.dp > 1 || reading.dp > 1;
    seen["strided"] += strided_source || strided_target;
    seen["uneven"] += any_piece([&](const Piece& p) {
      return p.tensor->kind == Kind::flat || p.tensor->kind == Kind::free ||
             (p.tensor->kind == Kind::column &&
              (p.tensor->shape[0] % writing.tp != 0 || p.tensor->shape[0] % reading.tp != 0));
    });
    seen["empty"] += any_piece([](const Piece& p) { return p.box.empty(); });
    seen["prepended"] += any_piece([](const Piece& p) { return p.prepended > 0; });
    seen["replicated"] += any_piece([](const Piece& p) { return !p.replica.is_main(); });
    seen["0-d"] += any_piece([](const Piece& p) { return p.box.rank() == 0; });
  }
  for (const char* kind : {"tp", "pp", "dp", "strided", "uneven", "empty", "prepended", "replicated", "0-d"}) {
    CAPTURE(kind);
    if (cases >= 100) CHECK(seen[kind] * 10 >= cases);
  }
  MESSAGE(cases << " layout pairs, " << elements << " elements, 0 wrong");
}
