// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <mgroups/comm/buffer.hpp>
#include <mgroups/comm/checks.hpp>
#include <mgroups/comm/concepts.hpp>
#include <mgroups/comm/verb.hpp>
#include <mgroups/comm/verbs.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/memory.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// The communicator of one rank with itself. Verbs return at once, having copied what is not in place.
/// Device memory is accepted where nothing has to move (in place, or no elements), so that a group whose axis is absent
/// costs a GPU program nothing; a copy of device memory throws UnsupportedError. Cheap to copy.
class solo_comm : public verbs<solo_comm>, public host_memory_only<solo_comm> {
 public:
  static constexpr MemoryReach memory_reach = MemoryReach::host_and_device;

  explicit solo_comm(std::string_view name = "solo") : name_(name) {}

  [[nodiscard]] static constexpr bool reaches(MemorySpace) noexcept { return true; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] bool is_member() const noexcept { return member_; }
  /// 0. Throws NotAMember on the handle that `split` gives for a negative colour.
  [[nodiscard]] int rank() const { return in_group(0); }
  /// 1. Throws NotAMember as `rank` does.
  [[nodiscard]] int size() const { return in_group(1); }

  /// Local, as are the next two: this communicator again, or a handle that is not a member where `color` is negative.
  [[nodiscard]] solo_comm split(int color, int /*key*/) const {
    (void)size();
    solo_comm part(name_);
    part.member_ = color >= 0;
    return part;
  }
  /// `members` can only be {0}. Throws InvalidArgument for anything else.
  [[nodiscard]] solo_comm create_group(std::span<const int> members, std::string_view name) const {
    if (const auto fault = detail::members_fault(members, size())) {
      throw InvalidArgument(concat("create_group ", name, " of group ", name_, ": ", *fault), {"create_group", name_});
    }
    return solo_comm(name.empty() ? std::string_view(name_) : name);
  }
  [[nodiscard]] solo_comm duplicate() const {
    (void)size();
    return *this;
  }

  // The backend interface of comm/concepts.hpp.
  void do_barrier() const noexcept {}
  void do_broadcast(const buffer&, int /*root*/) const noexcept {}
  void do_all_reduce(const const_buffer& in, const buffer& out, ReduceOp) const { copy(Verb::all_reduce, in, out); }
  void do_all_gather(const const_buffer& in, const buffer& out) const { copy(Verb::all_gather, in, out); }
  void do_all_gather_v(const const_buffer& in, const buffer& out, std::span<const std::size_t>) const {
    copy(Verb::all_gather_v, in, out);
  }
  void do_all_to_all_v(const const_buffer& in, std::span<const std::size_t>, const buffer& out,
                       std::span<const std::size_t>) const {
    copy(Verb::all_to_all_v, in, out);
  }
  // No other rank exists, so the entry checks let none of these through.
  void do_send(const const_buffer&, int /*destination*/) const noexcept {}
  void do_recv(const buffer&, int /*source*/) const noexcept {}

 private:
  [[nodiscard]] int in_group(int value) const {
    if (!member_) {
      throw NotAMember(concat("this rank is not a member of the group that it split off ", name_,
                              " with a negative colour; ask is_member() first"));
    }
    return value;
  }

  void copy(Verb verb, const const_buffer& in, const buffer& out) const {
    if (in.data == out.data || in.count == 0) return;
    if (in.space != MemorySpace::host || out.space != MemorySpace::host) {
      throw UnsupportedError(concat(mgroups::name(verb), " on group ", name_,
                                    ": a solo communicator cannot copy device memory; call the verb in place"),
                             {std::string(mgroups::name(verb)), name_});
    }
    std::memcpy(out.data, in.data, in.bytes());
  }

  std::string name_;
  bool member_ = true;
};

MGROUPS_END_NAMESPACE
