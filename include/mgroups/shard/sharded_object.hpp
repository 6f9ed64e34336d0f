// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <mgroups/core/dims.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/core/value.hpp>
#include <mgroups/shard/sharded_tensor.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// Something that is no tensor, saved and loaded as one item: random-number state, a scheduler, a quantiser's extra state.
///
/// It is a Value, or the bytes in which it was stored, or both. Loading keeps the bytes, so that saving an object that was
/// loaded and not changed writes it back verbatim, whether or not its value was understood.
class Object {
 public:
  /// How the bytes hold the value: as torch.save(value) does, or, as Megatron-Core does, in a list of one.
  enum class Form : bool { plain, listed };

  Object() = default;
  Object(Value value) : value_(std::move(value)) {}
  /// What was stored. `fault` says why its value is not understood; empty where `value` is it.
  Object(std::vector<std::byte> stored, Form form, Value value, std::string fault)
      : value_(std::move(value)), stored_(std::move(stored)), form_(form), fault_(std::move(fault)) {}

  /// Throws UnsupportedError for an object that was loaded but not understood; its bytes are there all the same.
  [[nodiscard]] const Value& value() const {
    if (!fault_.empty()) throw UnsupportedError(fault_);
    return value_;
  }
  [[nodiscard]] bool understood() const noexcept { return fault_.empty(); }
  /// Why the value is not understood; empty where it is.
  [[nodiscard]] const std::string& fault() const noexcept { return fault_; }

  /// Replaces the value; the bytes that were stored are forgotten.
  Object& operator=(Value value) {
    value_ = std::move(value);
    stored_.clear();
    fault_.clear();
    return *this;
  }
  /// The archive in which the object was stored; empty for one that was made from a value.
  [[nodiscard]] const std::vector<std::byte>& stored() const noexcept { return stored_; }
  [[nodiscard]] Form form() const noexcept { return form_; }

 private:
  Value value_;
  std::vector<std::byte> stored_;
  Form form_ = Form::plain;
  std::string fault_;
};

/// One piece of an object that ranks hold in pieces: Megatron's ShardedObject. Pieces cannot be resharded: as many are
/// loaded as were saved.
struct ShardedObject {
  std::string key;
  Object* data = nullptr;  ///< what is saved, and what a load fills
  Dims global_shape;       ///< pieces per axis
  Dims global_offset;      ///< which piece this is
  ReplicaId replica_id;

  /// The key of the piece in a `torch_dist` checkpoint: "rng_state/shard_0.1_1.2".
  [[nodiscard]] std::string unique_key() const {
    std::string out = key + "/shard_";
    for (int axis = 0; axis < global_offset.rank(); ++axis) out += concat(axis > 0 ? "." : "", global_offset[axis]);
    out += '_';
    for (int axis = 0; axis < global_shape.rank(); ++axis) out += concat(axis > 0 ? "." : "", global_shape[axis]);
    return out;
  }
  /// A piece of an object in one piece.
  [[nodiscard]] bool whole() const noexcept { return numel(global_shape) == 1; }
};

/// How an object's pieces lie on the ranks. The default is one piece, of which this rank holds the main copy.
struct ObjectOptions {
  Dims global_shape = {1};
  Dims global_offset = {0};
  ReplicaId replica_id = {};
};

/// `object` must outlive the state dict that the result is added to. Local. Throws InvalidArgument for an impossible place.
[[nodiscard]] inline ShardedObject make_sharded_object(std::string key, Object& object, const ObjectOptions& options = {}) {
  const Box box{options.global_offset, Dims::filled(options.global_offset.rank(), 1)};
  if (options.global_shape.empty()) {
    throw InvalidArgument(concat("object '", key, "' has no axis; an object in one piece has global_shape {1}"),
                          {.key = key});
  }
  if (const auto fault = box_fault(box, options.global_shape)) {
    throw InvalidArgument(concat("object '", key, "' cannot lie there: ", *fault), {.key = key});
  }
  return {std::move(key), &object, options.global_shape, options.global_offset, options.replica_id};
}

MGROUPS_END_NAMESPACE
