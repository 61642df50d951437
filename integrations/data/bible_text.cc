// Unpacks the Bible Retrieval System's windows.
#include "integrations/data/bible_text.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

constexpr std::string_view kMagic = "EC02Compressed Data File";
constexpr size_t kHeader = 92;

uint32_t Word(std::span<const uint8_t> file, size_t at) {
  return uint32_t{file[at]} << 24 | uint32_t{file[at + 1]} << 16 | uint32_t{file[at + 2]} << 8 |
         file[at + 3];
}

// compress(1) writes codes in groups of eight of one width and fills up the group when the width
// changes.
class CodeReader {
 public:
  explicit CodeReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  // The next code of `width` bits, or -1 at the end.
  int Next(int width) {
    if (width != width_) {
      SkipGroup();
      width_ = width;
    }
    if (at_ + width > bytes_.size() * 8) return -1;
    int code = 0;
    for (int i = 0; i < width; ++i, ++at_) code |= (bytes_[at_ / 8] >> (at_ % 8) & 1) << i;
    return code;
  }
  // After a clear code: the rest of the group means nothing.
  void SkipGroup() {
    if (width_ == 0) return;
    const size_t group = 8 * static_cast<size_t>(width_);
    at_ = group_start_ + (at_ - group_start_ + group - 1) / group * group;
    group_start_ = at_;
  }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;           // bits
  size_t group_start_ = 0;  // bits: where this width began
  int width_ = 0;
};

// Appends at most `limit` bytes; false: a code that means nothing, or more text than that.
bool Decompress(std::span<const uint8_t> packed, size_t limit, std::vector<uint8_t>& text) {
  constexpr int kClear = 256, kFirstFree = 257, kMostBits = 16;
  std::vector<uint16_t> prefix(1 << kMostBits);
  std::vector<uint8_t> last(1 << kMostBits);
  std::vector<uint8_t> piece;  // of one code, from its end
  CodeReader codes(packed);
  const size_t end = text.size() + limit;
  int width = 9, free = kFirstFree, previous = -1;
  for (int code; (code = codes.Next(width)) >= 0;) {
    if (code == kClear) {
      codes.SkipGroup();
      width = 9, free = kFirstFree, previous = -1;
      continue;
    }
    if (code > free || (code == free && previous < 0) || (previous < 0 && code > 255)) return false;
    piece.clear();
    // A code that is only being made: the previous one and its own first byte again.
    int walk = code == free ? previous : code;
    for (; walk > 255; walk = prefix[walk]) piece.push_back(last[walk]);
    piece.push_back(static_cast<uint8_t>(walk));
    if (text.size() + piece.size() + (code == free ? 1 : 0) > end) return false;
    text.insert(text.end(), piece.rbegin(), piece.rend());
    if (code == free) text.push_back(piece.back());
    if (previous >= 0 && free < (1 << kMostBits)) {
      prefix[free] = static_cast<uint16_t>(previous);
      last[free] = piece.back();
      if (++free >= (1 << width) && width < kMostBits) ++width;
    }
    previous = code;
  }
  return true;
}

}  // namespace

bool IsBibleData(std::span<const uint8_t> file) {
  return file.size() >= kMagic.size() && std::equal(kMagic.begin(), kMagic.end(), file.begin());
}

absl::StatusOr<std::vector<uint8_t>> DecodeBibleData(std::span<const uint8_t> file,
                                                     const std::string& path) {
  const auto error = [&](const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a damaged data file of the Bible Retrieval System: ", what));
  };
  if (file.size() < kHeader) return error("its header is truncated");
  const uint32_t window_bytes = Word(file, 84), windows = Word(file, 88);
  if (window_bytes < 1 || window_bytes > (1 << 24)) {
    return error(absl::StrCat("windows of ", window_bytes, " bytes"));
  }
  if ((file.size() - kHeader) / 4 < uint64_t{windows} + 1) {
    return error(absl::StrCat("no room for the places of ", windows, " windows"));
  }
  std::vector<uint8_t> text;
  for (uint32_t i = 0; i < windows; ++i) {
    const uint32_t begin = Word(file, kHeader + 4 * i), end = Word(file, kHeader + 4 * (i + 1));
    if (begin > end || end > file.size()) {
      return error(
          absl::StrCat("window ", i, " lies at bytes ", begin, " to ", end, " of ", file.size()));
    }
    const size_t before = text.size();
    if (!Decompress(file.subspan(begin, end - begin), window_bytes, text) ||
        (i + 1 < windows && text.size() != before + window_bytes)) {
      return error(absl::StrCat("window ", i, " does not unpack to ", window_bytes, " bytes"));
    }
  }
  return text;
}

}  // namespace ringzero
