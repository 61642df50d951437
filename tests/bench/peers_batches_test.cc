// The batches that bench/peers/batches.py must draw again: RingZero's own, as a file that
// benches_test.py compares with.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "integrations/data/dataset.h"
#include "integrations/torch/models/configured_run.h"
#include "integrations/torch/models/models.h"
#include "tests/zero/config/golden.h"

namespace ringzero {
namespace {

std::string Line(const at::Tensor& tokens) {
  const int64_t* values = tokens.const_data_ptr<int64_t>();
  return absl::StrJoin(std::vector<int64_t>(values, values + tokens.numel()), " ");
}

// Three workers, two samples each, 50 samples: eight iterations an epoch, so iteration 8 begins the
// second.
TEST(PeersBatches, AreInTheFileThatThePeersAreComparedWith) {
  constexpr uint64_t kSeed = 7;
  const auto data =
      OpenDataset({.type = "random", .samples = 50},
                  {.type = ModelConfig::Type::kGpt, .gpt = {.vocab = 300, .seq = 6}}, kSeed);
  ASSERT_TRUE(data.ok()) << data.status();
  const Split& train = (*data)->train;
  SampleNumbers numbers(
      {.seed = kSeed, .micro_batch = 2, .train_batch = 6, .iterations_per_epoch = 50 / 6},
      train.size());
  std::string text;
  for (const int iteration : {0, 1, 7, 8, 17}) {
    for (const int micro_batch : {0, 1, 2}) {
      const Batch batch = ReadBatch((*data)->shape, train, numbers.Train(iteration, micro_batch));
      absl::StrAppend(&text, iteration, " ", micro_batch, ": ", Line(batch.inputs), " -> ",
                      Line(batch.targets), "\n");
    }
  }
  ExpectGolden("tests/bench/golden/random_batches.txt", text);
}

}  // namespace
}  // namespace ringzero
