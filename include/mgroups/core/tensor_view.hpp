// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <mgroups/core/box.hpp>
#include <mgroups/core/dims.hpp>
#include <mgroups/core/dtype.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/memory.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// A tensor that somebody else owns: address, dtype, shape and strides in elements. Cheap to copy; nothing is freed.
/// `data` is the address of element (0, ..., 0) and may be null when the tensor has no element.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::float32;
  Dims shape;
  Dims strides;
  MemorySpace space = MemorySpace::host;
  void* stream = nullptr;  ///< the stream whose work produces the data; unused in host memory

  [[nodiscard]] std::int64_t numel() const noexcept { return mgroups::numel(shape); }
  [[nodiscard]] std::size_t nbytes() const noexcept { return static_cast<std::size_t>(numel()) * size_of(dtype); }
  [[nodiscard]] bool contiguous() const noexcept { return is_contiguous(shape, strides); }

  /// The part `box` of this tensor, sharing its memory. Throws InvalidArgument when the box leaves the shape.
  [[nodiscard]] TensorView part(const Box& box) const {
    if (const auto fault = box_fault(box, shape)) throw InvalidArgument(concat("no such part of a tensor: ", *fault));
    TensorView out = *this;
    out.shape = box.sizes;
    if (out.numel() == 0 || data == nullptr) return out;
    std::int64_t offset = 0;
    for (int axis = 0; axis < shape.rank(); ++axis) offset += box.offsets[axis] * strides[axis];
    out.data = static_cast<std::byte*>(data) + offset * static_cast<std::int64_t>(size_of(dtype));
    return out;
  }
};

/// A row-major tensor in host memory. Throws InvalidArgument when the span's length is not the shape's number of elements.
template <tensor_element T>
[[nodiscard]] TensorView view_of(std::span<T> values, const Dims& shape) {
  const auto n = checked_numel(shape);
  if (!n || static_cast<std::uint64_t>(*n) != values.size()) {
    throw InvalidArgument(concat("a buffer of ", values.size(), " elements cannot be seen as shape ", to_string(shape)));
  }
  return {const_cast<std::remove_const_t<T>*>(values.data()), dtype_of<T>, shape, row_major_strides(shape)};
}

/// A row-major tensor over a vector, which must outlive it and not grow meanwhile.
template <tensor_element T>
[[nodiscard]] TensorView view_of(std::vector<T>& values, const Dims& shape) {
  return view_of(std::span<T>(values), shape);
}

/// How a tensor handle of type `T` is seen as a `TensorView`. Specialise it for your own tensor class:
/// `template <> struct mgroups::tensor_traits<MyTensor> { static TensorView view(const MyTensor&); };`
template <class T>
struct tensor_traits;

template <>
struct tensor_traits<TensorView> {
  [[nodiscard]] static TensorView view(const TensorView& tensor) { return tensor; }
};

template <tensor_element T>
struct tensor_traits<std::span<T>> {
  [[nodiscard]] static TensorView view(std::span<T> values) {
    return view_of(values, Dims{static_cast<std::int64_t>(values.size())});
  }
};

template <tensor_element T>
  requires(!std::same_as<T, bool>)
struct tensor_traits<std::vector<T>> {
  [[nodiscard]] static TensorView view(const std::vector<T>& values) {
    return view_of(std::span<const T>(values), Dims{static_cast<std::int64_t>(values.size())});
  }
};

template <tensor_element T>
struct tensor_traits<device_span<T>> {
  [[nodiscard]] static TensorView view(device_span<T> values) {
    const Dims shape{static_cast<std::int64_t>(values.size())};
    return {const_cast<std::remove_const_t<T>*>(values.data()), dtype_of<T>, shape, row_major_strides(shape),
            MemorySpace::device};
  }
};

/// A type that `tensor_traits` knows how to look at.
template <class T>
concept tensor_handle = requires(const T& tensor) {
  { tensor_traits<T>::view(tensor) } -> std::same_as<TensorView>;
};

MGROUPS_END_NAMESPACE
