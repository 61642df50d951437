// Chooses the reader by type, reads files, draws random samples by counter, and orders epochs.
#include "integrations/data/dataset.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/philox.h"
#include "base/status.h"

namespace ringzero {
namespace {

class RandomSplit final : public Split {
 public:
  RandomSplit(const SampleShape& shape, uint64_t seed, std::string_view name, int64_t size)
      : shape_(shape),
        key_(MixKeys({HashName("random samples"), seed, HashName(name)})),
        size_(size) {
    for (int64_t extent : shape_.input) elements_ *= extent;
  }

  int64_t size() const override { return size_; }

  void Read(std::span<const int64_t> indices, float* float_inputs, int64_t* token_inputs,
            int64_t* targets) const override {
    for (const int64_t index : indices) {
      RZ_CHECK(index >= 0 && index < size_, absl::StrCat("sample ", index, " of ", size_));
      if (shape_.kind == SampleShape::Kind::kImage) {
        ReadImage(index, float_inputs, targets);
        float_inputs += elements_;
        targets += 1;
      } else {
        ReadTokens(index, token_inputs, targets);
        token_inputs += elements_;
        targets += elements_;
      }
    }
  }

 private:
  // The sample's n-th word of 32 bits.
  uint32_t Bits(int64_t sample, int64_t n) const {
    return PhiloxAt(key_, static_cast<uint64_t>(sample), static_cast<uint64_t>(n / 4))[n % 4];
  }
  int64_t Below(uint32_t bits, int64_t bound) const {
    return static_cast<int64_t>(uint64_t{bits} * static_cast<uint64_t>(bound) >> 32);
  }

  void ReadImage(int64_t sample, float* input, int64_t* target) const {
    constexpr float kSqrt12 = 3.46410161513775f;  // a uniform number on [0, 1) has variance 1/12
    for (int64_t i = 0; i < elements_; ++i) {
      input[i] = (UniformFloat(Bits(sample, i)) - 0.5f) * kSqrt12;
    }
    *target = Below(Bits(sample, elements_), shape_.classes);
  }

  void ReadTokens(int64_t sample, int64_t* input, int64_t* target) const {
    for (int64_t i = 0; i < elements_; ++i) {
      input[i] = Below(Bits(sample, i), shape_.classes);
      target[i] = Below(Bits(sample, i + 1), shape_.classes);
    }
  }

  SampleShape shape_;
  uint64_t key_;
  int64_t size_;
  int64_t elements_ = 1;
};

absl::Status CheckPositive(const char* key, int64_t value) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (value >= 1 && value <= kMost) return absl::OkStatus();
  return InvalidArgument(key, " is ", value, ": wanted 1 to ", kMost);
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenRandom(const DatasetOptions& options) {
  RZ_RETURN_IF_ERROR(CheckPositive("data.samples", options.random_samples));
  SampleShape shape = {.kind = options.random_kind};
  if (shape.kind == SampleShape::Kind::kTokens) {
    RZ_RETURN_IF_ERROR(CheckPositive("model.seq", options.sequence));
    RZ_RETURN_IF_ERROR(CheckPositive("model.vocab", options.vocabulary));
    shape.input = {options.sequence};
    shape.classes = options.vocabulary;
  } else {
    RZ_RETURN_IF_ERROR(CheckPositive("data.classes", options.random_classes));
    if (options.random_input.empty()) {
      return absl::InvalidArgumentError("data.input is empty: wanted the shape of one sample");
    }
    for (int64_t extent : options.random_input) {
      RZ_RETURN_IF_ERROR(CheckPositive("data.input", extent));
    }
    shape.input = options.random_input;
    shape.classes = options.random_classes;
  }
  const int64_t samples = options.random_samples;
  auto train = std::make_unique<RandomSplit>(shape, options.seed, "train", samples);
  auto test = std::make_unique<RandomSplit>(shape, options.seed, "test", samples / 10);
  return std::make_unique<Dataset>(std::move(shape), std::move(train), std::move(test));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetOptions& options) {
  if (options.type == "random") return OpenRandom(options);
  const bool idx = options.type == "idx", text = options.type == "text";
  if (!idx && !text && options.type != "cifar10") {
    return InvalidArgument("data.type is \"", options.type,
                           "\": wanted \"idx\", \"cifar10\", \"text\" or \"random\"");
  }
  if (options.path.empty()) {
    return InvalidArgument("data.path is missing: data of type \"", options.type,
                           "\" are read from ", text ? "a file" : "a folder");
  }
  if (text) return OpenText(options.path, options.sequence);
  return idx ? OpenIdx(options.path) : OpenCifar10(options.path);
}

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

}  // namespace ringzero
