// Cuts a text into samples.
#include "integrations/data/text.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "integrations/data/bible_text.h"
#include "integrations/data/byte_source.h"

namespace ringzero {
namespace {

class TextSplit final : public Split {
 public:
  TextSplit(std::span<const uint8_t> bytes, int64_t sequence)
      : bytes_(bytes), sequence_(sequence) {}

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
  std::span<const uint8_t> bytes_;
  int64_t sequence_;
};

class TextDataset final : public Dataset {
 public:
  TextDataset(std::vector<uint8_t> bytes, int64_t sequence)
      : bytes_(std::move(bytes)),
        shape_{.kind = SampleShape::Kind::kTokens, .input = {sequence}, .classes = 256},
        train_(std::span(bytes_).first(TrainBytes()), sequence),
        test_(std::span(bytes_).subspan(TrainBytes()), sequence) {}
  const SampleShape& shape() const override { return shape_; }
  const Split& train() const override { return train_; }
  const Split& test() const override { return test_; }

 private:
  size_t TrainBytes() const { return bytes_.size() - bytes_.size() / 10; }

  std::vector<uint8_t> bytes_;
  SampleShape shape_;
  TextSplit train_;
  TextSplit test_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenText(const std::string& path, int64_t sequence) {
  if (sequence < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.seq is ", sequence, ": text wants 1 or more tokens per sample"));
  }
  RZ_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, ReadAllBytes(path));
  if (IsBibleData(bytes)) {
    RZ_ASSIGN_OR_RETURN(bytes, DecodeBibleData(bytes, path));
  }
  const size_t total = bytes.size();
  auto dataset = std::make_unique<TextDataset>(std::move(bytes), sequence);
  if (dataset->train().size() < 1 || dataset->test().size() < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", total,
                     " bytes, of which a tenth is held out, are too few for one "
                     "sample of model.seq = ",
                     sequence, " in each part"));
  }
  return dataset;
}

}  // namespace ringzero
