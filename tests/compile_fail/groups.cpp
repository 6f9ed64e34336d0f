// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// Misuse that must not compile, by its message. Section 0 builds; each other section fails with one error, and the
// compiler's output holds the texts after its number. Read by check.py.
//
// SECTION 1: pass the right one, or retag<Tag>(group)
// SECTION 2: pass the right one, or retag<Tag>(group)
// SECTION 3: fallback::strict allows no substitute; add the tag to make_context
// SECTION 3: EPTag
// SECTION 4: fallback::strict allows no substitute; add the tag to make_context
// SECTION 5: this tag has no definition, so no group belongs to it; define it by its axes
// SECTION 5: UndefinedTag
// SECTION 6: this tag has no definition
// SECTION 7: the context is given two groups of one tag; give each tag once
// SECTION 8: fallback::strict allows no substitute; add the tag to make_context
// SECTION 9: pass the right one, or retag<Tag>(group)
#include <mgroups/comm/solo.hpp>
#include <mgroups/group/context.hpp>
#include <mgroups/group/group.hpp>
#include <mgroups/group/make_group.hpp>

#ifndef SECTION
#define SECTION 0
#endif

namespace mg = mgroups;

struct UndefinedTag {};

inline int replicas(mg::Group<mg::DPCPTag> dp_cp) { return dp_cp.size(); }

inline int use(mg::solo_comm& world, const mg::ProcessGrid& grid) {
  auto strict = mg::make_context<mg::fallback::strict, mg::TPTag, mg::PPTag, mg::DPCPTag>(world, grid);
  auto tp = mg::group<mg::TPTag>(strict);
  auto dp_cp = mg::group<mg::DPCPTag>(strict);
  int sum = replicas(dp_cp) + mg::get_pg_size<mg::TPTag>(strict);
#if SECTION == 1
  sum += replicas(tp);
#elif SECTION == 2
  const mg::Group<mg::TPTag> erased = tp;
  sum += replicas(erased);
#elif SECTION == 3
  sum += mg::group<mg::EPTag>(strict).size();
#elif SECTION == 4
  sum += mg::get_pg_size<mg::EPTag>(strict);
#elif SECTION == 5
  sum += mg::make_group<UndefinedTag>(world, grid).size();
#elif SECTION == 6
  sum += grid.members<UndefinedTag>(0).size();
#elif SECTION == 7
  mg::GroupContext ctx{mg::fallback::solo{}, world, tp, tp};
  sum += ctx.world_size();
#elif SECTION == 8
  sum += mg::static_pg_size<mg::EPTag, decltype(strict)>;
#elif SECTION == 9
  mg::Group<mg::DPTag, mg::solo_comm> dp = dp_cp;
  sum += dp.size();
#endif
  return sum;
}
