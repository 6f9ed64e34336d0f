// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// Splits a model over tensor, pipeline and data parallel ranks by Megatron's rules, saves it as a torch_dist checkpoint
// and loads it under other layouts. Every tensor is then compared with the source, bit for bit.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <list>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <mgroups/mgroups.hpp>

#include "model.hpp"
#include "split_rules.hpp"
#include "support/progress.hpp"
#include "support/raw_file_speed.hpp"
#include "support/sha256.hpp"

namespace mg = mgroups;

namespace {

struct Layout {
  int tp, pp, dp;
  int ranks() const { return tp * pp * dp; }
  std::string text() const {
    return mg::concat("tp", tp, pp > 1 ? mg::concat(" x pp", pp) : "", dp > 1 ? mg::concat(" x dp", dp) : "");
  }
};

struct Result {
  std::string verb;
  Layout layout;
  std::uint64_t bytes = 0;  ///< moved between files and memory: each data-parallel rank loads a copy
  double seconds = 0;
  double raw_seconds = 0;
  std::size_t tensors_equal = 0;
};

/// One rank's share of the model, in memory of its own, and what it is in the checkpoint.
class RankModel {
 public:
  template <mg::group_context Context>
  RankModel(const Model& model, const Context& context) {
    const int tp = mg::get_pg_size<mg::TPTag>(context), tp_rank = mg::get_pg_rank<mg::TPTag>(context);
    const int pp = mg::get_pg_size<mg::PPTag>(context), pp_rank = mg::get_pg_rank<mg::PPTag>(context);
    for (const Model::Tensor& source : model.tensors) {
      if (stage_of(source.name, model.layers, pp) != pp_rank) continue;
      const int axis = split_axis(source.name, source.shape.rank());
      Part part{.source = &source, .box = mg::whole(source.shape)};
      if (axis >= 0) {
        const mg::IndexRange range = mg::split_range(source.shape[axis], tp, tp_rank);
        part.box.offsets[axis] = range.begin;
        part.box.sizes[axis] = range.size();
      }
      part.bytes.resize(static_cast<std::size_t>(part.box.volume()) * mg::size_of(source.dtype));
      parts_.push_back(std::move(part));
      const mg::TensorView local = parts_.back().view();
      state_.add(axis < 0 ? mg::make_sharded_tensor_for_checkpoint(source.name, local, context)
                          : mg::make_tp_sharded_tensor_for_checkpoint(source.name, local, axis, context,
                                                                      {.tp_global_size = source.shape[axis]}));
    }
  }

  const mg::ShardedStateDict<mg::TensorView>& state() const { return state_; }

  void copy_from_model() {
    for (Part& part : parts_) mg::copy_box(part.source->view().part(part.box), part.view());
  }
  /// Puts this rank's parts where they belong in whole tensors, in the order of the model's.
  void copy_to(const Model& model, std::vector<std::vector<std::byte>>& whole) const {
    for (const Part& part : parts_) {
      mg::TensorView target = part.source->view();
      target.data = whole[static_cast<std::size_t>(part.source - model.tensors.data())].data();
      mg::copy_box(part.view(), target.part(part.box));
    }
  }

 private:
  struct Part {
    const Model::Tensor* source;
    mg::Box box;
    std::vector<std::byte> bytes = {};

    mg::TensorView view() const {
      return {const_cast<std::byte*>(bytes.data()), source->dtype, box.sizes, mg::row_major_strides(box.sizes)};
    }
  };

  std::list<Part> parts_;
  mg::ShardedStateDict<mg::TensorView> state_;
};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

template <mg::communicator Comm>
auto context_of(Comm& world, const Layout& layout) {
  return mg::make_context(world,
                          mg::ProcessGrid{"tp-dp-pp", {.tp = layout.tp, .dp = layout.dp, .pp = layout.pp}, world.size()});
}

Result save_model(const Model& model, const Layout& layout, const std::string& path, Progress& progress) {
  const auto seconds = mg::run_threads(layout.ranks(), [&](auto& world) {
    const auto context = context_of(world, layout);
    RankModel rank(model, context);
    rank.copy_from_model();
    world.barrier();
    const auto start = Clock::now();
    mg::save(path, rank.state(), context, {.progress = &progress.bytes()});
    return seconds_since(start);
  });
  return {"save", layout, model.bytes, *std::max_element(seconds.begin(), seconds.end())};
}

Result load_model(const Model& model, const Layout& layout, const std::string& path, Progress& progress) {
  // Each data-parallel copy of the model is put together apart, so that every rank's memory is looked at.
  std::vector<std::vector<std::vector<std::byte>>> copies(static_cast<std::size_t>(layout.dp));
  for (auto& copy : copies) {
    for (const Model::Tensor& tensor : model.tensors) copy.emplace_back(tensor.bytes.size(), std::byte{0xa5});
  }
  std::vector<std::vector<std::size_t>> equal(copies.size(), std::vector<std::size_t>(model.tensors.size(), 0));
  const auto seconds = mg::run_threads(layout.ranks(), [&](auto& world) {
    const auto context = context_of(world, layout);
    RankModel rank(model, context);
    world.barrier();
    const auto start = Clock::now();
    mg::load(path, rank.state(), context, {.allow_unexpected = false, .progress = &progress.bytes()});
    const double taken = seconds_since(start);

    // Ranks that hold a tensor whole would write the same bytes at once: one after the other they may.
    auto& copy = copies[static_cast<std::size_t>(mg::get_pg_rank<mg::DPTag>(context))];
    for (int turn = 0; turn < layout.tp; ++turn) {
      if (mg::get_pg_rank<mg::TPTag>(context) == turn) rank.copy_to(model, copy);
      world.barrier();
    }
    for (std::size_t i = static_cast<std::size_t>(world.rank()); i < model.tensors.size() * copies.size();
         i += static_cast<std::size_t>(world.size())) {
      const std::size_t which = i / model.tensors.size(), tensor = i % model.tensors.size();
      equal[which][tensor] = sha256_of(copies[which][tensor]) == model.tensors[tensor].sha256 ? 1 : 0;
    }
    return taken;
  });
  Result result{"load", layout, model.bytes * static_cast<std::uint64_t>(layout.dp),
                *std::max_element(seconds.begin(), seconds.end())};
  for (std::size_t tensor = 0; tensor < model.tensors.size(); ++tensor) {
    result.tensors_equal +=
        std::all_of(equal.begin(), equal.end(), [&](const auto& copy) { return copy[tensor] == 1; }) ? 1 : 0;
  }
  return result;
}

void print_table(const Model& model, const std::vector<Result>& results) {
  std::printf("%s: %zu tensors, %.1f MB\n\n", model.source.c_str(), model.tensors.size(),
              static_cast<double>(model.bytes) / 1e6);
  std::printf("%-6s %-16s %5s %9s %7s %9s  %s\n", "", "layout", "ranks", "seconds", "GB/s", "raw GB/s",
              "tensors equal to the source");
  for (const Result& result : results) {
    const double gigabytes = static_cast<double>(result.bytes) / 1e9;
    std::printf("%-6s %-16s %5d %9.3f %7.2f %9.2f  ", result.verb.c_str(), result.layout.text().c_str(),
                result.layout.ranks(), result.seconds, gigabytes / result.seconds, gigabytes / result.raw_seconds);
    if (result.verb == "load") std::printf("%zu of %zu", result.tensors_equal, model.tensors.size());
    std::printf("\n");
  }
  std::printf("\nraw: the same number of bytes written and synced, or read, without any format\n");
}

nlohmann::json to_json(const Model& model, const std::string& path, const std::vector<Result>& results) {
  nlohmann::json out{
      {"model", model.source}, {"checkpoint", path}, {"tensors", model.tensors.size()}, {"bytes", model.bytes}};
  for (const Result& result : results) {
    nlohmann::json row{{"verb", result.verb},
                       {"layout", {{"tp", result.layout.tp}, {"pp", result.layout.pp}, {"dp", result.layout.dp}}},
                       {"ranks", result.layout.ranks()},
                       {"bytes", result.bytes},
                       {"seconds", result.seconds},
                       {"raw_seconds", result.raw_seconds}};
    if (result.verb == "load") row["tensors_equal"] = result.tensors_equal;
    out["steps"].push_back(row);
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Saves a model from one parallel layout and loads it into others, bit for bit."};
  std::string path, work = "build/run";
  bool generate = false, json = false;
  app.add_option("model", path, "a .safetensors file, or a folder with a sharded model and its index");
  app.add_flag("--generate", generate, "use a generated model of the shapes of all-MiniLM-L6-v2");
  app.add_option("--work", work, "where the checkpoint goes")->capture_default_str();
  app.add_flag("--json", json, "print the result as JSON");
  app.footer(
      "Examples:\n  reshard_model model.safetensors\n  reshard_model --generate --json\n\n"
      "Exit status: 0 all tensors equal, 1 a tensor differs or something failed, 2 wrong usage.");
  try {
    app.parse(argc, argv);
    if (path.empty() != generate) throw CLI::ValidationError("give a model or --generate, and not both");
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  try {
    const Model model = generate ? generate_model() : read_model(path);
    mg::posix_file_system().make_directories(work);
    const std::string checkpoint = mg::join_path(work, "checkpoint");
    const Layout saved{.tp = 2, .pp = 1, .dp = 2};
    const std::vector<Layout> loaded{{4, 1, 1}, {1, 2, 2}, {3, 1, 1}};
    std::vector<Result> results;
    const auto step = [&](const char* verb, const Layout& layout, auto&& run) {
      if (!json) std::fprintf(stderr, "%s as %s on %d ranks ...\n", verb, layout.text().c_str(), layout.ranks());
      Progress progress(verb, model.bytes * static_cast<std::uint64_t>(std::string_view(verb) == "load" ? layout.dp : 1));
      results.push_back(run(progress));
      const RawSeconds raw = raw_file_speed(work, results.back().bytes, layout.ranks());
      results.back().raw_seconds = results.back().verb == "save" ? raw.write : raw.read;
    };
    step("save", saved, [&](Progress& progress) { return save_model(model, saved, checkpoint, progress); });
    for (const Layout& layout : loaded) {
      step("load", layout, [&](Progress& progress) { return load_model(model, layout, checkpoint, progress); });
    }

    if (json) {
      std::cout << to_json(model, checkpoint, results).dump(2) << "\n";
    } else {
      print_table(model, results);
    }
    const bool all_equal = std::all_of(results.begin(), results.end(), [&](const Result& result) {
      return result.verb == "save" || result.tensors_equal == model.tensors.size();
    });
    if (!all_equal) std::cerr << "reshard_model: some tensors differ from the source\n";
    return all_equal ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "reshard_model: " << error.what() << "\n";
    return 1;
  }
}
