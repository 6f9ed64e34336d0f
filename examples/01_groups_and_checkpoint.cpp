// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// Four ranks average gradients over their data-parallel groups, then save a tensor-parallel weight and load it on
// another layout.

// [README program]
#include <mgroups/mgroups.hpp>
namespace mg = mgroups;

// Takes this group and no other: passing the tensor-parallel one does not compile.
void average_gradients(mg::Group<mg::DPCPTag> dp_cp, std::span<float> gradients) { dp_cp.all_reduce(gradients, mg::avg); }

template <mg::communicator Comm>
void rank_main(Comm& world, int tp) {
  mg::ProcessGrid grid{"tp-cp-ep-dp-pp", {.tp = tp}, world.size()};  // dp is inferred from the world
  auto context = mg::make_context(world, grid);
  std::vector<float> weight(std::size_t(64 / tp * 8), 1.0f), gradients(weight.size(), float(world.rank()));
  average_gradients(mg::group<mg::DPCPTag>(context), gradients);

  mg::ShardedStateDict<mg::TensorView> state;
  state.add(mg::make_tp_sharded_tensor_for_checkpoint("fc1.weight", mg::view_of(weight, {64 / tp, 8}), /*axis*/ 0, context));
  if (tp == 2) mg::save("hello_checkpoint", state, context);
  mg::load("hello_checkpoint", state, context);
}

int main() {
  mg::run_threads(4, [](auto& world) { rank_main(world, 2); });  // saves as tp2 x dp2
  mg::run_threads(4, [](auto& world) { rank_main(world, 4); });  // loads as tp4
}
// [README program]
