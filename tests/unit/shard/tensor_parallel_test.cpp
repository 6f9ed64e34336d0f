// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/shard/layers/tensor_parallel.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <mgroups/comm/solo.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/shard/state_dict.hpp>
#include <mgroups/topology/grid.hpp>

#include <doctest/doctest.h>

namespace mg = mgroups;

TEST_CASE("replica ids are Megatron's: (0, 0, dp_cp) where split, (0, tp, dp_cp) where not") {
  mg::run_threads(6, [](auto& world) {
    const auto context = mg::make_context(world, mg::ProcessGrid{"tp-dp", {.tp = 3}, world.size()});
    std::vector<float> values(4);
    const auto view = mg::view_of(values, {2, 2});
    const int tp = world.rank() % 3, dp = world.rank() / 3;
    const auto split = mg::make_tp_sharded_tensor_for_checkpoint("w", view, 1, context);
    CHECK(split.replica_id == mg::ReplicaId{0, 0, dp});
    CHECK(split.global_shape == mg::Dims{2, 6});
    CHECK(split.global_offset == mg::Dims{0, 2 * tp});
    const auto whole = mg::make_sharded_tensor_for_checkpoint("w", view, context, {.prepend_offsets = {{0, 1, 4}}});
    CHECK(whole.replica_id == mg::ReplicaId{0, tp, dp});
    CHECK(whole.global_shape == mg::Dims{4, 2, 2});
    CHECK(whole.global_offset == mg::Dims{1, 0, 0});
  });
}

TEST_CASE("sizes that do not divide are split without padding") {
  mg::run_threads(4, [](auto& world) {
    const auto context = mg::make_context(world, mg::ProcessGrid{"tp", {.tp = 4, .dp = 1}, world.size()});
    const mg::IndexRange part = mg::split_range(6, 4, world.rank());
    std::vector<float> values(static_cast<std::size_t>(part.size() * 3));
    const auto shard = mg::make_tp_sharded_tensor_for_checkpoint("w", mg::view_of(values, {part.size(), 3}), 0, context,
                                                                 {.tp_global_size = 6});
    CHECK(shard.global_shape == mg::Dims{6, 3});
    CHECK(shard.global_offset == mg::Dims{part.begin, 0});
    CHECK_FALSE(shard.axis_fragmentations);
    CHECK_THROWS_WITH_AS(static_cast<void>(mg::make_tp_sharded_tensor_for_checkpoint(
                             "w", mg::view_of(values, {part.size(), 3}), 0, context, {.tp_global_size = 40})),
                         doctest::Contains("of 40"), mg::InvalidArgument);
  });
}

TEST_CASE("a group that is not given is an error, not rank 0 of 1") {
  mg::run_threads(2, [](auto& world) {
    const auto context = mg::make_context(world, mg::ProcessGrid{"tp-dp", {.tp = 2}, world.size()});
    std::vector<float> values(2);
    const auto view = mg::view_of(values, {2});
    const mg::Group<mg::TPTag> tp = mg::group<mg::TPTag>(context);
    const mg::Group<mg::DPCPTag> dp_cp = mg::group<mg::DPCPTag>(context);
    CHECK_THROWS_AS(static_cast<void>(mg::make_tp_sharded_tensor_for_checkpoint("w", view, 0, {.tp_group = tp})),
                    mg::InvalidArgument);
    CHECK_THROWS_AS(static_cast<void>(mg::make_tp_sharded_tensor_for_checkpoint("w", view, 0, {.dp_cp_group = dp_cp})),
                    mg::InvalidArgument);
    const auto shard = mg::make_tp_sharded_tensor_for_checkpoint("w", view, 0, {.tp_group = tp, .dp_cp_group = dp_cp});
    CHECK(shard.global_shape == mg::Dims{4});
  });
}

TEST_CASE("one big buffer with names and shapes") {
  mg::solo_comm alone;
  const auto context = mg::make_context(alone, mg::ProcessGrid{"tp-dp", {}, 1});
  std::vector<float> buffer(11);
  const std::vector<std::string> names{"a", "b", "c"};
  const std::vector<mg::Dims> shapes{{2, 3}, {}, {4}};
  mg::ShardedStateDict<mg::TensorView> state;
  state.add(mg::make_flat_sharded_tensors_for_checkpoint(names, shapes, std::span(buffer), context));
  CHECK(state.at("b")[0].data.data == buffer.data() + 6);
  CHECK(state.at("c")[0].data.data == buffer.data() + 7);
  buffer.pop_back();
  CHECK_THROWS_WITH_AS(
      static_cast<void>(mg::make_flat_sharded_tensors_for_checkpoint(names, shapes, std::span(buffer), context)),
      doctest::Contains("11 elements"), mg::InvalidArgument);
}
