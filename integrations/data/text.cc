// Cuts a text into samples; unpacks the Bible Retrieval System's windows.
#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "integrations/data/dataset.h"

namespace ringzero {
namespace {

class TextSplit final : public Split {
 public:
  TextSplit(std::vector<uint8_t> bytes, int64_t sequence)
      : bytes_(std::move(bytes)), sequence_(sequence) {}

  // Each sample needs one byte more, for its last target.
  int64_t size() const override {
    return bytes_.empty() ? 0 : static_cast<int64_t>(bytes_.size() - 1) / sequence_;
  }

  void Read(std::span<const int64_t> indices, float* /*float_inputs*/, int64_t* token_inputs,
            int64_t* targets) const override {
    for (const int64_t index : indices) {
      RZ_CHECK(index >= 0 && index < size(), absl::StrCat("sample ", index, " of ", size()));
      const uint8_t* byte = bytes_.data() + index * sequence_;
      for (int64_t i = 0; i < sequence_; ++i) {
        *token_inputs++ = byte[i];
        *targets++ = byte[i + 1];
      }
    }
  }

 private:
  const std::vector<uint8_t> bytes_;
  const int64_t sequence_;
};

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

// A piece of the text that is unpacked so far.
struct Piece {
  size_t begin = 0, length = 0;
};

// Appends at most `limit` bytes. False: a code that means nothing, or more text than `limit`.
bool Decompress(std::span<const uint8_t> packed, size_t limit, std::vector<uint8_t>& text) {
  constexpr size_t kClear = 256, kFirstFree = 257, kMostBits = 16;
  std::vector<Piece> pieces;  // of the codes from kFirstFree on
  Piece previous;
  CodeReader codes(packed);
  const size_t end = text.size() + limit;
  int width = 9;
  for (int next; (next = codes.Next(width)) >= 0;) {
    const auto code = static_cast<size_t>(next);
    if (code == kClear) {
      codes.SkipGroup();
      pieces.clear();
      previous = {};
      width = 9;
      continue;
    }
    // The piece of the previous code and the byte after it. This very code may stand for it.
    const Piece made = {previous.begin, previous.length + 1};
    const size_t free = kFirstFree + pieces.size();
    if (code > free || (code == free && previous.length == 0)) return false;
    const Piece from = code < kClear ? Piece{0, 1} : code < free ? pieces[code - kFirstFree] : made;
    if (text.size() + from.length > end) return false;
    previous = {text.size(), from.length};
    if (code < kClear) text.push_back(static_cast<uint8_t>(code));
    for (size_t i = 0; code > kClear && i < from.length; ++i) {
      text.push_back(text[from.begin + i]);
    }
    if (made.length == 1 || free >> kMostBits != 0) continue;
    pieces.push_back(made);
    if (free + 1 >= size_t{1} << width && width < int{kMostBits}) ++width;
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
    return InvalidArgument(path, ": a damaged data file of the Bible Retrieval System: ", what);
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

absl::StatusOr<std::unique_ptr<Dataset>> OpenText(const std::string& path, int64_t sequence) {
  if (sequence < 1) {
    return InvalidArgument("model.seq is ", sequence, ": text wants 1 or more tokens per sample");
  }
  RZ_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, ReadAllBytes(path));
  if (IsBibleData(bytes)) {
    RZ_ASSIGN_OR_RETURN(bytes, DecodeBibleData(bytes, path));
  }
  const size_t total = bytes.size();
  const auto held_out = bytes.end() - static_cast<ptrdiff_t>(total / 10);
  auto test = std::make_unique<TextSplit>(std::vector(held_out, bytes.end()), sequence);
  bytes.erase(held_out, bytes.end());
  auto train = std::make_unique<TextSplit>(std::move(bytes), sequence);
  if (train->size() < 1 || test->size() < 1) {
    return InvalidArgument(path, ": ", total,
                           " bytes, of which a tenth is held out, are too few for one "
                           "sample of model.seq = ",
                           sequence, " in each part");
  }
  return std::make_unique<Dataset>(
      SampleShape{.kind = SampleShape::Kind::kTokens, .input = {sequence}, .classes = 256},
      std::move(train), std::move(test));
}

}  // namespace ringzero
