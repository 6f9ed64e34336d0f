// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <concepts>
#include <type_traits>

#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/comm/concepts.hpp>
#include <mgroups/comm/solo.hpp>
#include <mgroups/comm/threads.hpp>
#include <mgroups/group/context.hpp>
#include <mgroups/group/group.hpp>

namespace mg = mgroups;

namespace my {
struct NodeTag : mg::axes<"node"> {};
}  // namespace my

using TP = mg::Group<mg::TPTag>;
using TPThreads = mg::Group<mg::TPTag, mg::thread_comm>;
using DPCP = mg::Group<mg::DPCPTag>;

// A TP group cannot be passed where DP+CP is wanted, in any spelling.
static_assert(!std::is_convertible_v<TP, DPCP> && !std::is_constructible_v<DPCP, TP>);
static_assert(!std::is_convertible_v<TPThreads, DPCP> && !std::is_constructible_v<DPCP, TPThreads>);
static_assert(!std::is_assignable_v<DPCP&, TP> && !std::is_assignable_v<DPCP&, TPThreads>);
static_assert(!std::is_constructible_v<mg::Group<mg::DPTag>, DPCP> && !std::is_constructible_v<DPCP, mg::Group<mg::DPTag>>);
static_assert(!std::is_invocable_v<void (*)(DPCP), TP>);

// The backend's type can be forgotten, and not guessed.
static_assert(std::is_convertible_v<TPThreads, TP> && !std::is_constructible_v<TPThreads, TP>);
static_assert(std::is_convertible_v<mg::no_group_t, TP> && std::is_default_constructible_v<TP>);
static_assert(std::is_nothrow_move_constructible_v<TPThreads> && std::is_copy_constructible_v<TPThreads>);
static_assert(sizeof(TPThreads) <= 4 * sizeof(void*));

// A group is a communicator with the verbs of its backend.
static_assert(mg::communicator<TP> && mg::communicator<TPThreads>);
static_assert(mg::has_all_reduce<TP> && mg::has_all_to_all_v<TPThreads> && mg::has_send_recv<TP>);
static_assert(mg::has_streams<TP> && !mg::has_streams<TPThreads>);
static_assert(mg::world_communicator<mg::thread_comm> && mg::world_communicator<mg::solo_comm> &&
              mg::world_communicator<mg::any_communicator>);

// Solo answers are constants, tag by tag.
using solo = mg::fallback::solo;
using strict = mg::fallback::strict;
template <class Policy, class... Groups>
using Given = mg::GroupContext<Policy, mg::any_communicator, mg::given<Groups...>>;
using Dense = Given<solo, TP, mg::Group<mg::PPTag>, DPCP>;
static_assert(mg::static_pg_size<mg::EPTag, Dense> == 1);
static_assert(mg::static_pg_size<mg::ETPTag, Dense> == 1);
static_assert(mg::static_pg_size<my::NodeTag, Dense> == 1);
static_assert(mg::static_pg_size<mg::TPTag, Dense> == mg::dynamic_pg_size);
static_assert(mg::static_pg_size<mg::TPTag, const Dense&> == mg::dynamic_pg_size);
static_assert(mg::static_pg_size<mg::WorldTag, Dense> == mg::dynamic_pg_size);
// DP is part of the DP+CP group that is there, and the experts' data parallelism is what nobody else takes: not known to
// be 1.
static_assert(mg::static_pg_size<mg::DPTag, Dense> == mg::dynamic_pg_size);
static_assert(mg::static_pg_size<mg::EDPTag, Dense> == mg::dynamic_pg_size);
static_assert(mg::static_pg_size<mg::DPTag, Given<solo, TP>> == 1);
static_assert(mg::static_pg_size<mg::EDPTag, Given<solo, TP, mg::Group<mg::EPTag>>> == 1);
static_assert(mg::static_pg_size<mg::DPTag, Given<solo>> == 1);
static_assert(mg::static_pg_size<mg::TPTag, Given<strict, TP>> == mg::dynamic_pg_size);
static_assert(mg::static_pg_size<mg::EPTag, mg::GroupContext<>> == mg::dynamic_pg_size);

static_assert(mg::group_context<Dense> && mg::group_context<mg::GroupContext<>> && !mg::group_context<TP>);
static_assert(std::is_convertible_v<mg::GroupContext<solo, mg::thread_comm>, mg::GroupContext<>>);
static_assert(!std::is_convertible_v<mg::GroupContext<strict, mg::thread_comm>, mg::GroupContext<>>);
static_assert(!std::is_convertible_v<Dense, mg::GroupContext<>>);
