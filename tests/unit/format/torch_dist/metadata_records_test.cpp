// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
//
// A `.metadata` is read in one of two ways, of records or of the whole tree: they agree, on every file and on every pickle.
#include <mgroups/format/torch_dist/metadata.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "../../../support/bytes.hpp"
#include "../../../support/fixtures.hpp"
#include "support/sentences.hpp"

namespace mg = mgroups;
using Bytes = std::vector<std::byte>;

namespace {

bool same(const mg::CheckpointMetadata& a, const mg::CheckpointMetadata& b) {
  return a.files == b.files && a.tensors == b.tensors && a.objects == b.objects && a.paths == b.paths &&
         a.original_shapes == b.original_shapes && a.left_out == b.left_out && a.unreadable == b.unreadable &&
         a.version == b.version && a.save_id == b.save_id && a.writer_class == b.writer_class;
}

using Read = mg::CheckpointMetadata(std::span<const std::byte>, std::string_view, const mg::MetadataFilter*);

/// What a reader makes of it; nothing where it throws.
std::optional<mg::CheckpointMetadata> made_by(Read& read, const Bytes& bytes, const mg::MetadataFilter* filter = nullptr) {
  try {
    return read(bytes, "f", filter);
  } catch (const mg::Error&) {
    return std::nullopt;
  }
}

std::size_t node_count(const Bytes& bytes, const mg::MetadataFilter* filter = nullptr) {
  mg::detail::PickleTree tree{{}, {}, bytes, "f"};
  mg::detail::MetadataMemo memo;
  static_cast<void>(
      mg::detail::PickleMachine<mg::detail::MetadataBuilder>(tree, mg::PersistentIds::refused, memo, filter).run());
  return tree.nodes.size();
}

/// Pickles as CPython does: every value is stored in the memo, and what occurs again is fetched.
class Pickler {
 public:
  explicit Pickler(int protocol) : protocol_(protocol) { raw({0x80, protocol}); }
  Bytes out;

  void op(char code) { out.push_back(static_cast<std::byte>(code)); }
  void raw(std::initializer_list<int> bytes) {
    for (const int byte : bytes) out.push_back(static_cast<std::byte>(byte));
  }
  std::uint32_t put() {
    if (protocol_ >= 4) {
      raw({0x94});
    } else {
      numbered('q', 'r', memo_);
    }
    return memo_++;
  }
  void put_again(std::uint32_t number) { numbered('q', 'r', number); }
  void get(std::uint32_t number) { numbered('h', 'j', number); }
  void frame() {  // empty ones do no harm
    raw({0x95, 0, 0, 0, 0, 0, 0, 0, 0});
  }

  void integer(std::int64_t value) {
    mg::PickleWriter w(out);
    pass(w.integer(value));
  }
  void text(const std::string& value, bool again = true) {
    if (const auto known = texts_.find(value); again && known != texts_.end()) return get(known->second);
    if (protocol_ >= 4) {
      raw({0x8c, static_cast<int>(value.size())});
    } else {
      raw({'X', static_cast<int>(value.size()), 0, 0, 0});
    }
    for (const char c : value) op(c);
    texts_[value] = put();
  }
  void global(const std::string& module, const std::string& name) {
    const std::string whole = module + "\n" + name + "\n";
    if (const auto known = globals_.find(whole); known != globals_.end()) return get(known->second);
    if (protocol_ >= 4) {
      text(module);
      text(name);
      raw({0x93});
    } else {
      op('c');
      for (const char c : whole) op(c);
    }
    globals_[whole] = put();
  }
  std::uint32_t size(const std::vector<std::int64_t>& values) {
    global("torch", "Size");
    if (values.size() > 3) op('(');
    for (const std::int64_t value : values) integer(value);
    constexpr int ops[] = {')', 0x85, 0x86, 0x87};
    raw({values.size() > 3 ? 't' : ops[values.size()]});
    if (!values.empty()) put();
    raw({0x85});
    put();
    op('R');
    return put();
  }
  /// An instance; `fill` pushes attributes. Returns its number.
  std::uint32_t object(const std::string& module, const std::string& name, const std::function<void()>& fill) {
    global(module, name);
    op(')');
    raw({0x81});
    const std::uint32_t number = put();
    op('}');
    put();
    op('(');
    fill();
    op('u');
    op('b');
    return number;
  }

 private:
  void numbered(char narrow, char wide, std::uint32_t number) {
    op(number < 256 ? narrow : wide);
    for (int i = 0; i < (number < 256 ? 1 : 4); ++i) raw({static_cast<int>(number >> 8 * i & 0xFF)});
  }
  void pass(mg::PickleWriter& w) {  // sends what it holds, and a STOP
    w.stop();
    out.pop_back();
  }

  int protocol_;
  std::uint32_t memo_ = 0;
  std::map<std::string, std::uint32_t> texts_, globals_;
};

const std::string types = "torch.distributed.checkpoint.metadata", storage = "torch.distributed.checkpoint.filesystem";

enum class Sharing { nothing, offsets, whole_chunks, infos, keys, one_number };

/// Two tensors, each of 100 chunks, of rank 1 and 4.
Bytes pickled(int protocol, Sharing sharing, bool frames = false) {
  Pickler p(protocol);
  constexpr std::int64_t chunk_count = 100;
  std::map<std::string, std::vector<std::uint32_t>> shared_offsets;
  std::uint32_t shared_chunk = 0;
  const std::map<std::string, std::size_t> tensors{{"a", 1}, {"b", 4}};
  const auto offset_of = [](std::int64_t i, std::size_t rank) {
    std::vector<std::int64_t> out(rank, 0);
    out[0] = 1000 * i;
    return out;
  };
  p.object(types, "Metadata", [&] {
    p.text("state_dict_metadata");
    p.op('}');
    p.put();
    p.op('(');
    for (const auto& [key, rank] : tensors) {
      p.text(key);
      p.object(types, "TensorStorageMetadata", [&] {
        p.text("properties");
        p.global(types, "TensorProperties");
        p.raw({')', 0x81});
        p.put();
        p.op('(');
        p.global("torch", "float32");
        p.raw({'N', 0x89, 'N', 0x89, 't'});
        p.put();
        p.op('b');
        p.text("size");
        std::vector<std::int64_t> shape(rank, 1);
        shape[0] = 1000 * chunk_count;
        p.size(shape);
        p.text("chunks");
        p.op(']');
        p.put();
        p.op('(');
        for (std::int64_t i = 0; i < chunk_count; ++i) {
          if (frames && i % 7 == 0) p.frame();
          const std::uint32_t chunk = p.object(types, "ChunkStorageMetadata", [&] {
            p.text("offsets");
            shared_offsets[key].push_back(p.size(offset_of(i, rank)));
            p.text("sizes");
            if (frames && i % 11 == 0) p.frame();
            std::vector<std::int64_t> sizes(rank, 1);
            sizes[0] = 1000;
            p.size(sizes);
          });
          if (i == 50) shared_chunk = chunk;
        }
        // The chunk's object again: two chunks at one place, which is a fault.
        if (sharing == Sharing::whole_chunks) p.get(shared_chunk);
        p.op('e');
      });
    }
    p.op('u');
    p.text("storage_data");
    p.op('}');
    p.put();
    p.op('(');
    std::uint32_t info = 0;
    for (const auto& [key, rank] : tensors) {
      for (std::int64_t i = 0; i < chunk_count; ++i) {
        p.object(types, "MetadataIndex", [&] {
          p.text("fqn");
          p.text(key, sharing == Sharing::keys);
          p.text("index");
          p.integer(i);
          p.text("offset");
          if (sharing == Sharing::offsets) {
            p.get(shared_offsets[key][static_cast<std::size_t>(i)]);
          } else {
            p.size(offset_of(i, rank));
          }
        });
        if (sharing == Sharing::infos && i % 2 == 1) {
          p.get(info);
          continue;
        }
        info = p.object(storage, "_StorageInfo", [&] {
          p.text("relative_path");
          const std::string path = "__" + std::to_string(i % 5) + "_0.distcp";
          if (sharing == Sharing::one_number && i % 2 == 1) {
            p.get(250);
          } else {
            p.text(path, sharing != Sharing::one_number);
          }
          if (sharing == Sharing::one_number && i % 2 == 0) p.put_again(250);
          p.text("offset");
          p.integer(i << (i % 40));
          p.text("length");
          p.integer(4096);
          if (i % 3 == 0) {
            p.text("transform_descriptors");
            p.op('N');
          }
        });
      }
    }
    p.op('u');
  });
  p.op('.');
  return p.out;
}

mg::CheckpointMetadata large(std::size_t tensors, std::int64_t chunks) {
  mg::CheckpointMetadata m;
  for (int i = 0; i < 16; ++i) m.files.push_back(mg::concat("__", i, "_0.distcp"));
  for (std::size_t t = 0; t < tensors; ++t) {
    mg::TensorEntry entry(mg::DType::bfloat16, {8 * chunks, 4});
    for (std::int64_t i = 0; i < chunks; ++i) {
      entry.add_chunk({{8 * i, 0}, {8, 4}}, {static_cast<std::uint32_t>(i % 16), 64 * t, 64});
    }
    const std::string key = mg::concat("layers.", t, ".weight");
    m.paths[key] = {key};
    m.tensors.emplace(key, std::move(entry));
  }
  m.objects.emplace("rng", mg::StorageInfo{0, 1 << 20, 10});
  m.paths["rng"] = {std::string("rng")};
  return m;
}

}  // namespace

TEST_CASE("metadata records: every file of the fixtures is read as from the whole tree") {
  std::size_t files = 0;
  for (const char* folder : {".", "../cases"}) {
    const auto root = mgroups_test::fixture(folder);
    if (!root) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(*root)) {
      if (!entry.is_regular_file() || !entry.path().filename().string().ends_with(".metadata")) continue;
      CAPTURE(entry.path().string());
      const Bytes bytes = mgroups_test::file_bytes(entry.path().string());
      const auto plain = made_by(mg::detail::read_plain_metadata, bytes);
      const auto condensed = made_by(mg::detail::read_condensed_metadata, bytes);
      REQUIRE(plain.has_value() == condensed.has_value());
      if (!plain) continue;
      CHECK(same(*plain, *condensed));
      // A filter that wants all of them changes nothing.
      mg::MetadataFilter all;
      for (const auto& [key, tensor] : plain->tensors) all.want(key);
      for (const auto& [key, reason] : plain->unreadable) all.want(key);
      CHECK(same(*plain, mg::parse_metadata(bytes, "f", all)));
      ++files;
    }
  }
  if (files == 0) MESSAGE("no fixtures here; skipped");
  CHECK((files == 0 || files > 20));
}

TEST_CASE("metadata records: values that a pickle shares, in the protocols of CPython") {
  for (const int protocol : {2, 4, 5}) {
    for (const auto sharing : {Sharing::nothing, Sharing::offsets, Sharing::infos, Sharing::keys}) {
      for (const bool frames : {false, true}) {
        if (frames && protocol < 4) continue;
        CAPTURE(protocol);
        CAPTURE(static_cast<int>(sharing));
        const Bytes bytes = pickled(protocol, sharing, frames);
        const auto plain = made_by(mg::detail::read_plain_metadata, bytes);
        REQUIRE(plain.has_value());
        const auto condensed = made_by(mg::detail::read_condensed_metadata, bytes);
        REQUIRE(condensed.has_value());
        CHECK(same(*plain, *condensed));
        CHECK(condensed->tensors.at("b").chunk_count() == 100);
        CHECK(condensed->tensors.at("a").chunk_storage(70).offset == std::uint64_t{70} << 30);
        // 400 tuples of numbers, where they are shared; some 70 nodes for each chunk in the tree.
        CHECK(node_count(bytes) < 4000);
      }
    }
    const Bytes twice = pickled(protocol, Sharing::whole_chunks);
    CHECK_FALSE(made_by(mg::detail::read_condensed_metadata, twice).has_value());
    CHECK_THROWS_WITH_AS(static_cast<void>(mg::parse_metadata(twice, "f")), doctest::Contains("has two chunks at offset"),
                         mg::FormatError);
  }
}

// What a record refers to is looked up when the record is read: by then the number may stand for another value.
TEST_CASE("metadata records: a number of the memo that is given to one value after the other") {
  const Bytes bytes = pickled(2, Sharing::one_number);
  const auto plain = made_by(mg::detail::read_plain_metadata, bytes);
  REQUIRE(plain.has_value());
  CHECK(plain->files.size() == 5);
  CHECK(same(*plain, mg::parse_metadata(bytes, "f")));
}

TEST_CASE("metadata records: no change of a byte makes the two readers differ") {
  const Bytes whole = mg::write_metadata(large(2, 3));
  for (const Bytes& good : {whole, pickled(4, Sharing::offsets), pickled(2, Sharing::nothing)}) {
    mgroups_test::attack(
        good,
        [&](const Bytes& bad, std::size_t at) {
          CAPTURE(at);
          const auto condensed = made_by(mg::detail::read_condensed_metadata, bad);
          if (!condensed) return;  // then the other one speaks
          const auto plain = made_by(mg::detail::read_plain_metadata, bad);
          REQUIRE(plain.has_value());
          REQUIRE(same(*plain, *condensed));
        },
        good.size() > 5000 ? 97 : 5);
  }
}

TEST_CASE("metadata records: a chunk of many takes three nodes of the tree, one that is not wanted takes one") {
  const auto metadata = large(100, 300);
  const Bytes bytes = mg::write_metadata(metadata);
  CHECK(node_count(bytes) < 3 * 30000 + 5000);
  mg::MetadataFilter one;
  one.want("layers.7.weight");
  CHECK(node_count(bytes, &one) < 30000 + 3 * 300 + 5000);
}

TEST_CASE("metadata filter: what is wanted is read, and the keys of the rest") {
  const auto whole = large(10, 40);
  const Bytes bytes = mg::write_metadata(whole);
  mg::MetadataFilter filter;
  filter.want("layers.3.weight");
  filter.want("layers.5.weight", {{20, 0}, {8, 4}});
  filter.want("layers.5.weight", {{100, 1}, {1, 1}});
  filter.want("layers.6.weight", {{0, 0}, {0, 4}});
  filter.want("layers.8.weight", {{0, 0, 0}, {1, 1, 1}});
  filter.want("absent");
  for (Read* read : {&mg::detail::read_condensed_metadata, &mg::detail::read_plain_metadata}) {
    const auto part = read(bytes, "f", &filter);
    CHECK(part.left_out == std::vector<std::string>{"layers.0.weight", "layers.1.weight", "layers.2.weight",
                                                    "layers.4.weight", "layers.7.weight", "layers.9.weight"});
    CHECK(part.objects.size() == 1);
    CHECK(part.paths.size() == 5);
    CHECK(part.paths.at("rng") == whole.paths.at("rng"));
    REQUIRE(part.tensors.size() == 4);
    CHECK(part.tensors.at("layers.3.weight").chunk_count() == 40);
    CHECK(part.tensors.at("layers.6.weight").chunk_count() == 0);
    CHECK(part.tensors.at("layers.8.weight").chunk_count() == 40);
    const auto& some = part.tensors.at("layers.5.weight");
    CHECK(some.shape == mg::Dims{320, 4});
    REQUIRE(some.chunk_count() == 3);
    std::size_t i = 0;
    for (const std::size_t chunk : {2, 3, 12}) {
      const auto& all = whole.tensors.at("layers.5.weight");
      CHECK(some.chunk_box(i) == all.chunk_box(chunk));
      CHECK(part.files[some.chunk_storage(i).file] == whole.files[all.chunk_storage(chunk).file]);
      CHECK(some.chunk_storage(i).offset == all.chunk_storage(chunk).offset);
      ++i;
    }
  }
}

TEST_CASE("metadata filter: more parts than are told apart keep at least what they touch") {
  const auto whole = large(1, 64);
  mg::MetadataFilter filter;
  for (std::int64_t i = 0; i < 20; ++i) filter.want("layers.0.weight", {{24 * i, 0}, {1, 4}});
  const auto part = mg::parse_metadata(mg::write_metadata(whole), "f", filter);
  const auto& kept = part.tensors.at("layers.0.weight");
  std::size_t found = 0;
  for (std::size_t i = 0; i < kept.chunk_count(); ++i) found += kept.offsets(i)[0] % 24 == 0 && kept.offsets(i)[0] < 480;
  CHECK(found == 20);
  CHECK(kept.chunk_count() < 64);
}

TEST_CASE("metadata filter: faults are found in what is wanted, by the same sentence") {
  auto metadata = large(2, 4);
  metadata.tensors.at("layers.1.weight").shape = mg::Dims{31, 4};
  const Bytes bytes = mg::write_metadata(metadata);
  mg::MetadataFilter good, bad;
  good.want("layers.0.weight");
  bad.want("layers.1.weight", {{0, 0}, {1, 1}});
  CHECK(mg::parse_metadata(bytes, "f", good).left_out == std::vector<std::string>{"layers.1.weight"});
  const auto fault = [&](auto&&... filter) {
    try {
      static_cast<void>(mg::parse_metadata(bytes, "f", filter...));
    } catch (const mg::FormatError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(contains(fault(), "'layers.1.weight' has a chunk that is no part of it"));
  CHECK(fault() == fault(bad));
}
