// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <mgroups/format/safetensors.hpp>

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <mgroups/io/posix.hpp>

#include "../../support/bytes.hpp"
#include "../../support/fixtures.hpp"
#include "support/sentences.hpp"

namespace mg = mgroups;
using namespace std::string_literals;

namespace {

// A folder of its own, removed in the end.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("mgroups_safetensors_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  [[nodiscard]] std::string path() const { return path_.string(); }
  void put(const std::string& name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
  }

 private:
  std::filesystem::path path_;
};

// A file in memory.
class MemoryFile : public mg::File {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes) : mg::File("mem.safetensors"), bytes_(bytes) {}
  void read_at(std::uint64_t offset, std::span<std::byte> out) override {
    REQUIRE(offset + out.size() <= bytes_.size());
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
  }
  void write_at(std::uint64_t, std::span<const std::byte>) override {}
  std::uint64_t size() override { return bytes_.size(); }
  void preallocate(std::uint64_t) override {}
  void sync() override {}
  void close() override {}

 private:
  std::span<const std::byte> bytes_;
};

std::string file_of(const std::string& header, std::size_t data_bytes) {
  std::string out;
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(header.size() >> (8 * i) & 0xFFu));
  return out + header + std::string(data_bytes, 'x');
}

mg::SafetensorsHeader parse(const std::string& text) {
  MemoryFile file(std::as_bytes(std::span(text)));
  return mg::read_safetensors_header(file);
}

std::string header_fault(const std::string& text) {
  try {
    static_cast<void>(parse(text));
  } catch (const mg::Error& e) {
    CHECK(e.context().file == "mem.safetensors");
    return e.what();
  }
  return {};
}

std::string open_fault(const std::string& path) {
  try {
    static_cast<void>(mg::open_safetensors(mg::posix_file_system(), path));
  } catch (const mg::FormatError& e) {
    return e.what();
  }
  return {};
}

std::vector<float> floats_of(const mg::SafetensorsModel& model, std::string_view name) {
  const auto& tensor = model.tensors.find(name)->second;
  std::vector<float> out(static_cast<std::size_t>(mg::numel(tensor.shape)), -1.0f);
  const auto strides = mg::row_major_strides(tensor.shape);
  for (const auto& part : tensor.parts) {
    const auto file = mg::posix_file_system().open_read(model.files[part.file]);
    std::vector<float> values(static_cast<std::size_t>(part.end - part.begin) / sizeof(float));
    file->read_at(part.begin, std::as_writable_bytes(std::span(values)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::int64_t rest = static_cast<std::int64_t>(i), to = 0;
      for (int axis = part.box.rank() - 1; axis >= 0; --axis) {
        to += (part.box.offsets[axis] + rest % part.box.sizes[axis]) * strides[axis];
        rest /= part.box.sizes[axis];
      }
      out[static_cast<std::size_t>(to)] = values[i];
    }
  }
  return out;
}

}  // namespace

TEST_CASE("safetensors: header rules of the format") {
  const auto one = [](const std::string& entry, std::size_t bytes = 24) { return file_of("{\"w\":" + entry + "}", bytes); };
  const std::string good = R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})";
  CHECK(parse(one(good)).entries.at(0).shape == mg::Dims{2, 3});
  CHECK(parse(one(good)).entries.at(0).begin == 8 + good.size() + 6);
  CHECK(parse(file_of("{}", 0)).entries.empty());
  CHECK(parse(file_of("{\"w\":" + good + "}   ", 24)).entries.size() == 1);
  CHECK(parse(one(R"({"dtype":"F32","shape":[],"data_offsets":[0,4]})", 4)).entries.at(0).shape == mg::Dims{});
  CHECK(parse(one(R"({"dtype":"F32","shape":[0,7],"data_offsets":[0,0],"extra":1})", 0)).entries.at(0).shape ==
        mg::Dims{0, 7});
  CHECK(parse(file_of(R"({"__metadata__":{"format":"pt"}})", 0)).metadata.at("format") == "pt");

  CHECK(contains(header_fault(""), "too few"));
  CHECK(contains(header_fault(std::string(7, 'x')), "too few"));
  CHECK(contains(header_fault(file_of("", 0)), "does not start with '{'"));
  CHECK(contains(header_fault(file_of(" {}", 0)), "does not start with '{'"));
  CHECK(contains(header_fault(file_of("{}\0"s, 0)), "lies behind the end"));
  CHECK(contains(header_fault("\xff\xff\xff\xff\xff\xff\xff\xff{}"s), "claims a header of 18446744073709551615 bytes"));
  CHECK(contains(header_fault("\x01\xe1\xf5\x05\0\0\0\0{}"s), "claims a header of 100000001 bytes"));
  CHECK(contains(header_fault("\x03\0\0\0\0\0\0\0{}"s), "it is cut"));
  CHECK(contains(header_fault(one(good, 23)), "bytes where its header needs"));
  CHECK(contains(header_fault(one(good, 25)), "longer than it should be"));
  CHECK(contains(header_fault(one(R"({"dtype":"F32","shape":[2,3],"data_offsets":[1,25]})", 25)), "bytes lie between"));
  CHECK(contains(header_fault(one(R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,23]})")), "cannot lie"));
  CHECK(contains(header_fault(one(R"({"dtype":"F32","shape":[2,3],"data_offsets":[24,0]})")), "cannot lie"));
  CHECK(contains(header_fault(one(R"({"dtype":"F32","shape":[2,3],"data_offsets":[0]})")), "pair"));
  CHECK(contains(header_fault(one(R"({"dtype":"F32","shape":[-2,3],"data_offsets":[0,24]})")), "at least 0"));
  CHECK(contains(header_fault(one(R"({"dtype":"F32","shape":[2.0,3],"data_offsets":[0,24]})")), "an integer must be"));
  CHECK(contains(
      header_fault(one(R"({"dtype":"F32","shape":[4611686018427387904,4611686018427387904,0],"data_offsets":[0,0]})", 0)),
      "no number of bytes"));
  CHECK(contains(header_fault(one(R"({"dtype":"F33","shape":[2,3],"data_offsets":[0,24]})")), "unknown type 'F33'"));
  CHECK(contains(header_fault(one(R"({"shape":[2,3],"data_offsets":[0,24]})")), "no member 'dtype'"));
  CHECK(contains(header_fault(one("[1]")), "where an object must be"));
  CHECK(contains(header_fault(file_of(R"({"__metadata__":{"a":1}})", 0)), "where a string must be"));
  const std::string entry = R"({"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  CHECK(contains(header_fault(file_of("{\"a\":" + entry + ",\"a\":" + entry + "}", 2)), "repeats the key 'a'"));
  CHECK(contains(header_fault(file_of("{\"a\":" + entry + ",\"b\":" + entry + "}", 4)), "overlap"));
}

TEST_CASE("safetensors: every type of the format") {
  const std::pair<const char*, const char*> types[] = {{"BOOL", "bool"},
                                                       {"U8", "uint8"},
                                                       {"I8", "int8"},
                                                       {"F8_E5M2", "float8_e5m2"},
                                                       {"F8_E4M3", "float8_e4m3fn"},
                                                       {"F8_E8M0", "float8_e8m0fnu"},
                                                       {"F8_E4M3FNUZ", "float8_e4m3fnuz"},
                                                       {"F8_E5M2FNUZ", "float8_e5m2fnuz"},
                                                       {"I16", "int16"},
                                                       {"U16", "uint16"},
                                                       {"F16", "float16"},
                                                       {"BF16", "bfloat16"},
                                                       {"I32", "int32"},
                                                       {"U32", "uint32"},
                                                       {"F32", "float32"},
                                                       {"C64", "complex64"},
                                                       {"F64", "float64"},
                                                       {"I64", "int64"},
                                                       {"U64", "uint64"}};
  for (const auto& [stored, dtype] : types) {
    const auto bytes = mg::size_of(*mg::dtype_from_name(dtype));
    const auto header =
        parse(file_of(mg::concat(R"({"w":{"dtype":")", stored, R"(","shape":[1],"data_offsets":[0,)", bytes, "]}}"), bytes));
    CHECK(mg::name(header.entries.at(0).element_type()) == dtype);
  }
  // Two values share a byte: torch's float4_e2m1fn_x2 counts bytes.
  const auto f4 = parse(file_of(R"({"w":{"dtype":"F4","shape":[3,4],"data_offsets":[0,6]}})", 6));
  CHECK(f4.entries.at(0).shape == mg::Dims{3, 2});
  CHECK(f4.entries.at(0).element_type() == mg::DType::float4_e2m1fn_x2);
  CHECK(contains(header_fault(file_of(R"({"w":{"dtype":"F4","shape":[4,3],"data_offsets":[0,6]}})", 6)),
                 "last axis of even size"));
  CHECK(
      contains(header_fault(file_of(R"({"w":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2)), "no number of bytes"));
  const auto f6 = parse(file_of(R"({"w":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", 3));
  CHECK(f6.entries.at(0).shape == mg::Dims{4});
  CHECK_THROWS_AS(static_cast<void>(f6.entries.at(0).element_type()), mg::UnsupportedError);
}

TEST_CASE("safetensors: DCP's shards and their consolidation hold the same tensors") {
  const auto shards = mgroups_test::fixture("hf_sharded_2ranks"), whole = mgroups_test::fixture("hf_consolidated");
  if (!shards || !whole) {
    MESSAGE("no fixtures here; skipped");
    return;
  }
  const auto a = mg::open_safetensors(mg::posix_file_system(), *shards);
  const auto b = mg::open_safetensors(mg::posix_file_system(), *whole);
  CHECK(a.tensors.size() == 3);
  CHECK(a.tensors.at("a").shape == mg::Dims{4, 3});
  CHECK(a.tensors.at("a").parts.size() == 2);
  CHECK(b.tensors.at("a").parts.size() == 1);
  for (const char* name : {"a", "b"}) CHECK(floats_of(a, name) == floats_of(b, name));
  CHECK(floats_of(b, "a") == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  CHECK(a.tensors.at("r").element_type("r") == mg::DType::bfloat16);
}

TEST_CASE("safetensors: the writer's layout, strided sources, round trip") {
  const Folder folder;
  std::vector<float> w{1, 2, 3, 4, 5, 6};
  std::vector<std::int64_t> s{7};
  std::vector<mg::NamedTensor> tensors;
  tensors.push_back({"w\"\xC3\xA9", {w.data(), mg::DType::float32, mg::Dims{3, 2}, mg::Dims{1, 3}}});
  tensors.push_back({"empty", {nullptr, mg::DType::bfloat16, mg::Dims{0, 3}, mg::Dims{3, 1}}});
  tensors.push_back({"s", {s.data(), mg::DType::int64, mg::Dims{}, mg::Dims{}}});
  tensors.push_back({"a", mg::view_of(w, mg::Dims{6})});
  mg::write_safetensors(mg::posix_file_system(), folder / "x.safetensors", tensors, {{"format", "pt"}});
  // As safetensors 0.8's save_file writes it: widest types first, then names, header padded with spaces to 8.
  std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"},\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
      "\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[8,32]},"
      "\"w\\\"\xC3\xA9\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[32,56]},"
      "\"empty\":{\"dtype\":\"BF16\",\"shape\":[0,3],\"data_offsets\":[56,56]}}";
  header.append((8 - header.size() % 8) % 8, ' ');
  std::string expected = file_of(header, 0);
  const std::vector<float> turned{1, 4, 2, 5, 3, 6};
  expected += mgroups_test::text_of(std::as_bytes(std::span(s))) + mgroups_test::text_of(std::as_bytes(std::span(w))) +
              mgroups_test::text_of(std::as_bytes(std::span(turned)));
  CHECK(mgroups_test::file_text(folder / "x.safetensors") == expected);
  const auto model = mg::open_safetensors(mg::posix_file_system(), folder / "x.safetensors");
  CHECK(floats_of(model, "w\"\xC3\xA9") == turned);
  CHECK(model.metadata.at("format") == "pt");
}

TEST_CASE("safetensors: sharded writing, its index, and what an index must not say") {
  const Folder folder;
  std::vector<float> values(60);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  std::vector<mg::NamedTensor> tensors;
  for (std::size_t i = 0; i < 6; ++i) {
    tensors.push_back({mg::concat("t", i), mg::view_of(std::span(values).subspan(i * 10, 10), mg::Dims{2, 5})});
  }
  auto& files = mg::posix_file_system();
  mg::write_safetensors_sharded(files, folder.path(), tensors, {}, 100);
  CHECK(files.list(folder.path()) ==
        std::vector<std::string>{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                 "model-00003-of-00003.safetensors", "model.safetensors.index.json"});
  const auto model = mg::open_safetensors(files, folder.path());
  CHECK(model.files.size() == 3);
  REQUIRE(model.tensors.size() == 6);
  CHECK(floats_of(model, "t5") == std::vector<float>(values.begin() + 50, values.end()));

  const std::string index = mgroups_test::file_text(folder / "model.safetensors.index.json");
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string changed = index;
    changed.replace(changed.find(from), from.size(), to);
    folder.put("model.safetensors.index.json", changed);
    return open_fault(folder.path());
  };
  CHECK(contains(with("model-00001-of-00003.safetensors", "../secret"),
                 "tensor 't0' is said to lie in '../secret', a path that leaves the folder by '..'"));
  CHECK(contains(with("model-00001-of-00003.safetensors", "/etc/passwd"), "is absolute"));
  CHECK(
      contains(with("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors"), "tensor 't0' should be here"));
  CHECK(contains(with("\"t0\"", "\"t9\""), "tensor 't9' should be here"));
  CHECK(contains(with("\"weight_map\"", "\"weight_mad\""), "no member 'weight_map'"));
  folder.put("model.safetensors.index.json", index);
  std::filesystem::remove(folder / "model-00002-of-00003.safetensors");
  CHECK(contains(open_fault(folder.path()),
                 "file 'model-00002-of-00003.safetensors', which should hold 2 tensors ('t2' for one), is missing"));

  const auto noted = mg::open_safetensors(files, folder.path(), mg::SafetensorsFaults::note);
  CHECK(noted.tensors.size() == 4);
  CHECK(noted.unreadable.size() == 2);
  CHECK(contains(noted.unreadable.at("t3"), "is missing"));
  CHECK(floats_of(noted, "t5") == std::vector<float>(values.begin() + 50, values.end()));
  std::filesystem::create_symlink("blobs/gone", folder / "model-00002-of-00003.safetensors");
  CHECK(contains(open_fault(folder.path()), "is a link to 'blobs/gone', which is missing"));
  std::filesystem::remove(folder / "model-00002-of-00003.safetensors");
  folder.put("model-00002-of-00003.safetensors", "");
  CHECK(contains(open_fault(folder.path()), "model-00002-of-00003.safetensors has 0 bytes"));

  // An index under another name is an authority too, and can be given itself.
  std::string two =
      R"({"weight_map": {"t0": "model-00001-of-00003.safetensors", "t4": "model-00003-of-00003.safetensors"}})";
  std::filesystem::remove(folder / "model.safetensors.index.json");
  folder.put("other.safetensors.index.json", two);
  CHECK(mg::open_safetensors(files, folder.path()).tensors.size() == 2);
  CHECK(mg::open_safetensors(files, folder / "other.safetensors.index.json").tensors.size() == 2);
  folder.put("third.safetensors.index.json", two);
  CHECK(
      contains(open_fault(folder.path()), "several indices, [other.safetensors.index.json, third.safetensors.index.json]"));

  const Folder* const same = &folder;
  std::filesystem::remove_all(same->path());
  std::filesystem::create_directories(same->path());
  CHECK(contains(open_fault(folder.path()), "holds no model.safetensors"));
  mg::write_safetensors_sharded(files, folder.path(), tensors, {}, 1'000'000);
  CHECK(files.list(folder.path()) == std::vector<std::string>{"model.safetensors"});
  CHECK(mg::open_safetensors(files, folder.path()).tensors.size() == 6);
}

TEST_CASE("safetensors: shards with holes, overlaps and foreign offsets") {
  const Folder folder;
  const auto shard = [&](const std::string& name, const std::string& offsets, const std::string& extra = "") {
    folder.put(name + ".safetensors",
               file_of(R"({"__metadata__":{"DCP_SHARDING_INFO":"{\"w\": {\"saved_offsets\": )" + offsets + extra +
                           R"(}}"},"w":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]}})",
                       6));
  };
  shard("a", "[0, 0]");
  shard("b", "[2, 0]");
  CHECK(open_fault(folder.path()).empty());
  CHECK(mg::open_safetensors(mg::posix_file_system(), folder.path()).tensors.at("w").shape == mg::Dims{4, 3});
  shard("b", "[3, 0]");
  CHECK(contains(open_fault(folder.path()), "is not covered"));
  shard("b", "[1, 0]");
  CHECK(contains(open_fault(folder.path()), "is stored twice"));
  shard("b", "[2]");
  CHECK(contains(open_fault(folder.path()), "one number for each axis"));
  shard("b", "[-2, 0]");
  CHECK(contains(open_fault(folder.path()), "is no offset"));
  shard("b", "[9223372036854775807, 0]");
  CHECK(contains(open_fault(folder.path()), "is no offset"));
  shard("b", "[2, 0]", R"(, \"global_shape\": [5, 3])");
  CHECK(contains(open_fault(folder.path()), "is not covered"));
}

TEST_CASE("safetensors: what cannot be written is refused before the file is made") {
  const Folder folder;
  auto& files = mg::posix_file_system();
  std::vector<std::byte> bytes(64);
  const auto refused = [&](std::vector<mg::NamedTensor> tensors) {
    try {
      mg::write_safetensors(files, folder / "x", tensors);
    } catch (const mg::Error& e) {
      CHECK_FALSE(std::filesystem::exists(folder / "x"));
      return std::string(e.what());
    }
    return std::string();
  };
  const auto view = [&](mg::DType dtype, const mg::Dims& shape) {
    return mg::TensorView{bytes.data(), dtype, shape, mg::row_major_strides(shape)};
  };
  CHECK(contains(refused({{"c", view(mg::DType::complex128, mg::Dims{2})}}), "no name"));
  CHECK(contains(refused({{"a", view(mg::DType::uint8, mg::Dims{2})}, {"a", view(mg::DType::uint8, mg::Dims{2})}}),
                 "two tensors are named 'a'"));
  CHECK(contains(refused({{"__metadata__", view(mg::DType::uint8, mg::Dims{2})}}), "__metadata__"));
  CHECK(contains(refused({{"\xFF", view(mg::DType::uint8, mg::Dims{2})}}), "UTF-8"));
  CHECK(contains(refused({{"f4", view(mg::DType::float4_e2m1fn_x2, mg::Dims{})}}), "needs an axis"));
  CHECK(contains(refused({{std::string(100'000'001, 'n'), view(mg::DType::uint8, mg::Dims{2})}}),
                 "larger than the 100000000 allowed"));
  auto device = view(mg::DType::uint8, mg::Dims{2});
  device.space = mg::MemorySpace::device;
  CHECK(contains(refused({{"d", device}}), "not in host memory"));
  // A producer that gives too little is caught at once.
  const std::vector<mg::SafetensorsItem> items{{"a", mg::DType::uint8, mg::Dims{4}}};
  CHECK_THROWS_AS(mg::write_safetensors(files, folder / "y", items, {},
                                        [&](std::size_t, auto&& sink) { sink(std::span(bytes).first(3)); }),
                  mg::InvalidArgument);
}

TEST_CASE("safetensors: every cut and every changed byte is refused or read") {
  const std::string text =
      file_of(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
              R"("b":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}})",
              26);
  const auto good = mgroups_test::bytes_of(text);
  mgroups_test::attack(good, [&](const std::vector<std::byte>& bad, std::size_t at) {
    CAPTURE(at);
    try {
      MemoryFile file(bad);
      for (const auto& entry : mg::read_safetensors_header(file).entries) {
        REQUIRE(entry.begin <= entry.end);
        REQUIRE(entry.end <= bad.size());
        if (entry.dtype)
          REQUIRE(entry.end - entry.begin == static_cast<std::uint64_t>(mg::numel(entry.shape)) * mg::size_of(*entry.dtype));
      }
    } catch (const mg::FormatError&) {
    } catch (const mg::UnsupportedError&) {
    }
  });
}
