// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/format/torch_dist/stored_tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <mgroups/format/torch_dist/archive_writer.hpp>

#include "../../../support/bytes.hpp"
#include "../../../support/checkpoints.hpp"
#include "support/sentences.hpp"

namespace mg = mgroups;
using namespace std::string_view_literals;

namespace {

struct Description {
  std::string function = "_rebuild_tensor_v2";
  std::string storage_module = "torch", storage_class = "FloatStorage";
  std::int64_t numel = 24, offset = 0;
  std::vector<std::int64_t> size = {4, 6}, stride = {6, 1};
  std::size_t record_bytes = 96;
  std::string dtype = {};  // for v3
  bool conjugated = false;
};

std::vector<std::byte> described(const Description& d) {
  std::vector<std::byte> pickle;
  mg::PickleWriter w(pickle);
  w.protocol().global("torch._utils", d.function).mark();
  w.mark()
      .text("storage")
      .global(d.storage_module, d.storage_class)
      .text("0")
      .text("cuda:0")
      .integer(d.numel)
      .marked_tuple()
      .persistent_id();
  w.integer(d.offset).integers(d.size).integers(d.stride).boolean(true).empty_ordered_dict();
  if (!d.dtype.empty()) w.global("torch", d.dtype);
  if (d.conjugated) w.empty_dict().mark().text("conj").boolean(true).set_items();
  w.marked_tuple().reduce().stop();
  mg::ObjectArchive archive(pickle);
  archive.add("data/0", std::vector<std::byte>(d.record_bytes));
  return archive.finish();
}

mg::StoredTensor read(const Description& d) {
  const auto bytes = described(d);
  return mg::read_tensor_archive(bytes, bytes.size(), "f.distcp", "w");
}

std::string tensor_fault(const Description& d) {
  try {
    static_cast<void>(read(d));
  } catch (const mg::Error& e) {
    CHECK(e.context().key == "w");
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("stored tensor: strides and offset of the stored view") {
  const auto turned = read({.size = {6, 4}, .stride = {1, 6}});
  CHECK(turned.strides == mg::Dims{1, 6});
  CHECK_FALSE(turned.contiguous());
  const auto part = read({.offset = 8, .size = {2, 3}, .stride = {6, 1}});
  CHECK(part.data_offset == part.storage_begin + 32);
  CHECK(part.storage_bytes == 96);
  const auto spread = read({.size = {5, 24}, .stride = {0, 1}});  // expanded
  CHECK(spread.strides == mg::Dims{0, 1});
  CHECK(read({.offset = 99, .size = {0, 3}, .stride = {3, 1}}).shape == mg::Dims{0, 3});
  CHECK(read({.offset = 23, .size = {}, .stride = {}}).shape == mg::Dims{});
  const auto newer = read({.function = "_rebuild_tensor_v3",
                           .storage_module = "torch.storage",
                           .storage_class = "UntypedStorage",
                           .numel = 96,
                           .offset = 2,
                           .size = {46},
                           .stride = {1},
                           .dtype = "uint16"});
  CHECK(newer.dtype == mg::DType::uint16);
  CHECK(newer.data_offset == newer.storage_begin + 4);
}

TEST_CASE("stored tensor: what leaves the storage is refused") {
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  const std::string_view leaves = "leaves its storage of 24 elements";
  CHECK(contains(tensor_fault({.offset = 1}), leaves));
  CHECK(contains(tensor_fault({.offset = 24, .size = {}, .stride = {}}), leaves));
  CHECK(contains(tensor_fault({.stride = {7, 1}}), leaves));
  CHECK(contains(tensor_fault({.stride = {huge, huge}}), leaves));
  CHECK(contains(tensor_fault({.offset = huge}), leaves));
  CHECK(contains(tensor_fault({.size = {huge, huge}, .stride = {0, 0}}), "too many elements"));
  CHECK(contains(tensor_fault({.stride = {-6, 1}}), "where a stride must be"));
  CHECK(contains(tensor_fault({.size = {-1, 1}}), "where a size must be"));
  CHECK(contains(tensor_fault({.offset = -1}), "where a storage offset must be"));
  CHECK(contains(tensor_fault({.stride = {1}}), "of different lengths"));
  CHECK(contains(tensor_fault({.numel = 25}), "claims a storage of 25 elements of float32, but its record has 96 bytes"));
  CHECK(contains(tensor_fault({.numel = huge}), "claims a storage"));
  CHECK(contains(tensor_fault({.record_bytes = 95}), "its record has 95 bytes"));
  CHECK(contains(tensor_fault({.size = std::vector<std::int64_t>(17, 1), .stride = std::vector<std::int64_t>(17, 1)}),
                 "more than 16 axes"));
}

TEST_CASE("stored tensor: what is no dense tensor of a known dtype is refused by name") {
  CHECK(contains(tensor_fault({.function = "_rebuild_sparse_tensor"}), "_rebuild_sparse_tensor"));
  CHECK(contains(tensor_fault({.storage_class = "QInt8Storage"}), "torch.QInt8Storage"));
  CHECK(contains(tensor_fault({.storage_module = "evil"}), "evil.FloatStorage"));
  CHECK(contains(tensor_fault({.conjugated = true}), "pending operations {'conj': True}"));
  CHECK(contains(tensor_fault({.function = "_rebuild_tensor_v3",
                        .storage_module = "torch.storage",
                        .storage_class = "UntypedStorage",
                        .numel = 96,
                        .dtype = "int4"}),
                 "torch.int4"));
}

TEST_CASE("stored tensor: through a callback, only the ends are read") {
  mg::TensorArchive archive(mg::DType::float32, mg::Dims{1000, 1000});
  std::vector<std::byte> bytes(archive.head().begin(), archive.head().end());
  bytes.resize(bytes.size() + archive.data_size());
  const auto tail = archive.tail(5);
  bytes.insert(bytes.end(), tail.begin(), tail.end());
  std::size_t calls = 0, read_bytes = 0;
  const auto read_at = [&](std::uint64_t offset, std::span<std::byte> out) {
    REQUIRE(offset + out.size() <= bytes.size());
    ++calls;
    read_bytes += out.size();
    std::memcpy(out.data(), bytes.data() + offset, out.size());
  };
  const auto stored = mg::read_tensor_archive(read_at, bytes.size(), "f.distcp", "w");
  CHECK(stored.shape == mg::Dims{1000, 1000});
  CHECK(stored.crc == 5);
  CHECK(calls == 2);
  CHECK(read_bytes == 2048);
}

TEST_CASE("stored tensor: big-endian archives say so") {
  auto bytes = described({});
  std::string text = mgroups_test::text_of(bytes);
  // Same length, so that only checksums have to follow; 0 means that none was computed.
  const std::size_t at = text.find("little");
  text.replace(at, 6, "middle");
  std::size_t entry = text.rfind("archive/byteorder") - 46;
  for (std::size_t i = 0; i < 4; ++i) text[entry + 16 + i] = '\0';
  bytes = mgroups_test::bytes_of(text);
  CHECK_THROWS_WITH_AS(static_cast<void>(mg::read_tensor_archive(bytes, bytes.size(), "f", "w")),
                       doctest::Contains("byte order 'middle'"), mg::FormatError);
}

TEST_CASE("stored tensor: every cut and every changed byte of torch's and of our archives is refused or read right") {
  std::vector<std::vector<std::byte>> archives;
  mg::TensorArchive own(mg::DType::float32, mg::Dims{2, 3});
  archives.emplace_back(own.head().begin(), own.head().end());
  archives.back().resize(own.head().size() + 24);
  const auto tail = own.tail(mg::crc32(std::vector<std::byte>(24)));
  archives.back().insert(archives.back().end(), tail.begin(), tail.end());
  for (const char* folder : {"torch2.14_strided_tensors", "torch1.13_py3.11.2_basic"}) {
    if (const auto path = mgroups_test::fixture(folder)) {
      mgroups_test::PlainCheckpoint checkpoint(*path);
      const auto item = checkpoint.item(checkpoint.metadata.tensors.begin()->second.chunk_storage(0));
      archives.emplace_back(item.begin(), item.end());
    }
  }
  for (const auto& good : archives) {
    std::size_t read = 0;
    mgroups_test::attack(good, [&](const std::vector<std::byte>& bad, std::size_t at) {
      CAPTURE(at);
      try {
        const auto stored = mg::read_tensor_archive(bad, bad.size(), "f", "w");
        ++read;
        // Whatever was read, it lies inside.
        REQUIRE(stored.storage_begin + stored.storage_bytes <= bad.size());
        if (mg::numel(stored.shape) == 0) return;
        std::uint64_t last = stored.data_offset;
        for (int axis = 0; axis < stored.shape.rank(); ++axis) {
          last += static_cast<std::uint64_t>((stored.shape[axis] - 1) * stored.strides[axis]) * mg::size_of(stored.dtype);
        }
        CHECK(stored.data_offset >= stored.storage_begin);
        CHECK(last + mg::size_of(stored.dtype) <= stored.storage_begin + stored.storage_bytes);
      } catch (const mg::FormatError&) {
      } catch (const mg::UnsupportedError&) {
      }
    });
    CHECK(read > 0);
  }
}
