// Draws samples by counter.
#include "integrations/data/random.h"

#include <string_view>
#include <utility>

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

class RandomDataset final : public Dataset {
 public:
  RandomDataset(SampleShape shape, uint64_t seed, int64_t samples)
      : shape_(std::move(shape)),
        train_(shape_, seed, "train", samples),
        test_(shape_, seed, "test", samples / 10) {}
  const SampleShape& shape() const override { return shape_; }
  const Split& train() const override { return train_; }
  const Split& test() const override { return test_; }

 private:
  SampleShape shape_;
  RandomSplit train_;
  RandomSplit test_;
};

absl::Status CheckPositive(const char* key, int64_t value) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (value >= 1 && value <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(key, " is ", value, ": wanted 1 to ", kMost));
}

}  // namespace

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
  return std::make_unique<RandomDataset>(std::move(shape), options.seed, options.random_samples);
}

}  // namespace ringzero
