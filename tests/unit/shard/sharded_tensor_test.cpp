// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/shard/sharded_tensor.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <mgroups/shard/state_dict.hpp>

#include <doctest/doctest.h>

namespace mg = mgroups;

TEST_CASE("a grid of parts: Megatron's from_rank_offsets") {
  std::vector<float> values(6);
  const auto view = mg::view_of(values, {2, 3});
  // Values as ShardedTensor.from_rank_offsets('w', t, (1, 2, 4)) and with (0, 3, 5) on a prepended axis gives them.
  const auto split = mg::make_sharded_grid("w", view, {{1, 2, 4}});
  CHECK(split.global_shape == mg::Dims{2, 12});
  CHECK(split.global_offset == mg::Dims{0, 6});
  CHECK(*split.axis_fragmentations == mg::Dims{1, 4});
  const auto stacked =
      mg::make_sharded_grid("w", view, {{0, 3, 5}, {1, 1, 2}}, {.replica_id = {0, 1}, .prepend_axis_num = 1});
  CHECK(stacked.global_shape == mg::Dims{5, 4, 3});
  CHECK(stacked.global_offset == mg::Dims{3, 2, 0});
  CHECK(*stacked.axis_fragmentations == mg::Dims{5, 2, 1});
  CHECK(stacked.box() == mg::Box{{3, 2, 0}, {1, 2, 3}});
  CHECK_FALSE(stacked.replica_id.is_main());
}

TEST_CASE("replica ids: zeros or nothing are main, a negative one is not") {
  CHECK(mg::ReplicaId().is_main());
  CHECK(mg::ReplicaId(0).is_main());
  CHECK(mg::ReplicaId{0, 0, 0}.is_main());
  CHECK_FALSE(mg::ReplicaId(-1).is_main());
  CHECK_FALSE(mg::ReplicaId{0, 2}.is_main());
}

TEST_CASE("impossible places are refused by a sentence with the numbers") {
  std::vector<float> values(6);
  const auto view = mg::view_of(values, {2, 3});
  CHECK_THROWS_WITH_AS(static_cast<void>(mg::make_sharded_grid("w", view, {{2, 0, 1}})), doctest::Contains("axis 2"),
                       mg::InvalidArgument);
  CHECK_THROWS_WITH_AS(static_cast<void>(mg::make_sharded_grid("w", view, {{0, 4, 4}})), doctest::Contains("part 4 of 4"),
                       mg::InvalidArgument);
  CHECK_THROWS_AS(static_cast<void>(mg::make_sharded_grid("w", view, {{0, 0, 2}, {0, 1, 2}})), mg::InvalidArgument);
  CHECK_THROWS_WITH_AS(static_cast<void>(mg::make_sharded_at("w", view, {4, 4}, {0, 2})),
                       doctest::Contains("leaves shape [4, 4]"), mg::InvalidArgument);
  CHECK_THROWS_WITH_AS(static_cast<void>(mg::make_sharded_at("w", view, {4, 4, 4}, {0, 0, 0})),
                       doctest::Contains("prepended"), mg::InvalidArgument);
  CHECK_THROWS_AS(static_cast<void>(mg::make_sharded_grid("w", view, {{0, 0, std::int64_t{1} << 62}})), mg::InvalidArgument);
}

TEST_CASE("a state dict refuses the same box twice and keeps several boxes of a key") {
  std::vector<float> values(6);
  const auto view = mg::view_of(values, {2, 3});
  mg::ShardedStateDict<mg::TensorView> state;
  state.add(mg::make_sharded_grid("w", view, {{0, 0, 2}}));
  state.add(mg::make_sharded_grid("w", view, {{0, 1, 2}}));
  CHECK_THROWS_WITH_AS(state.add(mg::make_sharded_grid("w", view, {{0, 1, 2}})), doctest::Contains("'w'"),
                       mg::InvalidArgument);
  CHECK_THROWS_WITH_AS(state.add(mg::make_sharded_grid("w", view, {{0, 1, 3}})), doctest::Contains("[6, 3]"),
                       mg::InvalidArgument);
  CHECK(state.size() == 2);
  CHECK(state.at("w").size() == 2);
  CHECK(state.at("v").empty());
  CHECK(state.local_state().tensors.size() == 2);
}

TEST_CASE("any handle with traits can be kept: vectors and spans") {
  mg::ShardedStateDict<std::vector<int>> owning;
  owning.add(mg::make_whole("v", std::vector<int>{1, 2, 3}));
  const mg::TensorView view = owning.local_state().tensors[0].data;
  CHECK(view.dtype == mg::DType::int32);
  CHECK(view.shape == mg::Dims{3});
  CHECK(static_cast<const int*>(view.data)[2] == 3);
  std::vector<mg::bfloat16> memory(4);
  mg::ShardedStateDict<std::span<mg::bfloat16>> viewing;
  viewing.add(mg::make_sharded_grid("s", std::span(memory), {{0, 1, 2}}));
  CHECK(viewing.at("s")[0].global_shape == mg::Dims{8});
}
