// Dataset: samples by number, read into plain memory; knows nothing of torch.
//
//   RZ_ASSIGN_OR_RETURN(auto data, OpenDataset(config.data, config.model, 7));
//   data->train.Read(indices, {.float_inputs = inputs, .targets = targets});
#ifndef RINGZERO_INTEGRATIONS_DATA_DATASET_H_
#define RINGZERO_INTEGRATIONS_DATA_DATASET_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "zero/config/config.h"

namespace ringzero {

// The shape of one sample. Images: fp32 inputs and one int64 class; text: int64 tokens and targets.
struct SampleShape {
  enum class Kind { kImage, kTokens } kind = Kind::kImage;
  std::vector<int64_t> input;  // {channels, height, width}, {features} or {sequence length}
  int64_t classes = 0;         // classes, or the size of the vocabulary
};

// Thread-safe. Moved, not copied: it holds all samples.
class Split {
 public:
  // Where the next sample goes.
  struct Place {
    float* float_inputs = nullptr;
    int64_t* token_inputs = nullptr;
    int64_t* targets = nullptr;
  };
  // `read` writes one sample, and moves each pointer behind what it has written. Several threads
  // may call it at once.
  Split(int64_t size, std::function<void(int64_t index, Place& to)> read)
      : size_(size), read_(std::move(read)) {}
  Split(Split&&) = default;
  int64_t size() const { return size_; }  // samples
  // Writes samples one after the other: images to float_inputs, tokens to token_inputs; targets:
  // one class, or one token per position.
  void Read(std::span<const int64_t> indices, Place to) const;

 private:
  int64_t size_;
  std::function<void(int64_t index, Place& to)> read_;
};

struct Dataset {
  SampleShape shape;
  Split train;
  Split test;  // held out; may be empty (size 0)
};

// Of a configuration that was checked: one of the formats below; or "random", for tests and for
// measuring: tokens for a GPT, else images. Sample i is a function of (seed, split, i), an image's
// inputs are uniform with mean 0 and variance 1, classes and tokens uniform, and the test split has
// a tenth as many samples. The errors of the format.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DataConfig& data,
                                                     const ModelConfig& model, uint64_t seed);

// Images of 8-bit pixels. A pixel x of channel c becomes (x/255 - mean_c) / deviation_c with the
// mean and standard deviation of the training set, from integer sums: equal on every machine.
// InvalidArgument or NotFound, naming the file: missing, damaged gzip, no training image, sizes of
// train and test images that differ, a class of the test set that the training set has not, a
// channel whose pixels are all equal; and the errors of each format.
//
// IDX: a folder holds train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
// t10k-labels-idx1-ubyte, each with or without ".gz" (the plain file is taken if both are there).
// Debian's package dataset-fashion-mnist has them in /usr/share/datasets/fashion-mnist. Errors:
// wrong magic, counts or sizes that do not agree, too short, too long.
absl::StatusOr<std::unique_ptr<Dataset>> OpenIdx(const std::string& folder);

// CIFAR-10, binary version: data_batch_1.bin to data_batch_5.bin and test_batch.bin. A record is
// one class (0 to 9) and 3072 pixels {3, 32, 32}. The archive cifar-10-binary.tar.gz of
// https://www.cs.toronto.edu/~kriz/cifar.html unpacks to a folder with these files. Errors: empty,
// not a whole number of records, a class above 9.
absl::StatusOr<std::unique_ptr<Dataset>> OpenCifar10(const std::string& folder);

// Text as bytes: a token is a byte, its target the next byte. The file may be plain, gzip, or a
// data file of the Bible Retrieval System. The last tenth of the bytes is held out. Sample i of a
// split is the bytes [i·sequence, (i+1)·sequence); bytes that fill no sample are left out.
// InvalidArgument or NotFound, naming the file, and the key "model.seq" when a split has no sample.
absl::StatusOr<std::unique_ptr<Dataset>> OpenText(const std::string& path, int64_t sequence);

// The Bible Retrieval System's data file: how Debian's package bible-kjv-text keeps the King James
// Bible (/usr/lib/bible.data). All numbers are big-endian words of 32 bits:
//     0  "EC02" and a title, filled with zeros
//    84  bytes of text per window (the last one may have fewer)
//    88  number of windows
//    92  where each window begins in the file, and where the last one ends
// A window is the output of compress(1) without its first three bytes 1f 9d 90: LZW with codes of
// 9 to 16 bits, least significant bit first, 256 for "clear".
//
// Returns the whole text, as stored: a line of title, then a line per verse ("Ge1:1 In the …").
// InvalidArgument names `path`: truncated, windows out of range, codes that mean nothing.
absl::StatusOr<std::vector<uint8_t>> DecodeBibleData(std::span<const uint8_t> file,
                                                     const std::string& path);

// The order in which an epoch visits `size` samples: a permutation keyed by (seed, epoch), the same
// on every machine.
std::vector<int64_t> EpochOrder(uint64_t seed, int64_t epoch, int64_t size);

struct BatchesOptions {
  uint64_t seed = 0;
  int64_t micro_batch = 1;
  int64_t train_batch = 1;           // samples of one iteration
  int64_t iterations_per_epoch = 1;  // an epoch's samples after these iterations are left out
  int64_t evaluation_batch = 1;
  int64_t test_samples = 0;
};
BatchesOptions BatchesOf(const Config& config, const RunLength& length);

// Which samples make which micro-batch: named by iteration and number, never by worker.
class SampleNumbers {
 public:
  SampleNumbers(const BatchesOptions& options, int64_t train_samples)
      : options_(options), train_samples_(train_samples) {}
  // Fewer than micro_batch, or none, where the epoch ends. Good until the next call.
  std::span<const int64_t> Train(int64_t iteration, int64_t micro_batch);
  // `micro_batch`: its number within the evaluation. Fewer, or none, at the end of the samples.
  std::vector<int64_t> Evaluate(int64_t micro_batch) const;

 private:
  const BatchesOptions options_;
  const int64_t train_samples_;
  int64_t epoch_ = -1;  // the epoch whose order is in order_
  std::vector<int64_t> order_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_DATA_DATASET_H_
