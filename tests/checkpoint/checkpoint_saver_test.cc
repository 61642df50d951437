// What a saver has written is read back; what is damaged is refused by name; a disk that fails costs one checkpoint, no run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <future>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/buffer.h"
#include "base/files.h"
#include "integrations/checkpoint/checkpoint.h"
#include "sharding/memory/block_table.h"
#include "tests/data/files.h"
#include "tests/offload/io_decorators.h"
#include "tests/p2p/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using ::testing::HasSubstr;

// Two stages, one worker each, and running statistics in the second.
struct CheckpointSaverTest : public ::testing::Test {
  CheckpointSaverTest() {
    options.folder = folder.path();
    options.layouts = layouts;
    options.optimizer = optimizer;
    options.run = {.rule = "cdp_v1",
                   .optimizer = "AdamW",
                   .precision = "bf16",
                   .workers = 2,
                   .stages = 2,
                   .micro_batches = 2,
                   .train_batch = 8};
    options.failed = [this](Version v, const absl::Status& why) {
      failures.push_back(absl::StrCat(v.value, ": ", why.message()));
    };
    for (int j = 0; j < 2; ++j) {
      std::iota(masters[j].begin(), masters[j].end(), 100.0f * j);
      std::iota(stale[j].begin(), stale[j].end(), static_cast<uint16_t>(7 * j));
      StageOptimizer::ParameterState& state = optimizers[j].state(0);
      state.updates = 40 + j;
      std::iota(state.first.begin(), state.first.end(), 0.5f);
      std::iota(state.second.begin(), state.second.end(), 0.25f);
    }
  }

  static StageLayout LayoutOf(int j) {
    return StageLayout::Make(
        {{.name = absl::StrCat("layer", j, ".weight"), .shape = {4, 6}, .strides = {1, 4}},
         {.name = absl::StrCat("layer", j, ".frozen"), .shape = {3}, .trainable = false}},
        j == 1 ? std::vector<StatisticSpec>{{.name = "bn.mean", .numel = 5},
                                            {.name = "bn.count",
                                             .kind = StatisticSpec::Kind::kCount,
                                             .numel = 1}}
               : std::vector<StatisticSpec>(),
        {.compute = ValueType::kBf16});
  }

  // All of version v, by a saver of each worker. How many parts had their end.
  int SaveAll(int v, const SavedScalars& scalars = {}) {
    std::vector<std::vector<std::byte>> receipts(2, std::vector<std::byte>(kReceiptBytes));
    int done = 0;
    const auto wait = [&](const std::function<void(Saver::Done)>& save) {
      std::promise<void> ended;
      save([&] { ended.set_value(); });
      ended.get_future().wait();
      ++done;
    };
    std::vector<std::unique_ptr<Saver>> savers;
    for (int w = 0; w < 2; ++w) {
      auto saver = MakeCheckpointSaver(options);
      EXPECT_TRUE(saver.ok()) << saver.status();
      savers.push_back(*std::move(saver));
      const SavedPart part{
          .stage = StageId(w),
          .version = Version(v),
          .masters = reinterpret_cast<const std::byte*>(masters[w].data()),
          .others = {{Version(v - 1), reinterpret_cast<const std::byte*>(stale[w].data())}},
          .optimizer = &optimizers[w]};
      wait([&](Saver::Done end) { savers[w]->Save(part, receipts[w], std::move(end)); });
    }
    const SavedPart buffers{
        .stage = StageId(1), .version = Version(v), .statistics = statistics.data()};
    wait([&](Saver::Done end) { savers[1]->Save(buffers, receipts[1], std::move(end)); });
    wait([&](Saver::Done end) {
      savers[0]->Commit(Version(v), scalars, {receipts[0], receipts[1]}, std::move(end));
    });
    return done;
  }

  TemporaryFolder folder;
  const OptimizerOptions optimizer{.type = OptimizerOptions::Type::kAdamW};
  const std::vector<StageLayout> layouts = {LayoutOf(0), LayoutOf(1)};
  std::vector<std::vector<float>> masters =
      std::vector(2, std::vector<float>(layouts[0].master_bytes / 4));
  std::vector<std::vector<uint16_t>> stale =
      std::vector(2, std::vector<uint16_t>(layouts[0].parameter_bytes / 2));
  std::vector<std::byte> statistics = std::vector(layouts[1].statistics_bytes, std::byte{1});
  std::array<StageOptimizer, 2> optimizers = {StageOptimizer(optimizer, layouts[0]),
                                              StageOptimizer(optimizer, layouts[1])};
  CheckpointSaverOptions options;
  std::vector<std::string> failures;
};

TEST_F(CheckpointSaverTest, ReadsBackWhatWasSaved) {
  const SavedScalars scalars{.norm = 2.5, .loss_scale = LossScale::History{.noted = 9, .scale = 8}};
  EXPECT_EQ(SaveAll(9, scalars), 4);
  EXPECT_TRUE(failures.empty()) << failures[0];
  RZ_ASSIGN(const auto checkpoint, Checkpoint::Open(folder.path("iteration-000009")));
  EXPECT_EQ(checkpoint->state().version, Version(9));
  EXPECT_EQ(checkpoint->state().norm, 2.5);
  EXPECT_EQ(checkpoint->state().loss_scale, scalars.loss_scale);
  for (int j = 0; j < 2; ++j) {
    const StageLayout& layout = layouts[j];
    std::vector<float> rows(24);
    ASSERT_TRUE(checkpoint->model().Read(layout.parameters[0].name, {4, 6}, std::span(rows)).ok());
    EXPECT_EQ(rows[1], masters[j][4]) << "row-major in the file";
    std::vector<std::byte> other(static_cast<size_t>(layout.parameter_bytes));
    ASSERT_TRUE(checkpoint->ReadVersion(layout, Version(8), other.data()).ok());
    EXPECT_EQ(std::memcmp(other.data(), stale[j].data(), 48), 0) << "as it lies in the stage";
    EXPECT_THAT(checkpoint->ReadVersion(layout, Prediction(10), other.data()),
                Fails(absl::StatusCode::kNotFound, "layer"));
    const StateLayout state = StateLayout::Make(optimizer, layout);
    std::vector<std::byte> wanted(static_cast<size_t>(state.bytes)), found(wanted.size());
    CopyState(state, optimizers[j], wanted.data());
    ASSERT_TRUE(checkpoint->ReadState(state, layout, found.data()).ok());
    EXPECT_EQ(found, wanted);
  }
  std::vector<float> mean(5);
  ASSERT_TRUE(checkpoint->model().Read("bn.mean", {5}, std::span(mean)).ok());
  EXPECT_EQ(std::memcmp(mean.data(), statistics.data(), 20), 0);
}

TEST_F(CheckpointSaverTest, TheModelIsFoundByHuggingFacesIndex) {
  SaveAll(1);
  RZ_ASSIGN(const TensorFiles files, TensorFiles::Open(folder.path("iteration-000001")));
  EXPECT_EQ(files.tensors().size(), 6u);
  EXPECT_TRUE(files.tensors().contains("layer1.frozen"));
  RZ_ASSIGN(const std::string index,
            ReadWholeFile(folder.path("iteration-000001/model.safetensors.index.json")));
  EXPECT_THAT(index, HasSubstr("\"layer0.weight\": \"model-00001-of-00002.safetensors\""));
}

TEST_F(CheckpointSaverTest, EveryDamageIsFoundAndTheOneBeforeIsTaken) {
  SaveAll(1);
  SaveAll(2);
  std::vector<std::string> skipped;
  const auto note = [&](const absl::Status& why) { skipped.push_back(std::string(why.message())); };
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("iteration-000002"))) {
    const std::string path = entry.path();
    if (path.ends_with("index.json")) continue;  // not read
    const testing::Bytes whole = testing::ReadFile(path);
    for (const size_t at : {size_t{3}, size_t{40}, whole.size() / 2, whole.size() - 1}) {
      testing::Bytes damaged = whole;
      damaged[at] ^= 1;
      testing::WriteFile(path, damaged);
      skipped.clear();
      const auto newest = Checkpoint::OpenNewest(folder.path(), note);
      ASSERT_TRUE(newest.ok()) << newest.status();
      EXPECT_EQ((*newest)->state().version, Version(1)) << path << " at " << at;
      EXPECT_THAT(skipped, ::testing::ElementsAre(HasSubstr("iteration-000002")));
    }
    std::filesystem::remove(path);
    EXPECT_FALSE(Checkpoint::Open(folder.path("iteration-000002")).ok()) << path;
    testing::WriteFile(path, whole);
  }
  EXPECT_TRUE(Checkpoint::Open(folder.path("iteration-000002")).ok());
}

TEST_F(CheckpointSaverTest, WhereNoneIsWholeTheLastErrorSaysWhy) {
  SaveAll(1);
  std::filesystem::resize_file(folder.path("iteration-000001/optimizer-00001-of-00002.safetensors"),
                               100);
  EXPECT_THAT(Checkpoint::OpenNewest(folder.path(), [](const absl::Status&) {}),
              Says("optimizer-00001"));
  RZ_ASSIGN(const auto none,
            Checkpoint::OpenNewest(folder.path("none"), [](const absl::Status&) {}));
  EXPECT_EQ(none, nullptr);
}

TEST_F(CheckpointSaverTest, AFullDiskCostsThisCheckpointAlone) {
  SaveAll(1);
  bool full = true;
  options.files.decorate = [&](std::unique_ptr<IoEngine> engine) {
    return MakeFaultyIo(std::move(engine), [&](const IoRequest&) {
      return full ? absl::ResourceExhaustedError("No space left on device") : absl::OkStatus();
    });
  };
  EXPECT_EQ(SaveAll(2), 4) << "the run goes on";
  EXPECT_THAT(failures, ::testing::Contains(AllOf(HasSubstr("2: "), HasSubstr("model-00001"),
                                                  HasSubstr("No space left"))));
  EXPECT_THAT(failures.back(), HasSubstr("could not be written"));
  EXPECT_FALSE(std::filesystem::exists(UnfinishedFolder(folder.path(), Version(2))));
  EXPECT_EQ(LatestIn(folder.path()), Version(1));
  full = false;
  failures.clear();
  SaveAll(3);
  EXPECT_TRUE(failures.empty());
  EXPECT_EQ(LatestIn(folder.path()), Version(3));
}

TEST_F(CheckpointSaverTest, AFolderThatVanishesCostsNoRun) {
  options.folder = folder.path("run");
  EXPECT_EQ(SaveAll(1), 4);
  EXPECT_THAT(failures, ::testing::Contains(
                            HasSubstr("run/.iteration-000001.tmp: cannot be made: No such file")));
}

TEST_F(CheckpointSaverTest, AFileThatAnotherHostHasIsMissed) {
  options.moment = [&] {
    std::filesystem::remove(UnfinishedFolder(folder.path(), Version(1)) +
                            "/buffers-00002-of-00002.safetensors");
  };
  SaveAll(1);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_THAT(failures[0],
              AllOf(HasSubstr("7 files"), HasSubstr("here are 6"), HasSubstr("share")));
}

}  // namespace
}  // namespace ringzero
