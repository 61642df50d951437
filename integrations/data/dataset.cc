// Chooses the reader by type; reads IDX files, CIFAR-10's records and texts, and checks every
// field; draws random samples by counter, and orders epochs.
#include "integrations/data/dataset.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/philox.h"
#include "base/status.h"

namespace ringzero {
namespace {

// All bytes of a file, unpacked if its first bytes are gzip's (of several members, too).
absl::StatusOr<std::vector<uint8_t>> ReadAllBytes(const std::string& path) {
  if (std::error_code unknown; std::filesystem::is_directory(path, unknown)) {
    return InvalidArgument(path, ": is a folder where a file is wanted");
  }
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rbe"), gzclose);
  if (file == nullptr) {
    const std::string message = absl::StrCat(path, ": cannot be opened: ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::InvalidArgumentError(message);
  }
  constexpr size_t kPiece = 16 << 20;
  gzbuffer(file.get(), 128 << 10);
  std::vector<uint8_t> bytes;
  for (size_t got = kPiece; got == kPiece;) {
    const size_t before = bytes.size();
    bytes.resize(before + kPiece);
    got = gzfread(bytes.data() + before, 1, kPiece, file.get());
    bytes.resize(before + got);
  }
  int code = Z_OK;
  const char* const error = gzerror(file.get(), &code);  // begins with the path
  if (code == Z_OK) return bytes;
  return InvalidArgument(error, code == Z_BUF_ERROR ? ": the gzip data are truncated" : "");
}

// A big-endian word.
uint32_t Word(std::span<const uint8_t> file, size_t at) {
  return uint32_t{file[at]} << 24 | uint32_t{file[at + 1]} << 16 | uint32_t{file[at + 2]} << 8 |
         file[at + 3];
}

Split RandomSplit(const SampleShape& shape, uint64_t seed, std::string_view name, int64_t size) {
  const uint64_t key = MixKeys({HashName("random samples"), seed, HashName(name)});
  const auto bits = [key](int64_t sample, int64_t n) {  // the sample's n-th word of 32 bits
    return PhiloxAt(key, static_cast<uint64_t>(sample), static_cast<uint64_t>(n / 4))[n % 4];
  };
  const auto classes = static_cast<uint64_t>(shape.classes);
  const auto below = [=](int64_t sample, int64_t n) {
    return static_cast<int64_t>(uint64_t{bits(sample, n)} * classes >> 32);
  };
  int64_t elements = 1;
  for (int64_t extent : shape.input) elements *= extent;
  if (shape.kind == SampleShape::Kind::kTokens) {
    return {size, [=](int64_t index, Split::Place& to) {
              for (int64_t i = 0; i < elements; ++i) {
                *to.token_inputs++ = below(index, i);
                *to.targets++ = below(index, i + 1);
              }
            }};
  }
  return {size, [=](int64_t index, Split::Place& to) {
            constexpr float kSqrt12 = 3.46410161513775f;  // uniform on [0, 1): the variance is 1/12
            for (int64_t i = 0; i < elements; ++i) {
              *to.float_inputs++ = (UniformFloat(bits(index, i)) - 0.5f) * kSqrt12;
            }
            *to.targets++ = below(index, elements);
          }};
}

struct ImageSet {
  std::string path;  // the file, for messages
  int64_t channels = 1, height = 0, width = 0;
  int known_classes = 0;         // of the format; else as many as the training set has
  std::vector<uint8_t> pixels;   // image after image, each {channels, height, width}
  std::vector<uint8_t> classes;  // one per image
};

// tables[c][x]: what the pixel x of channel c becomes.
using PixelTables = std::vector<std::array<float, 256>>;

Split ImageSplit(ImageSet images, PixelTables pixel_tables) {
  const auto size = static_cast<int64_t>(images.classes.size());
  return {size, [set = std::move(images), tables = std::move(pixel_tables)](int64_t index,
                                                                            Split::Place& to) {
            const int64_t area = set.height * set.width;
            const uint8_t* pixel = set.pixels.data() + index * area * set.channels;
            for (const auto& table : tables) {
              for (int64_t i = 0; i < area; ++i) *to.float_inputs++ = table[*pixel++];
            }
            *to.targets++ = set.classes[index];
          }};
}

absl::StatusOr<PixelTables> MakePixelTables(const ImageSet& train) {
  const int64_t area = train.height * train.width, channels = train.channels;
  std::vector<std::array<uint64_t, 256>> counts(channels);  // zeros
  for (size_t i = 0; i < train.pixels.size();) {
    for (auto& histogram : counts) {
      for (int64_t k = 0; k < area; ++k) ++histogram[train.pixels[i++]];
    }
  }
  PixelTables tables(channels);
  for (int64_t c = 0; c < channels; ++c) {
    unsigned __int128 count = 0, sum = 0, squares = 0;
    for (uint64_t x = 0; x < 256; ++x) {
      count += counts[c][x];
      sum += counts[c][x] * x;
      squares += counts[c][x] * x * x;
    }
    const unsigned __int128 spread = count * squares - sum * sum;  // count² times the variance
    if (spread == 0) {
      return InvalidArgument(train.path, ": all pixels of channel ", c,
                             " are equal, so they cannot be normalised");
    }
    const double mean = static_cast<double>(sum) / static_cast<double>(count);
    const double deviation = std::sqrt(static_cast<double>(spread)) / static_cast<double>(count);
    // (x/255 - mean/255) / (deviation/255): the 255s cancel.
    for (int x = 0; x < 256; ++x) tables[c][x] = static_cast<float>((x - mean) / deviation);
  }
  return tables;
}

absl::StatusOr<std::unique_ptr<Dataset>> MakeDataset(ImageSet train, ImageSet test) {
  if (train.classes.empty()) return InvalidArgument(train.path, ": holds no images");
  if (!test.classes.empty() && (test.height != train.height || test.width != train.width)) {
    return InvalidArgument(test.path, ": images of ", test.height, "x", test.width,
                           " pixels; those of ", train.path, " have ", train.height, "x",
                           train.width);
  }
  const int classes = std::max(train.known_classes, 1 + *std::ranges::max_element(train.classes));
  for (size_t i = 0; i < test.classes.size(); ++i) {
    if (test.classes[i] < classes) continue;
    return InvalidArgument(test.path, ": image ", i, " is of class ", test.classes[i],
                           ", but the training set has only ", classes, " classes");
  }
  RZ_ASSIGN_OR_RETURN(PixelTables tables, MakePixelTables(train));
  SampleShape shape = {.input = {train.channels, train.height, train.width}, .classes = classes};
  return std::make_unique<Dataset>(Dataset{std::move(shape), ImageSplit(std::move(train), tables),
                                           ImageSplit(std::move(test), tables)});
}

// The path folder/name or, if there is no such file, folder/name.gz.
absl::StatusOr<std::string> FindFile(const std::string& folder, const std::string& name,
                                     absl::string_view origin) {
  for (const char* ending : {"", ".gz"}) {
    std::string path = absl::StrCat(folder, "/", name, ending);
    if (access(path.c_str(), F_OK) == 0) return path;
  }
  return absl::NotFoundError(
      absl::StrCat(folder, "/", name, ": neither it nor ", name, ".gz exists (", origin, ")"));
}

constexpr uint32_t kImagesMagic = 0x00000803;  // unsigned bytes, three dimensions
constexpr uint32_t kLabelsMagic = 0x00000801;  // unsigned bytes, one dimension
constexpr uint32_t kMostPixels = 1 << 14;      // per side

struct IdxFile {
  std::string path;
  std::vector<uint32_t> sizes;  // of its dimensions
  std::vector<uint8_t> bytes;   // behind the header
};

// The header: big-endian words, the magic number and a word per dimension.
absl::StatusOr<IdxFile> ReadIdx(const std::string& folder, const std::string& name,
                                uint32_t wanted) {
  IdxFile file;
  RZ_ASSIGN_OR_RETURN(file.path, FindFile(folder, name,
                                          "Debian's package dataset-fashion-mnist puts them into "
                                          "/usr/share/datasets/fashion-mnist"));
  RZ_ASSIGN_OR_RETURN(file.bytes, ReadAllBytes(file.path));
  const size_t dimensions = wanted & 0xff, header = 4 * (1 + dimensions);
  if (file.bytes.size() < header) {
    return InvalidArgument(file.path, ": truncated: the header wanted ", header, " bytes, found ",
                           file.bytes.size());
  }
  const uint32_t magic = Word(file.bytes, 0);
  if (magic != wanted) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: not an IDX file of %s: its magic number is 0x%08x instead of 0x%08x",
                        file.path, wanted == kImagesMagic ? "images" : "labels", magic, wanted));
  }
  for (size_t i = 1; i <= dimensions; ++i) file.sizes.push_back(Word(file.bytes, 4 * i));
  file.bytes.erase(file.bytes.begin(), file.bytes.begin() + static_cast<ptrdiff_t>(header));
  return file;
}

absl::Status CheckBytes(const IdxFile& file, const std::string& what, uint64_t wanted) {
  const uint64_t found = file.bytes.size();
  if (found == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      found > wanted
          ? absl::StrCat(file.path, ": bytes follow the ", what, ", where the file should end")
          : absl::StrCat(file.path, ": truncated: ", what, " wanted ", wanted, " bytes, found ",
                         found));
}

absl::StatusOr<ImageSet> ReadIdxSet(const std::string& folder, const std::string& prefix) {
  RZ_ASSIGN_OR_RETURN(IdxFile images, ReadIdx(folder, prefix + "-images-idx3-ubyte", kImagesMagic));
  const uint32_t count = images.sizes[0], height = images.sizes[1], width = images.sizes[2];
  const std::string size = absl::StrCat("images of ", height, "x", width, " pixels");
  if (height < 1 || height > kMostPixels || width < 1 || width > kMostPixels) {
    return InvalidArgument(images.path, ": ", size, ": wanted 1 to ", kMostPixels, " per side");
  }
  RZ_RETURN_IF_ERROR(
      CheckBytes(images, absl::StrCat(count, " ", size), uint64_t{count} * height * width));
  RZ_ASSIGN_OR_RETURN(IdxFile labels, ReadIdx(folder, prefix + "-labels-idx1-ubyte", kLabelsMagic));
  if (labels.sizes[0] != count) {
    return InvalidArgument(labels.path, ": ", labels.sizes[0], " labels, but ", images.path,
                           " has ", count, " images");
  }
  RZ_RETURN_IF_ERROR(CheckBytes(labels, absl::StrCat(count, " labels"), count));
  return ImageSet{.path = std::move(images.path),
                  .height = height,
                  .width = width,
                  .pixels = std::move(images.bytes),
                  .classes = std::move(labels.bytes)};
}

constexpr int64_t kSide = 32, kChannels = 3, kClasses = 10;
constexpr size_t kRecord = 1 + kChannels * kSide * kSide;

absl::Status AppendBatch(const std::string& folder, const std::string& name, ImageSet& set) {
  RZ_ASSIGN_OR_RETURN(
      const std::string path,
      FindFile(folder, name,
               "the archive cifar-10-binary.tar.gz unpacks to a folder cifar-10-batches-bin that "
               "holds it"));
  RZ_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadAllBytes(path));
  if (bytes.empty() || bytes.size() % kRecord != 0) {
    return InvalidArgument(path, ": ", bytes.size(), " bytes: wanted a multiple of ", kRecord,
                           " (a class and 32x32 pixels of 3 colours)");
  }
  for (size_t at = 0; at < bytes.size(); at += kRecord) {
    if (bytes[at] >= kClasses) {
      return InvalidArgument(path, ": record ", at / kRecord, " is of class ", bytes[at],
                             ": wanted 0 to 9");
    }
    set.classes.push_back(bytes[at]);
    set.pixels.insert(set.pixels.end(), bytes.begin() + at + 1, bytes.begin() + at + kRecord);
  }
  set.path = path;
  return absl::OkStatus();
}

Split TextSplit(std::vector<uint8_t> text, int64_t sequence) {
  // Each sample needs one byte more, for its last target.
  const int64_t size = text.empty() ? 0 : static_cast<int64_t>(text.size() - 1) / sequence;
  return {size, [bytes = std::move(text), sequence](int64_t index, Split::Place& to) {
            const uint8_t* byte = bytes.data() + index * sequence;
            for (int64_t i = 0; i < sequence; ++i) {
              *to.token_inputs++ = byte[i];
              *to.targets++ = byte[i + 1];
            }
          }};
}

constexpr std::string_view kMagic = "EC02Compressed Data File";
constexpr size_t kHeader = 92;

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
    for (size_t i = 0; code > kClear && i < from.length; ++i) text.push_back(text[from.begin + i]);
    if (made.length == 1 || free >> kMostBits != 0) continue;
    pieces.push_back(made);
    if (free + 1 >= size_t{1} << width && width < int{kMostBits}) ++width;
  }
  return true;
}

}  // namespace

void Split::Read(std::span<const int64_t> indices, Place to) const {
  for (const int64_t index : indices) {
    RZ_CHECK(index >= 0 && index < size_, absl::StrCat("sample ", index, " of ", size_));
    read_(index, to);
  }
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DataConfig& data,
                                                     const ModelConfig& model, uint64_t seed) {
  if (data.type == "idx") return OpenIdx(data.path);
  if (data.type == "cifar10") return OpenCifar10(data.path);
  if (data.type == "text") return OpenText(data.path, model.gpt.seq);
  SampleShape shape = {.input = data.input, .classes = data.classes};
  if (model.type == ModelConfig::Type::kGpt) {
    shape = {SampleShape::Kind::kTokens, {model.gpt.seq}, model.gpt.vocab};
  }
  return std::make_unique<Dataset>(Dataset{shape, RandomSplit(shape, seed, "train", data.samples),
                                           RandomSplit(shape, seed, "test", data.samples / 10)});
}

// Fisher and Yates, from the end: for i = size-1 down to 1, exchange order[i] with order[j], where
// j is floor(r_i · (i+1) / 2^64) and r_i the first 64 bits (low word first) of block i of the
// stream `epoch` under the key of (seed, "epoch order"). The bias of j is below 2^-64 · size.
std::vector<int64_t> EpochOrder(uint64_t seed, int64_t epoch, int64_t size) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  const uint64_t key = MixKeys({seed, HashName("epoch order")});
  for (int64_t i = size - 1; i > 0; --i) {
    const PhiloxBlock block = PhiloxAt(key, static_cast<uint64_t>(epoch), static_cast<uint64_t>(i));
    const uint64_t r = uint64_t{block[1]} << 32 | block[0];
    const unsigned __int128 bound = static_cast<uint64_t>(i) + 1;
    std::swap(order[i], order[static_cast<int64_t>(r * bound >> 64)]);
  }
  return order;
}

BatchesOptions BatchesOf(const Config& config, const RunLength& length) {
  return {.seed = config.seed,
          .micro_batch = config.batch.micro_batch,
          .train_batch = config.batch.train_batch,
          .iterations_per_epoch = length.iterations_per_epoch,
          .evaluation_batch = config.evaluation.batch_size,
          .test_samples = length.test_samples};
}

std::span<const int64_t> SampleNumbers::Train(int64_t iteration, int64_t micro_batch) {
  const int64_t epoch = iteration / options_.iterations_per_epoch;
  if (epoch != epoch_) {
    order_ = EpochOrder(options_.seed, epoch, train_samples_);
    epoch_ = epoch;
  }
  const int64_t first = std::min(iteration % options_.iterations_per_epoch * options_.train_batch +
                                     micro_batch * options_.micro_batch,
                                 train_samples_);
  const int64_t count = std::min(options_.micro_batch, train_samples_ - first);
  return std::span(order_).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

std::vector<int64_t> SampleNumbers::Evaluate(int64_t micro_batch) const {
  const int64_t first = std::min(micro_batch * options_.evaluation_batch, options_.test_samples);
  const int64_t count = std::min(options_.evaluation_batch, options_.test_samples - first);
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenIdx(const std::string& folder) {
  RZ_ASSIGN_OR_RETURN(ImageSet train, ReadIdxSet(folder, "train"));
  RZ_ASSIGN_OR_RETURN(ImageSet test, ReadIdxSet(folder, "t10k"));
  return MakeDataset(std::move(train), std::move(test));
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenCifar10(const std::string& folder) {
  ImageSet train = {
      .channels = kChannels, .height = kSide, .width = kSide, .known_classes = kClasses};
  for (int batch = 1; batch <= 5; ++batch) {
    RZ_RETURN_IF_ERROR(AppendBatch(folder, absl::StrCat("data_batch_", batch, ".bin"), train));
  }
  ImageSet test = {.channels = kChannels, .height = kSide, .width = kSide};
  RZ_RETURN_IF_ERROR(AppendBatch(folder, "test_batch.bin", test));
  return MakeDataset(std::move(train), std::move(test));
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
  RZ_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, ReadAllBytes(path));
  if (bytes.size() >= kMagic.size() && std::equal(kMagic.begin(), kMagic.end(), bytes.begin())) {
    RZ_ASSIGN_OR_RETURN(bytes, DecodeBibleData(bytes, path));
  }
  const size_t total = bytes.size();
  const auto held_out = bytes.end() - static_cast<ptrdiff_t>(total / 10);
  Split test = TextSplit(std::vector(held_out, bytes.end()), sequence);
  bytes.erase(held_out, bytes.end());
  Split train = TextSplit(std::move(bytes), sequence);
  if (train.size() < 1 || test.size() < 1) {
    return InvalidArgument(path, ": ", total,
                           " bytes, of which a tenth is held out, are too few for one "
                           "sample of model.seq = ",
                           sequence, " in each part");
  }
  const SampleShape shape = {SampleShape::Kind::kTokens, {sequence}, 256};
  return std::make_unique<Dataset>(Dataset{shape, std::move(train), std::move(test)});
}

}  // namespace ringzero
