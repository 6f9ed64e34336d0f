// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <string>

#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/group/accounting.hpp>
#include <mgroups/topology/tags.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// `static_pg_size` of a tag whose group's size is known at run time only.
inline constexpr int dynamic_pg_size = -1;

// What stands for a tag that a context was not given. A policy has
// - `absent_is_one`: whether an axis that is not given is taken to have size 1, which the context then checks against its
// world;
// - `missing<Tag>(context)`: the group that stands for the tag;
// - `static_size<Tag, Context>()`: that group's size where the types alone say it, else `dynamic_pg_size`.
namespace fallback {

/// The axis does not exist: size 1, rank 0. Never stands for another group: where the groups that are given say that the
/// axis does exist, making the context or asking for the tag is a TopologyError.
struct solo {
  static constexpr bool absent_is_one = true;

  template <class Tag, class Context>
  [[nodiscard]] static constexpr int static_size() {
    return certain<Tag, Context>() ? 1 : dynamic_pg_size;
  }

  template <class Tag, class Context>
  [[nodiscard]] static auto missing(const Context& context) {
    if constexpr (!certain<Tag, Context>()) check<Tag>(context);
    return context.template absent<Tag>();
  }

 private:
  // Nothing that was given says anything about the tag's axes, and what was given has been checked against the world.
  template <class Tag, class Context>
  static constexpr bool certain() {
    if constexpr (detail::has_axes<Tag>) return !Context::template covers<Tag>() && !takes_the_rest<Tag, Context>();
    else return false;
  }

  // Data parallelism takes what the other axes of its view leave; where no group of that view was given, nothing was
  // checked.
  template <class Tag, class Context>
  static constexpr bool takes_the_rest() {
    const detail::GivenGroup tag{tag_name<Tag>, group_traits<Tag>::axes};
    return (tag.any_axis([](auto axis) { return axis == "edp"; }) && !Context::has_expert_groups()) ||
           (tag.any_axis([](auto axis) { return axis == "dp"; }) && Context::has_expert_groups() &&
            !Context::has_dense_groups());
  }

  template <class Tag, class Context>
  static void check(const Context& context) {
    if (context.world_size() == 1) return;
    const ErrorContext where{.group = std::string(tag_name<Tag>), .rank = context.world_rank()};
    if constexpr (!detail::has_axes<Tag>) {
      throw TopologyError(
          concat("the context was not given the ", tag_name<Tag>, " group, and the tag has no axes that could be ",
                 "absent; give the group, or absent_group<", tag_name<Tag>, ">(world) to say that it does not exist"),
          where);
    } else {
      for (const detail::GivenGroup& given : context.given_groups()) {
        if (given.size == 1) continue;
        if (!given.any_axis([](auto axis) { return detail::names_axis<Tag>(axis); })) continue;
        throw TopologyError(
            concat("the context was not given the ", tag_name<Tag>, " group, and its axis is not absent: ", given.tag,
                   ", which was given, has it and ", given.size, " ranks; give the ", tag_name<Tag>, " group too, ",
                   "or make it from ", given.tag, " by retag where they are the same"),
            where);
      }
      if constexpr (takes_the_rest<Tag, Context>()) {
        int pipeline = 1;
        for (const detail::GivenGroup& given : context.given_groups()) {
          if (given.axes.size() == 1 && given.axes[0] == "pp") pipeline = given.size;
        }
        if (pipeline == context.world_size()) return;
        throw TopologyError(
            concat("the context was not given the ", tag_name<Tag>, " group, and it cannot be absent: with no other ",
                   "group of its view it has ", context.world_size() / pipeline, " of the world's ", context.world_size(),
                   " ranks; give the ", tag_name<Tag>, " group"),
            where);
      }
    }
  }
};

/// A tag that is not given is a compile error. Axes that a grid does not have are a TopologyError.
struct strict {
  static constexpr bool absent_is_one = false;

  template <class Tag, class Context>
  [[nodiscard]] static constexpr int static_size() {
    refuse<Tag, Context>();
    return dynamic_pg_size;
  }
  template <class Tag, class Context>
  [[nodiscard]] static auto missing(const Context&) {
    refuse<Tag, Context>();
    return typename Context::template group_type<Tag>{};
  }

 private:
  template <class Tag, class Context>
  static constexpr void refuse() {
    static_assert(
        Context::template lists<Tag>(),
        "mgroups: this context has no group for the tag that is asked for, and fallback::strict allows no substitute; add "
        "the tag to make_context<mgroups::fallback::strict, ...>(world, grid), pass its group to GroupContext{...}, or use "
        "mgroups::fallback::solo if its axis does not exist");
  }
};

}  // namespace fallback

MGROUPS_END_NAMESPACE
