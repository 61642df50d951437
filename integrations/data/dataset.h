// Dataset: samples by number, read into plain memory; knows nothing of torch.
//
//   RZ_ASSIGN_OR_RETURN(auto data, OpenDataset({.type = "idx", .path = "…", …}));
//   data->train().Read(indices, inputs, targets);
#ifndef RINGZERO_INTEGRATIONS_DATA_DATASET_H_
#define RINGZERO_INTEGRATIONS_DATA_DATASET_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ringzero {

// The shape of one sample. Images: fp32 inputs and one int64 class; text: int64 tokens and targets.
struct SampleShape {
  enum class Kind { kImage, kTokens } kind = Kind::kImage;
  std::vector<int64_t> input;  // {channels, height, width}, {features} or {sequence length}
  int64_t classes = 0;         // classes, or the size of the vocabulary
};

// One split. Thread-safe: reading changes nothing.
class Split {
 public:
  virtual ~Split() = default;
  virtual int64_t size() const = 0;  // samples
  // Writes samples `indices` one after the other: images to float_inputs, tokens to token_inputs;
  // targets: one class, or one token per position. Spans have exactly the sizes needed.
  virtual void Read(std::span<const int64_t> indices, float* float_inputs, int64_t* token_inputs,
                    int64_t* targets) const = 0;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const SampleShape& shape() const = 0;
  virtual const Split& train() const = 0;
  virtual const Split& test() const = 0;  // held out; may be empty (size 0)
};

struct DatasetOptions {
  std::string type;                   // "idx", "cifar10", "text", "random"
  std::string path;                   // a folder (idx, cifar10) or a file (text)
  int64_t sequence = 0;               // text and random tokens: tokens per sample
  int64_t vocabulary = 256;           // random tokens
  std::vector<int64_t> random_input;  // random: the shape of one sample's input
  SampleShape::Kind random_kind = SampleShape::Kind::kImage;
  int64_t random_classes = 10;
  int64_t random_samples = 0;
  uint64_t seed = 0;  // random only
};

// InvalidArgument or NotFound, naming the file and what was wanted and found.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetOptions& options);

// The order in which an epoch visits `size` samples: a permutation keyed by (seed, epoch), the same
// on every machine.
std::vector<int64_t> EpochOrder(uint64_t seed, int64_t epoch, int64_t size);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_DATA_DATASET_H_
