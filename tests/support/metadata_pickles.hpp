// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mgroups/core/error.hpp>
#include <mgroups/format/torch_dist/metadata.hpp>
#include <mgroups/format/torch_dist/pickle.hpp>

namespace mgroups_test {

namespace mg = mgroups;
using Bytes = std::vector<std::byte>;

inline bool same(const mg::CheckpointMetadata& a, const mg::CheckpointMetadata& b) {
  return a.files == b.files && a.tensors == b.tensors && a.objects == b.objects && a.paths == b.paths &&
         a.original_shapes == b.original_shapes && a.left_out == b.left_out && a.unreadable == b.unreadable &&
         a.version == b.version && a.save_id == b.save_id && a.writer_class == b.writer_class;
}

using Read = mg::CheckpointMetadata(std::span<const std::byte>, std::string_view, const mg::MetadataFilter*);

/// What a reader makes of it; nothing where it throws.
inline std::optional<mg::CheckpointMetadata> made_by(Read& read, const Bytes& bytes,
                                                     const mg::MetadataFilter* filter = nullptr) {
  try {
    return read(bytes, "f", filter);
  } catch (const mg::Error&) {
    return std::nullopt;
  }
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

inline const std::string types = "torch.distributed.checkpoint.metadata",
                         storage = "torch.distributed.checkpoint.filesystem";

enum class Sharing { nothing, offsets, whole_chunks, infos, keys, one_number };

/// Two tensors, each of 100 chunks, of rank 1 and 4.
inline Bytes pickled(int protocol, Sharing sharing, bool frames = false) {
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

inline mg::CheckpointMetadata large(std::size_t tensors, std::int64_t chunks) {
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

}  // namespace mgroups_test
