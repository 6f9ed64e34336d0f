// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <mgroups/core/block_checksums.hpp>
#include <mgroups/core/crc32.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/core/text.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

/// The checksums of a checkpoint's files, which lie beside them in a file of ours that other readers ignore:
///
///     mgroups checksums 1
///     save 0123456789abcdef
///     block 262144
///     file 2097153 11111111 22222222 33333333 __0_0.distcp
///     end 44444444
///
/// A line "file" has the file's length in bytes, the CRC-32 of each block and its name; "end" has the CRC-32 of all that
/// stands before it.
struct ChecksumFile {
  static constexpr std::string_view name = "mgroups_checksums.txt";

  std::string save_id;  ///< that of the `.metadata` which they belong to
  std::map<std::string, BlockChecksums, std::less<>> files;
};

namespace detail {

inline constexpr std::string_view checksum_title = "mgroups checksums 1";

inline void append_hex(std::string& out, std::uint32_t value) {
  for (int shift = 28; shift >= 0; shift -= 4) out += "0123456789abcdef"[value >> shift & 15u];
}

class ChecksumParser {
 public:
  ChecksumParser(std::span<const std::byte> bytes, std::string_view file_name)
      : text_(reinterpret_cast<const char*>(bytes.data()), bytes.size()), file_(file_name) {}

  [[nodiscard]] ChecksumFile parse() {
    const std::size_t end = text_.rfind("end ");
    if (!text_.starts_with(checksum_title) || end == std::string_view::npos || text_.size() - end != 13 ||
        text_.back() != '\n') {
      fail("is cut short or is no file of checksums");
    }
    std::string_view last = text_.substr(end + 4);
    const auto head = std::as_bytes(std::span(text_.substr(0, end)));
    if (hex(last) != crc32(head)) fail("does not match its own checksum");
    rest_ = text_.substr(0, end);

    ChecksumFile out;
    expect_line(checksum_title);
    std::string_view save = line("save ");
    out.save_id = save;
    if (number(line("block ")) != BlockChecksums::block_bytes) fail("has blocks of a size that this version does not know");
    while (!rest_.empty()) read_file(line("file "), out);
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw FormatError(
        concat(file_, ' ', what, "; if it is this file alone that is damaged, load without verifying checksums"),
        {.file = std::string(file_)});
  }
  std::string_view line(std::string_view start) {
    const std::size_t end = rest_.find('\n');
    if (end == std::string_view::npos || !rest_.starts_with(start))
      fail(concat("has no line '", start, "' where one must be"));
    const std::string_view out = rest_.substr(start.size(), end - start.size());
    rest_.remove_prefix(end + 1);
    return out;
  }
  void expect_line(std::string_view whole) {
    if (!line(whole).empty()) fail("starts with a line that this version does not know");
  }
  [[nodiscard]] std::uint64_t number(std::string_view text) const {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) fail("has a number that is none");
    return value;
  }
  /// Takes eight digits and what follows them.
  std::uint32_t hex(std::string_view& text) const {
    std::uint32_t value = 0;
    if (text.size() < 9) fail("has a checksum that is cut short");
    const auto [end, error] = std::from_chars(text.data(), text.data() + 8, value, 16);
    if (error != std::errc{} || end != text.data() + 8 || (text[8] != ' ' && text[8] != '\n')) {
      fail("has a checksum that is none");
    }
    text.remove_prefix(9);
    return value;
  }
  void read_file(std::string_view text, ChecksumFile& out) {
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos) fail("has a line 'file' without a name");
    BlockChecksums sums;
    sums.file_bytes = number(text.substr(0, space));
    text.remove_prefix(space + 1);
    // Each takes nine bytes of the text: more cannot be there.
    const std::uint64_t count = BlockChecksums::block_count(sums.file_bytes);
    if (count > text.size() / 9) fail("has a line 'file' with too few checksums");
    sums.blocks.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) sums.blocks.push_back(hex(text));
    if (text.empty() || !out.files.emplace(std::string(text), std::move(sums)).second) {
      fail("names a file twice, or by nothing");
    }
  }

  std::string_view text_;
  std::string_view rest_;
  std::string_view file_;
};

}  // namespace detail

/// The file's content. Names must have no line break.
[[nodiscard]] inline std::string write_checksums(const ChecksumFile& checksums) {
  std::string out =
      concat(detail::checksum_title, "\nsave ", checksums.save_id, "\nblock ", BlockChecksums::block_bytes, '\n');
  for (const auto& [name, sums] : checksums.files) {
    if (name.find('\n') != std::string::npos) throw InvalidArgument("a file with a line break in its name has no checksums");
    out += concat("file ", sums.file_bytes, ' ');
    for (const std::uint32_t block : sums.blocks) {
      detail::append_hex(out, block);
      out += ' ';
    }
    out += name;
    out += '\n';
  }
  const std::uint32_t own = crc32(std::as_bytes(std::span(out)));
  out += "end ";
  detail::append_hex(out, own);
  out += '\n';
  return out;
}

/// Reads what `write_checksums` wrote. Local. Throws FormatError naming `file_name` for anything else.
[[nodiscard]] inline ChecksumFile parse_checksums(std::span<const std::byte> bytes, std::string_view file_name) {
  return detail::ChecksumParser(bytes, file_name).parse();
}

MGROUPS_END_NAMESPACE
