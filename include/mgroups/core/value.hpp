// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// What is saved beside tensors: a tree of None, booleans, numbers, strings, bytes, lists, tuples, dicts and small
/// tensors, as Python has them. Instances of classes are records of what was stored; no class is ever looked up.
class Value {
 public:
  using Bytes = std::vector<std::byte>;
  using List = std::vector<Value>;
  struct Tuple {
    List elements;
    [[nodiscard]] friend bool operator==(const Tuple&, const Tuple&) = default;
  };
  /// Pairs in the order in which they were stored; keys are mostly strings or integers.
  using Dict = std::vector<std::pair<Value, Value>>;
  /// A small dense tensor, row-major.
  struct Tensor {
    DType dtype = DType::float32;
    Dims shape;
    Bytes bytes;
    [[nodiscard]] friend bool operator==(const Tensor&, const Tensor&) = default;
  };
  /// A class, function or other named thing, such as `torch.bfloat16`.
  struct Global {
    std::string module;
    std::string name;
    [[nodiscard]] friend bool operator==(const Global&, const Global&) = default;
  };
  /// An instance of a class: what would be called, with which arguments, and the attributes that it would be given.
  struct Instance {
    Global type;
    List arguments;
    List state;           ///< none or one: attributes are a dict
    List items;           ///< none or one: the contents of an instance that is a list or dict as well
    bool called = false;  ///< made by a call of `type`, not by its __new__ alone
    [[nodiscard]] friend bool operator==(const Instance&, const Instance&) = default;
  };

  Value() = default;  ///< None
  Value(std::nullptr_t) {}
  template <std::same_as<bool> B>
  Value(B value) : data_(value) {}
  template <std::integral I>
    requires(!std::same_as<I, bool>)
  Value(I value) {
    if constexpr (std::unsigned_integral<I> && sizeof(I) == 8) {
      if (value > static_cast<std::uint64_t>(INT64_MAX)) {
        data_ = static_cast<std::uint64_t>(value);
        return;
      }
    }
    data_ = static_cast<std::int64_t>(value);
  }
  template <std::floating_point F>
  Value(F value) : data_(static_cast<double>(value)) {}
  Value(std::string value) : data_(std::move(value)) {}
  Value(std::string_view value) : data_(std::string(value)) {}
  Value(const char* value) : data_(std::string(value)) {}
  Value(Bytes value) : data_(std::move(value)) {}
  Value(Tuple value) : data_(std::move(value)) {}
  Value(Tensor value) : data_(Boxed<Tensor>(std::move(value))) {}
  Value(Global value) : data_(Boxed<Global>(std::move(value))) {}
  Value(Instance value) : data_(Boxed<Instance>(std::move(value))) {}

  [[nodiscard]] static Value list(List elements = {}) { return Value(std::in_place, std::move(elements)); }
  [[nodiscard]] static Value tuple(List elements = {}) { return Value(Tuple{std::move(elements)}); }
  /// `Value::dict({{"iteration", 100}, {"lr", 3e-4}})`.
  [[nodiscard]] static Value dict(Dict pairs = {}) { return Value(std::in_place, std::move(pairs)); }

  /// Null unless it is a T: bool, std::int64_t, std::uint64_t (above 2^63 - 1 only), double, std::string, Bytes, List,
  /// Tuple, Dict, Tensor, Global or Instance.
  template <class T>
  [[nodiscard]] const T* get_if() const noexcept {
    if constexpr (std::same_as<T, Tensor> || std::same_as<T, Global> || std::same_as<T, Instance>) {
      const auto* box = std::get_if<Boxed<T>>(&data_);
      return box != nullptr ? box->get() : nullptr;
    } else {
      return std::get_if<T>(&data_);
    }
  }
  template <class T>
  [[nodiscard]] T* get_if() noexcept {
    return const_cast<T*>(std::as_const(*this).template get_if<T>());
  }
  [[nodiscard]] bool is_none() const noexcept { return std::holds_alternative<std::monostate>(data_); }
  /// "an int", "a dict" ...
  [[nodiscard]] std::string_view kind() const noexcept {
    static constexpr std::string_view names[] = {"None",       "a bool", "an int",   "an int",
                                                 "a float",    "a str",  "bytes",    "a list",
                                                 "a tuple",    "a dict", "a tensor", "a class or function",
                                                 "an instance"};
    return names[data_.index()];
  }

  /// The value as what it must be; an InvalidArgument says what it is instead. A whole float is no int.
  [[nodiscard]] bool as_bool() const { return expect<bool>("a bool"); }
  [[nodiscard]] std::int64_t as_int() const { return expect<std::int64_t>("an int of 64 bits"); }
  /// Integers too.
  [[nodiscard]] double as_double() const {
    if (const auto* integer = get_if<std::int64_t>()) return static_cast<double>(*integer);
    return expect<double>("a float");
  }
  [[nodiscard]] const std::string& as_string() const { return expect<std::string>("a str"); }
  [[nodiscard]] const Bytes& as_bytes() const { return expect<Bytes>("bytes"); }
  /// A tuple's elements too.
  [[nodiscard]] const List& as_list() const {
    if (const auto* tuple = get_if<Tuple>()) return tuple->elements;
    return expect<List>("a list");
  }
  [[nodiscard]] const Dict& as_dict() const { return expect<Dict>("a dict"); }

  /// The value of a dict's string key, or an instance's attribute or item; null where there is none.
  [[nodiscard]] const Value* find(std::string_view key) const noexcept {
    if (const auto* instance = get_if<Instance>()) {
      for (const List* part : {&instance->state, &instance->items}) {
        for (const Value& value : *part) {
          if (const Value* found = value.find(key)) return found;
        }
      }
      return nullptr;
    }
    const auto* dict = get_if<Dict>();
    if (dict == nullptr) return nullptr;
    for (auto pair = dict->rbegin(); pair != dict->rend(); ++pair) {
      const auto* name = pair->first.get_if<std::string>();
      if (name != nullptr && *name == key) return &pair->second;
    }
    return nullptr;
  }
  /// As `find`; an InvalidArgument names the key that is not there.
  [[nodiscard]] const Value& at(std::string_view key) const {
    if (const Value* found = find(key)) return *found;
    throw InvalidArgument(concat(kind(), " has no entry '", key, "'"), {.key = std::string(key)});
  }
  /// Element `i` of a list or tuple.
  [[nodiscard]] const Value& at(std::size_t i) const {
    const List& elements = as_list();
    if (i < elements.size()) return elements[i];
    throw InvalidArgument(concat(kind(), " of ", elements.size(), " elements has no element ", i));
  }
  /// Sets a string key of a dict; None becomes a dict.
  void set(std::string_view key, Value value) {
    if (is_none()) data_ = Dict{};
    auto* dict = get_if<Dict>();
    if (dict == nullptr)
      throw InvalidArgument(concat("sets the entry '", key, "' of ", kind(), "; only a dict has entries"));
    if (const Value* found = find(key)) {
      *const_cast<Value*>(found) = std::move(value);
    } else {
      dict->emplace_back(Value(key), std::move(value));
    }
  }

  friend bool operator==(const Value& a, const Value& b);

 private:
  /// Rare and large alternatives lie elsewhere, so that a list of numbers takes 40 bytes for each.
  template <class T>
  class Boxed {
   public:
    explicit Boxed(T value) : value_(std::make_unique<T>(std::move(value))) {}
    Boxed(const Boxed& other) : value_(other.value_ ? std::make_unique<T>(*other.value_) : nullptr) {}
    Boxed(Boxed&&) noexcept = default;
    Boxed& operator=(Boxed other) noexcept {
      value_.swap(other.value_);
      return *this;
    }
    ~Boxed() = default;
    [[nodiscard]] const T* get() const noexcept { return value_.get(); }
    [[nodiscard]] friend bool operator==(const Boxed& a, const Boxed& b) {
      return a.value_ && b.value_ ? *a.value_ == *b.value_ : a.value_ == b.value_;
    }

   private:
    std::unique_ptr<T> value_;
  };
  using Data = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Bytes, List, Tuple, Dict,
                            Boxed<Tensor>, Boxed<Global>, Boxed<Instance>>;
  template <class T>
  Value(std::in_place_t, T&& value) : data_(std::forward<T>(value)) {}

  template <class T>
  [[nodiscard]] const T& expect(std::string_view wanted) const {
    if (const T* value = get_if<T>()) return *value;
    throw InvalidArgument(concat(kind(), " is used as ", wanted));
  }

  Data data_;
};

[[nodiscard]] inline bool operator==(const Value& a, const Value& b) { return a.data_ == b.data_; }

MGROUPS_END_NAMESPACE
