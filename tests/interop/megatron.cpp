// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// The C++ side of megatron_test.py: saves, loads or copies a training state, whose elements tell their place, cut over
// thread ranks as tensor and pipeline parallelism cut it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <iostream>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <mgroups/checkpoint/load.hpp>
#include <mgroups/checkpoint/save.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/core/value.hpp>
#include <mgroups/shard/sharded_object.hpp>
#include <mgroups/shard/sharded_tensor.hpp>
#include <mgroups/shard/state_dict.hpp>

namespace mg = mgroups;
using mg::Value;

namespace {

/// Parallel sizes; ranks count tp first, then dp, then pp.
struct Layout {
  int tp, pp, dp;
  [[nodiscard]] int size() const { return tp * pp * dp; }
  [[nodiscard]] friend bool operator==(const Layout&, const Layout&) = default;
};

constexpr int layers = 4;
constexpr int foreign_objects = 16;

struct Tensor {
  const char* key;
  mg::DType dtype;
  mg::Dims shape;
};

// megatron_test.py has the same list.
const std::vector<Tensor> tensors{
    {"embedding.word_embeddings.weight", mg::DType::float32, {24, 6}},
    {"decoder.layers.input_layernorm.weight", mg::DType::float32, {layers, 6}},
    {"decoder.layers.self_attention.linear_qkv.weight", mg::DType::bfloat16, {layers, 24, 6}},
    {"decoder.layers.mlp.linear_fc1.weight", mg::DType::float32, {layers, 16, 5}},
    {"decoder.layers.mlp.linear_fc2.weight", mg::DType::float16, {layers, 6, 8}},
    {"decoder.layers.mlp.experts.weight", mg::DType::int64, {layers, 4, 3, 2}},
    {"decoder.final_layernorm.weight", mg::DType::float64, {6}},
    {"decoder.quantized", mg::DType::float8_e4m3fn, {8, 4}},
    {"scalar", mg::DType::float32, {}},
    {"step", mg::DType::int64, {}},
    {"mask", mg::DType::bool_, {5, 3}},
    {"bucket", mg::DType::int32, {23}},
    {"uneven", mg::DType::uint8, {7, 9}},
};

/// The element at `index` in row-major order of the tensor's; megatron_test.py says the same.
void put_element(std::byte* at, mg::DType dtype, std::int64_t index) {
  const auto put = [&](auto value) { std::memcpy(at, &value, sizeof value); };
  switch (dtype) {
    case mg::DType::float32: return put(static_cast<float>(index));
    case mg::DType::float64: return put(static_cast<double>(index) + 0.5);
    case mg::DType::bfloat16: return put(mg::bfloat16(static_cast<float>(index % 256)));
    case mg::DType::float16: return put(mg::float16(static_cast<float>(index % 2048)));
    case mg::DType::float8_e4m3fn: return put(static_cast<std::uint8_t>(index % 120));
    case mg::DType::int64: return put(index + (std::int64_t{1} << 40));
    case mg::DType::int32: return put(static_cast<std::int32_t>(index - 5));
    case mg::DType::uint8: return put(static_cast<std::uint8_t>(index % 251));
    case mg::DType::bool_: return put(static_cast<std::uint8_t>(index % 3 == 0 ? 1 : 0));
    default: std::abort();
  }
}

/// The elements of `box` of tensor number `number`, as they should be.
std::vector<std::byte> elements(std::size_t number, const mg::Box& box) {
  const Tensor& tensor = tensors[number];
  const std::size_t size = mg::size_of(tensor.dtype);
  std::vector<std::byte> out(static_cast<std::size_t>(box.volume()) * size);
  const mg::Dims strides = mg::row_major_strides(tensor.shape);
  for (std::int64_t i = 0; i < box.volume(); ++i) {
    std::int64_t rest = i, index = 1000 * static_cast<std::int64_t>(number);
    for (int axis = box.rank() - 1; axis >= 0; --axis) {
      index += (box.offsets[axis] + rest % box.sizes[axis]) * strides[axis];
      rest /= box.sizes[axis];
    }
    put_element(out.data() + static_cast<std::size_t>(i) * size, tensor.dtype, index);
  }
  return out;
}

template <class T>
Value small_tensor(mg::DType dtype, mg::Dims shape, const std::vector<T>& values) {
  Value::Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return Value::Tensor{dtype, std::move(shape), std::move(bytes)};
}

Value rng_state(int pp, int tp) {
  Value::Bytes seed;
  for (int i = 0; i < 256; ++i) seed.push_back(static_cast<std::byte>(i));
  std::vector<std::uint8_t> generator;
  for (int i = 0; i < 100; ++i) generator.push_back(static_cast<std::uint8_t>(i + 10 * pp + tp));
  const std::uint64_t large = (std::uint64_t{1} << 63) + static_cast<std::uint64_t>(pp);
  return Value::dict({
      {"piece", mg::concat(pp, ".", tp)},
      {"python", Value::tuple({3, Value::tuple({1, -2, (std::int64_t{1} << 40) + tp, large}), nullptr})},
      {"seed", seed},
      {"torch", small_tensor(mg::DType::uint8, {100}, generator)},
      {"gauss", 0.1 + tp},
      {"flags", Value::list({true, false})},
      {"empty", Value::tuple({Value::list(), Value::dict(), Value::tuple(), Value::Bytes(), ""})},
      {7, "text: \u00fc \u20ac \U0001d11e"},
  });
}

Value extra_state(int layer) {
  if (layer % 2 != 0) return nullptr;
  return small_tensor(mg::DType::float32, {3, 2}, std::vector<float>(6, static_cast<float>(layer)));
}

Value param_groups() {
  return Value::list({
      Value::dict({{"lr", 3e-4}, {"betas", Value::tuple({0.9, 0.95})}, {"params", Value::list({0, 1, 2})}}),
      Value::dict({{"lr", std::numeric_limits<double>::infinity()},
                   {"betas", Value::tuple({0.9, 0.95})},
                   {"params", Value::list()}}),
  });
}

Value small_tensors() {
  std::vector<std::int16_t> whole(24), turned(24);
  for (int i = 0; i < 24; ++i) {
    whole[static_cast<std::size_t>(i)] = static_cast<std::int16_t>(i);
    turned[static_cast<std::size_t>(i)] = static_cast<std::int16_t>(i % 4 * 6 + i / 4);
  }
  return Value::list({
      small_tensor(mg::DType::float64, {}, std::vector<double>{2.5}),
      small_tensor(mg::DType::float32, {0, 3}, std::vector<float>{}),
      small_tensor(mg::DType::bfloat16, {3},
                   std::vector<mg::bfloat16>{mg::bfloat16(1.0F), mg::bfloat16(-2.0F), mg::bfloat16(3.0F)}),
      small_tensor(mg::DType::complex64, {1}, std::vector<float>{1, -2}),
      small_tensor(mg::DType::int16, {4, 6}, whole),
      small_tensor(mg::DType::int16, {6, 4}, turned),
      small_tensor(mg::DType::int16, {2, 4}, std::vector<std::int16_t>{8, 9, 10, 11, 14, 15, 16, 17}),
      small_tensor(mg::DType::int16, {6}, std::vector<std::int16_t>{0, 1, 2, 3, 4, 5}),
      small_tensor(mg::DType::bool_, {2}, std::vector<std::uint8_t>{1, 0}),
  });
}

Value arguments(const Layout& layout) {
  return Value::dict({
      {"tensor_model_parallel_size", layout.tp},
      {"pipeline_model_parallel_size", layout.pp},
      {"world_size", layout.size()},
      {"params_dtype", Value::Global{"torch", "bfloat16"}},
      {"data_path", nullptr},
      {"split", Value::list({Value::list({0.9, 0.05}), Value::list({0.05})})},
  });
}

/// `args` is what it is in Megatron, a namespace, in a checkpoint of Megatron's, and a dict in ours.
Value common_state(const Layout& layout, bool as_namespace) {
  Value args = arguments(layout);
  if (as_namespace) args = Value::Instance{{"argparse", "Namespace"}, {}, {arguments(layout)}, {}};
  Value::List numbers{INT64_MIN, INT64_MAX, UINT64_MAX};
  for (const int power : {8, 16, 31, 32}) {
    for (const std::int64_t sign : {-1, 1}) {
      for (const std::int64_t step : {-1, 0}) numbers.emplace_back(sign * (std::int64_t{1} << power) + step);
    }
  }
  Value::List range;
  for (int i = 0; i < 2500; ++i) range.emplace_back(i);
  Value::Dict wide;
  for (int i = 0; i < 1500; ++i) wide.emplace_back(mg::concat(i), nullptr);
  const Value inner = Value::list({2, Value::list({3.5, nullptr})});
  return Value::dict({
      {"args", args},
      {"iteration", 123},
      {"checkpoint_version", 3.0},
      {"num_floating_point_operations_so_far", (std::int64_t{1} << 62) + 1},
      {"opt_param_scheduler",
       Value::dict({{"max_lr", 1e-4}, {"warmup", nullptr}, {"schedule", Value::list({"cosine", Value::list({1, inner})})}})},
      {"numbers", Value::list(numbers)},
      {"long", Value::list(range)},
      {"wide", Value::dict(wide)},
      {"text", std::string(70000, 'x')},
      {"table", small_tensor(mg::DType::int64, {2, 3}, std::vector<std::int64_t>{0, 1, 2, 3, 4, 5})},
      {"content_metadata",
       Value::dict({{"distrib_optim_sharding_type", "fully_reshardable"}, {"singleton_local_shards", false}})},
  });
}

/// One rank's share of everything; `saved` is the layout that the objects were saved in.
class Share {
 public:
  Share(const Layout& layout, const Layout& saved, int rank) {
    const int tp = rank % layout.tp, dp = rank / layout.tp % layout.dp, pp = rank / (layout.tp * layout.dp);
    const bool first = pp == 0, last = pp == layout.pp - 1;
    if (first || last) {
      grid("embedding.word_embeddings.weight", {{0, tp, layout.tp}}, {.replica_id = {first ? 0 : 1, 0, dp}});
    }
    const int begin = layers / layout.pp * pp, end = layers / layout.pp * (pp + 1);
    for (int layer = begin; layer < end; ++layer) {
      const mg::RankOffset at{0, layer, layers};
      const mg::ShardOptions split{.replica_id = {0, 0, dp}, .prepend_axis_num = 1};
      grid("decoder.layers.input_layernorm.weight", {at}, {.replica_id = {0, tp, dp}, .prepend_axis_num = 1});
      grid("decoder.layers.self_attention.linear_qkv.weight", {at, {1, tp, layout.tp}}, split);
      for (int half = 0; half < 2; ++half) {
        grid("decoder.layers.mlp.linear_fc1.weight", {at, {1, half * layout.tp + tp, 2 * layout.tp}}, split);
      }
      grid("decoder.layers.mlp.linear_fc2.weight", {at, {2, tp, layout.tp}}, split);
      for (int expert = 4 / layout.tp * tp; expert < 4 / layout.tp * (tp + 1); ++expert) {
        grid("decoder.layers.mlp.experts.weight", {at, {1, expert, 4}}, {.replica_id = {0, 0, dp}, .prepend_axis_num = 2});
      }
      object("decoder.layers.self_attention._extra_state", extra_state(layer),
             {.global_shape = {layers}, .global_offset = {layer}, .replica_id = {0, tp, dp}});
    }
    if (last) grid("decoder.final_layernorm.weight", {}, {.replica_id = {0, tp, dp}});
    grid("decoder.quantized", {{0, tp, layout.tp}}, {.replica_id = {pp, 0, dp}});
    for (const char* key : {"scalar", "step", "mask"}) grid(key, {}, {.replica_id = rank});
    anywhere("bucket", {mg::split_range(23, layout.tp * layout.pp, pp * layout.tp + tp)}, dp);
    anywhere("uneven", {mg::split_range(7, layout.tp, tp), mg::split_range(9, layout.pp, pp)}, dp);
    object("optimizer.param_groups", param_groups(), {.replica_id = rank});
    object("optimizer.small_tensors", small_tensors(), {.replica_id = rank});
    // Pieces cannot be cut anew: where the layout is another one, the ranks share them in turn.
    const bool own = saved == layout;
    for (int i = own ? pp * layout.tp + tp : rank; i < saved.tp * saved.pp; i += layout.size()) {
      object(
          "rng_state", rng_state(i / saved.tp, i % saved.tp),
          {.global_shape = {saved.pp, saved.tp}, .global_offset = {i / saved.tp, i % saved.tp}, .replica_id = own ? dp : 0});
    }
  }

  /// Objects of which nothing is known but their place.
  void add_foreign(int rank) {
    for (int i = 0; i < foreign_objects; ++i) {
      mg::Object& data = foreign_.emplace_back();
      state_.add(mg::make_sharded_object("foreign", data,
                                         {.global_shape = {foreign_objects}, .global_offset = {i}, .replica_id = rank}));
    }
  }

  void clear() {
    for (Part& part : parts_) std::fill(part.bytes.begin(), part.bytes.end(), std::byte{0xa5});
    for (Item& item : objects_) item.data = "not loaded";
  }
  /// The keys whose values are not what they should be.
  [[nodiscard]] std::vector<std::string> differences() const {
    std::vector<std::string> out;
    for (const Part& part : parts_) {
      if (part.bytes != elements(part.number, part.box)) out.push_back(tensors[part.number].key);
    }
    for (const Item& item : objects_) {
      if (!item.data.understood() || item.data.value() != item.truth) out.push_back(item.key);
    }
    return out;
  }
  [[nodiscard]] mg::ShardedStateDict<mg::TensorView>& state() { return state_; }

 private:
  struct Part {
    std::size_t number;
    mg::Box box;
    std::vector<std::byte> bytes;
  };
  struct Item {
    std::string key;
    Value truth;
    mg::Object data;
  };

  mg::TensorView new_part(std::size_t number, const mg::Box& box, int prepended) {
    Part& part = parts_.emplace_back(Part{number, box, elements(number, box)});
    mg::Dims shape;
    for (int axis = prepended; axis < box.rank(); ++axis) shape.push_back(box.sizes[axis]);
    return {part.bytes.data(), tensors[number].dtype, shape, mg::row_major_strides(shape)};
  }
  static std::size_t number_of(const std::string& key) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].key == key) return i;
    }
    throw std::logic_error("no tensor " + key);
  }

  void grid(const char* key, std::initializer_list<mg::RankOffset> cuts, const mg::ShardOptions& options) {
    const std::size_t number = number_of(key);
    mg::Box box = mg::whole(tensors[number].shape);
    for (const mg::RankOffset& cut : cuts) {
      box.sizes[cut.axis] /= cut.parts;
      box.offsets[cut.axis] = box.sizes[cut.axis] * cut.index;
    }
    state_.add(mg::make_sharded_grid(key, new_part(number, box, options.prepend_axis_num), cuts, options));
  }
  void anywhere(const char* key, std::initializer_list<mg::IndexRange> ranges, int replica) {
    const std::size_t number = number_of(key);
    mg::Box box;
    for (const mg::IndexRange& range : ranges) {
      box.offsets.push_back(range.begin);
      box.sizes.push_back(range.size());
    }
    state_.add(
        mg::make_sharded_at(key, new_part(number, box, 0), tensors[number].shape, box.offsets, {.replica_id = replica}));
  }
  void object(const char* key, const Value& truth, const mg::ObjectOptions& options) {
    Item& item = objects_.emplace_back(Item{key, truth, mg::Object(truth)});
    state_.add(mg::make_sharded_object(key, item.data, options));
  }

  std::deque<Part> parts_;
  std::deque<Item> objects_;
  std::deque<mg::Object> foreign_;
  mg::ShardedStateDict<mg::TensorView> state_;
};

/// Prints which entries of a common state are not what they should be; true where all are.
bool check_common(const mg::Object& common, const Value& truth) {
  if (!common.understood()) {
    std::cerr << "the common state is not understood: " << common.fault() << "\n";
    return false;
  }
  if (common.value() == truth) return true;
  for (const auto& [key, value] : truth.as_dict()) {
    const Value* found = common.value().find(key.as_string());
    if (found == nullptr || *found != value) std::cerr << "the common state's '" << key.as_string() << "' differs\n";
  }
  std::cerr << "the common state differs\n";
  return false;
}

int save(const std::string& directory, const Layout& layout) {
  mg::run_threads(layout.size(), [&](auto& world) {
    Share share(layout, layout, world.rank());
    mg::Object common(common_state(layout, false));
    share.state().set_common(common);
    mg::save(directory, share.state(), world, {.flavour = mg::Flavour::torch_dist});
    return 0;
  });
  return 0;
}

/// Loads, compares and, where `copy` is not empty, saves again what was loaded, with objects of which nothing is known.
int load(const std::string& directory, const Layout& layout, const Layout& saved, bool as_namespace,
         const std::string& copy) {
  const auto wrong = mg::run_threads(layout.size(), [&](auto& world) {
    Share share(layout, saved, world.rank());
    share.clear();
    mg::Object common;
    share.state().set_common(common);
    if (!copy.empty()) share.add_foreign(world.rank());
    const mg::LoadReport report = mg::load(directory, share.state(), world, {.allow_unexpected = false});
    auto differing = share.differences();
    if (!copy.empty()) {
      if (world.rank() == 0) {
        std::set<std::string> keys;
        for (const auto& [key, reason] : report.not_understood) keys.insert(key + " " + reason);
        for (const std::string& key : keys) std::cout << key << "\n";
      }
      mg::save(copy, share.state(), world, {.flavour = mg::Flavour::torch_dist});
    } else if (!check_common(common, common_state(saved, as_namespace)) || !report.not_understood.empty()) {
      differing.push_back("common state or report");
    }
    return differing;
  });
  std::set<std::string> keys;
  for (const auto& of_rank : wrong) keys.insert(of_rank.begin(), of_rank.end());
  for (const std::string& key : keys) std::cerr << "differs: " << key << "\n";
  return keys.empty() ? 0 : 1;
}

/// Loads the embedding for a vocabulary of another size, padded with zeros or cut off.
int load_padded(const std::string& directory, const Layout& layout, int rows) {
  const auto wrong = mg::run_threads(layout.size(), [&](auto& world) {
    const int tp = world.rank() % layout.tp, local = rows / layout.tp;
    std::vector<float> values(static_cast<std::size_t>(local) * 6, 7.0F);
    mg::ShardedStateDict<mg::TensorView> state;
    state.add(mg::make_sharded_grid(tensors[0].key, mg::view_of(values, {local, 6}), {{0, tp, layout.tp}},
                                    {.replica_id = world.rank() / layout.tp, .allow_shape_mismatch = true}));
    mg::load(directory, state, world);
    int count = 0;
    for (int i = 0; i < local * 6; ++i) {
      const int index = tp * local * 6 + i;
      count += values[static_cast<std::size_t>(i)] == static_cast<float>(index < 24 * 6 ? index : 0) ? 0 : 1;
    }
    return count;
  });
  const bool right = std::all_of(wrong.begin(), wrong.end(), [](int count) { return count == 0; });
  if (!right) std::cerr << "the padded embedding differs\n";
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  const auto layout_at = [&](int i) { return Layout{std::atoi(argv[i]), std::atoi(argv[i + 1]), std::atoi(argv[i + 2])}; };
  try {
    if (verb == "save" && argc == 6) return save(argv[2], layout_at(3));
    if (verb == "load-ours" && argc == 9) return load(argv[2], layout_at(3), layout_at(6), false, "");
    if (verb == "load-theirs" && argc == 9) return load(argv[2], layout_at(3), layout_at(6), true, "");
    if (verb == "copy-theirs" && argc == 10) return load(argv[2], layout_at(3), layout_at(6), true, argv[9]);
    if (verb == "load-padded" && argc == 7) return load_padded(argv[2], layout_at(3), std::atoi(argv[6]));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  std::cerr << "usage: megatron save DIRECTORY TP PP DP\n"
               "       megatron load-ours|load-theirs DIRECTORY TP PP DP SAVED_TP SAVED_PP SAVED_DP\n"
               "       megatron copy-theirs DIRECTORY TP PP DP SAVED_TP SAVED_PP SAVED_DP COPY\n"
               "       megatron load-padded DIRECTORY TP PP DP ROWS\n";
  return 2;
}
