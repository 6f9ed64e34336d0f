// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// A string literal as a template argument.
template <std::size_t N>
struct fixed_string {
  char text[N] = {};

  constexpr fixed_string(const char (&literal)[N]) noexcept {
    for (std::size_t i = 0; i < N; ++i) text[i] = literal[i];
  }
  [[nodiscard]] constexpr std::string_view view() const noexcept { return {text, N - 1}; }
};

/// Base of tags: the group of the ranks that differ along these axes of the grid and agree along all others.
/// A tag of your own is one line: `struct NodeTag : mgroups::axes<"tp", "cp"> {};`.
template <fixed_string... Names>
struct axes {
  using axes_of_tag = axes;
  static constexpr std::array<std::string_view, sizeof...(Names)> names{Names.view()...};
};

// Dense view of the grid: tp, cp, dp, pp.
struct TPTag : axes<"tp"> {};
struct CPTag : axes<"cp"> {};
struct DPTag : axes<"dp"> {};
struct PPTag : axes<"pp"> {};
/// Data and context parallel together: the replicas of a dense parameter.
struct DPCPTag : axes<"dp", "cp"> {};
struct TPCPTag : axes<"tp", "cp"> {};
struct TPDPTag : axes<"tp", "dp"> {};
struct TPDPCPTag : axes<"tp", "dp", "cp"> {};
/// Megatron's model-parallel group.
struct TPPPTag : axes<"tp", "pp"> {};

// Expert view of the same ranks: etp, ep, edp, pp. As in Megatron, the composite tags join the expert tensor axis.
struct EPTag : axes<"ep"> {};
struct ETPTag : axes<"etp"> {};
struct EDPTag : axes<"edp"> {};
/// Megatron's `expert_tensor_and_model_parallel` group: etp x ep.
struct TPEPTag : axes<"etp", "ep"> {};
/// Megatron's `expert_tensor_model_pipeline_parallel` group: etp x ep x pp.
struct TPEPPPTag : axes<"etp", "ep", "pp"> {};

/// Every rank of the grid.
struct WorldTag {};

namespace detail {

template <class Tag>
concept derives_from_axes = requires { typename Tag::axes_of_tag; };

template <class Tag>
consteval auto names_of_axes() {
  if constexpr (derives_from_axes<Tag>) return Tag::axes_of_tag::names;
  else return std::array<std::string_view, 0>{};
}

}  // namespace detail

/// What a tag means. Specialise it for a tag that is not derived from `axes`, with one of
/// - `static constexpr std::array<std::string_view, n> axes{...};`: as if it were derived from `axes`;
/// - `static Members members(const ProcessGrid&, int rank);`: any rule. It returns the group that concerns `rank`; a rank
/// that is
///   not among the members it is given is not a member (an embedding group on a middle pipeline stage). Groups of one tag
///   must not overlap.
template <class Tag>
struct group_traits {
  static constexpr auto axes = detail::names_of_axes<Tag>();
  static_assert(detail::derives_from_axes<Tag>,
                "mgroups: this tag has no definition, so no group belongs to it; define it by its axes, "
                "`struct MyTag : mgroups::axes<\"tp\", \"cp\"> {};`, or specialise mgroups::group_traits for it");
};

namespace detail {

// The negation rather than a question for `axes`, so that an undefined tag gives its sentence and no second error.
template <class Tag>
concept has_axes = !requires { group_traits<Tag>::members; };

template <class Tag>
[[nodiscard]] constexpr bool names_axis(std::string_view axis) noexcept {
  for (const std::string_view name : group_traits<Tag>::axes) {
    if (name == axis) return true;
  }
  return false;
}

// The spelling of a type inside a compiler's rendering of this function's name; `source_location::function_name` lacks the
// template arguments on clang 16.
template <class T>
[[nodiscard]] constexpr std::string_view function_text() noexcept {
  return __PRETTY_FUNCTION__;
}

template <class T>
[[nodiscard]] constexpr std::string_view type_text() noexcept {
  constexpr std::string_view probe = function_text<void>();
  constexpr std::size_t before = probe.find("void");
  constexpr std::size_t after = probe.size() - before - 4;
  constexpr std::string_view text = function_text<T>();
  return text.substr(before, text.size() - before - after);
}

// The last component of a qualified name; colons inside template arguments do not count.
[[nodiscard]] constexpr std::string_view unqualified(std::string_view name) noexcept {
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<' || name[i] == '(' || name[i] == '{') ++depth;
    if (name[i] == '>' || name[i] == ')' || name[i] == '}') --depth;
    if (name[i] == ':' && depth == 0) begin = i + 1;
  }
  return name.substr(begin);
}

}  // namespace detail

/// The tag's own name without namespaces, as messages give it: `TPTag`.
template <class Tag>
inline constexpr std::string_view tag_name = detail::unqualified(detail::type_text<Tag>());

MGROUPS_END_NAMESPACE
