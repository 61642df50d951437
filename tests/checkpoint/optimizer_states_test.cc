// An optimizer for other loops goes on from its saved states with the same bits, whoever wrote the file.
#include <gtest/gtest.h>

#include <cmath>

#include "base/files.h"
#include "integrations/checkpoint/checkpoint.h"
#include "tests/p2p/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using Values = std::vector<std::vector<float>>;

std::vector<ParameterSpec> Model() {
  return {{.name = "fc.weight", .shape = {4, 6}, .strides = {1, 4}},
          {.name = "fc.bias", .shape = {4}},
          {.name = "frozen", .shape = {3}, .trainable = false}};
}

struct OptimizerStatesTest : public ::testing::Test {
  std::unique_ptr<ShardedOptimizer> Make(
      Values& values, OptimizerOptions::Type type = OptimizerOptions::Type::kAdamW) {
    std::vector<float*> pointers;
    for (auto& one : values) pointers.push_back(one.data());
    ShardedOptimizerOptions options{.parameters = Model()};
    options.optimizer.type = type;
    options.optimizer.learning_rate = 0.1;
    auto made = ShardedOptimizer::Create(options, pointers);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  static void Train(ShardedOptimizer& optimizer, int from, int to) {
    for (int t = from; t < to; ++t) {
      Values gradients = {std::vector<float>(24), std::vector<float>(4)};
      for (auto& one : gradients) {
        for (size_t i = 0; i < one.size(); ++i) one[i] = std::sin(float(17 * t) + float(i));
      }
      const float* const pointers[] = {gradients[0].data(), gradients[1].data(), nullptr};
      ASSERT_TRUE(optimizer.AddGradients(pointers).ok());
      ASSERT_TRUE(optimizer.Step().ok());
    }
  }
  const Values begin = {std::vector<float>(24, 0.5f), std::vector<float>(4, 0.25f),
                        std::vector<float>(3, 1.0f)};
  TemporaryFolder folder;
};

TEST_F(OptimizerStatesTest, GoesOnWithTheSameBits) {
  Values wanted = begin, first = begin;
  Train(*Make(wanted), 0, 5);
  const auto half = Make(first);
  Train(*half, 0, 3);
  ASSERT_TRUE(SaveOptimizerStates(*half, folder.path("o.safetensors")).ok());
  Values second = first;
  const auto rest = Make(second);
  RZ_ASSIGN(const TensorFiles files, TensorFiles::Open(folder.path("o.safetensors")));
  ASSERT_TRUE(LoadOptimizerStates(files, *rest).ok());
  EXPECT_EQ(rest->updates(), 3);
  Train(*rest, 3, 5);
  EXPECT_EQ(second, wanted);
}

TEST_F(OptimizerStatesTest, TakesTorchsStateDictByName) {
  Values ours = begin, theirs = begin;
  const auto from = Make(ours);
  Train(*from, 0, 2);
  ASSERT_TRUE(SaveOptimizerStates(*from, folder.path("o.safetensors")).ok());
  RZ_ASSIGN(const TensorFiles files, TensorFiles::Open(folder.path("o.safetensors")));
  std::vector<TensorSpec> specs;
  for (const auto& [name, place] : files.tensors()) {
    specs.push_back({.name = "state." + name, .shape = place.entry->spec.shape});
  }
  RZ_ASSIGN(std::string file, SafetensorsHead(specs, {}));
  for (const auto& [name, place] : files.tensors()) {
    std::vector<float> values(
        name.ends_with(".step") ? std::vector<float>{2}
                                : std::vector<float>((place.entry->end - place.entry->begin) / 4));
    if (!name.ends_with(".step")) {
      ASSERT_TRUE(files.Read(name, place.entry->spec.shape, std::span(values)).ok());
    }
    file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  ASSERT_TRUE(WriteWholeFile(folder.path("torch.safetensors"), file).ok());
  RZ_ASSIGN(const TensorFiles torchs, TensorFiles::Open(folder.path("torch.safetensors")));
  theirs = ours;
  const auto to = Make(theirs);
  ASSERT_TRUE(LoadOptimizerStates(torchs, *to).ok());
  Train(*from, 2, 4);
  Train(*to, 2, 4);
  EXPECT_EQ(ours, theirs);
}

TEST_F(OptimizerStatesTest, NamesWhatIsMissing) {
  Values values = begin;
  const auto sgd = Make(values, OptimizerOptions::Type::kSgd);
  ASSERT_TRUE(SaveOptimizerStates(*sgd, folder.path("o.safetensors")).ok());
  RZ_ASSIGN(const TensorFiles files, TensorFiles::Open(folder.path("o.safetensors")));
  EXPECT_THAT(LoadOptimizerStates(files, *Make(values)),
              Fails(absl::StatusCode::kNotFound, "fc.weight.exp_avg"));
}

}  // namespace
}  // namespace ringzero
