// An optimizer alone: the bits of one loop for any number of workers, threads and shards.
#include "zero/optimizer/sharded_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "p2p/job/rendezvous.h"
#include "tests/p2p/transports.h"
#include "tests/support/status_matchers.h"
#include "zero/gradient_sum.h"
#include "zero/optimizer/optimizer_options.h"

namespace ringzero {
namespace {

using testing::HasSubstr;
using Type = OptimizerOptions::Type;

std::vector<ParameterSpec> Model() {
  return {{.name = "embed.weight", .shape = {30, 8}},
          {.name = "block.weight", .shape = {40, 24}},
          {.name = "block.bias", .shape = {40}},
          {.name = "unused", .shape = {5}},
          {.name = "frozen", .shape = {9}, .trainable = false},
          {.name = "head.weight", .shape = {300, 300}}};
}
constexpr int kUnused = 3;

using Values = std::vector<std::vector<float>>;

Values Random(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Values values;
  for (const ParameterSpec& spec : Model()) {
    int64_t numel = 1;
    for (const int64_t size : spec.shape) numel *= size;
    auto& one = values.emplace_back(static_cast<size_t>(numel));
    for (float& value : one) value = normal(random);
  }
  return values;
}

constexpr int kUpdates = 4;
uint64_t Seed(int update, int micro_batch) { return 1000 + 100 * update + micro_batch; }

// min(1, max_norm / (norm + 1e-6)), by one sum over all values that have a gradient.
float ClipOf(const Values& sum, const OptimizerOptions& options, int micro_batches) {
  if (options.max_norm == 0) return 1;
  double squares = 0;
  const std::vector<ParameterSpec> model = Model();
  for (size_t p = 0; p < sum.size(); ++p) {
    if (!model[p].trainable || p == kUnused) continue;
    for (const float value : sum[p]) squares += double(value) * value;
  }
  const double factor = options.max_norm / (std::sqrt(squares) / micro_batches + 1e-6);
  return factor < 1 ? static_cast<float>(factor) : 1;
}

// One loop: sums in the order of micro-batches, one update of each parameter.
Values Reference(const OptimizerOptions& options, int micro_batches) {
  Values theta = Random(1);
  const std::vector<ParameterSpec> model = Model();
  std::vector<StageLayout> layouts;
  std::vector<StageOptimizer> optimizers;
  for (const ParameterSpec& spec : model) {
    layouts.push_back(StageLayout::Make({spec}, {}));
    optimizers.emplace_back(options, layouts.back());
  }
  for (int t = 0; t < kUpdates; ++t) {
    Values sum = Random(Seed(t, 0));
    for (int m = 1; m < micro_batches; ++m) {
      const Values g = Random(Seed(t, m));
      for (size_t p = 0; p < sum.size(); ++p) {
        for (size_t i = 0; i < sum[p].size(); ++i) sum[p][i] += g[p][i];
      }
    }
    const float clip = ClipOf(sum, options, micro_batches);
    for (size_t p = 0; p < model.size(); ++p) {
      if (!model[p].trainable || p == kUnused) continue;
      sum[p].resize(static_cast<size_t>(layouts[p].sum_bytes) / sizeof(float));
      auto* const bytes = reinterpret_cast<std::byte*>(sum[p].data());
      MarkContribution(layouts[p], 0, bytes);
      auto* const values = reinterpret_cast<std::byte*>(theta[p].data());
      optimizers[p].Update({.iteration = t,
                            .divisor = double(micro_batches),
                            .clip = clip,
                            .theta = values,
                            .sum = bytes},
                           values);
    }
  }
  return theta;
}

struct Worker {
  Values values;
  std::map<std::string, int> states;  // by parameter
  double norm = 0;                    // of the last gradient
  absl::Status status;
};

absl::Status Train(ShardedOptimizer& optimizer, int workers, int laps, Worker& mine) {
  for (int t = 0; t < kUpdates; ++t) {
    for (int lap = 0; lap < laps; ++lap) {
      const Values g = Random(Seed(t, lap * workers + optimizer.self().value));
      std::vector<const float*> gradients;
      for (const auto& one : g) gradients.push_back(one.data());
      gradients[kUnused] = nullptr;
      const absl::Status status = optimizer.AddGradients(gradients);
      if (!status.ok()) return status;
    }
    const absl::Status status = optimizer.Step();
    if (!status.ok()) return status;
  }
  mine.norm = optimizer.gradient_norm();
  return optimizer.VisitStates(
      [&](const ShardedOptimizer::NamedState& state) { ++mine.states[state.parameter]; });
}

ShardedOptimizerOptions OptionsOf(const OptimizerOptions& options, int laps, int threads) {
  return {.optimizer = options,
          .parameters = Model(),
          .micro_batches = laps,
          .threads = threads,
          .wait_timeout = std::chrono::seconds(60)};
}

std::vector<float*> PointersTo(Values& values) {
  std::vector<float*> pointers;
  for (auto& one : values) pointers.push_back(one.data());
  return pointers;
}

std::vector<Worker> RunWorkers(const OptimizerOptions& options, int workers, int laps, int threads,
                               const MakeTransports& make, bool lends,
                               const std::optional<ShardTier>& tier = std::nullopt) {
  const FlatShards shards = *FlatShards::Make(Model(), workers);
  std::vector<TransportOptions> needs;
  for (int w = 0; w < workers; ++w) needs.push_back(ShardRing::Needs(shards, WorkerId(w), lends));
  auto transports = *make(needs);
  std::vector<Worker> results(static_cast<size_t>(workers));
  std::vector<std::thread> running;
  for (int w = 0; w < workers; ++w) {
    running.emplace_back([&, w] {
      Worker& mine = results[w];
      mine.values = Random(1);
      ShardedOptimizerOptions own = OptionsOf(options, laps, threads);
      own.tier = tier;
      auto optimizer = ShardedOptimizer::CreateOver(std::move(own), PointersTo(mine.values),
                                                    std::move(transports[w]), lends);
      mine.status = optimizer.ok() ? Train(**optimizer, workers, laps, mine) : optimizer.status();
    });
  }
  for (std::thread& thread : running) thread.join();
  return results;
}

OptimizerOptions Lively(Type type) {
  OptimizerOptions options{.type = type, .learning_rate = 0.01};
  options.adamw.weight_decay = options.lamb.weight_decay = options.muon.weight_decay = 0.1;
  options.decays = OptimizerOptions::Decays::kMatrices;
  options.groups = {{.pattern = "embed.*", .rate_factor = 0.5}};
  options.curve = {.type = RateCurve::Type::kPhases};
  options.curve.phases = {.warmup_updates = 2, .decay_updates = 2, .total_updates = 4};
  return options;
}

// The same global batch, whichever worker has its micro-batches.
TEST(ShardedOptimizerTest, GivesTheBitsOfOneLoop) {
  for (const Type type : {Type::kAdamW, Type::kSgd, Type::kLamb, Type::kMuon}) {
    const OptimizerOptions options = Lively(type);
    const Values wanted = Reference(options, 6);
    for (const auto& [workers, laps] :
         {std::pair(1, 6), std::pair(2, 3), std::pair(3, 2), std::pair(6, 1)}) {
      SCOPED_TRACE(testing::Message() << "type " << int(type) << ", " << workers << " workers");
      const MakeTransports make = workers == 3
                                      ? Delayed(ShmTransports(), 7, std::chrono::microseconds(300))
                                      : LocalTransports();
      for (const bool lends : {false, true}) {
        std::map<std::string, int> states;
        for (Worker& worker : RunWorkers(options, workers, laps, workers, make, lends)) {
          ASSERT_TRUE(worker.status.ok()) << worker.status;
          EXPECT_EQ(worker.values, wanted) << lends;
          states.merge(worker.states);
        }
        EXPECT_EQ(states.size(), 5u);  // all that train, each at one worker
      }
    }
  }
}

// Of the large parameter; LAMB's states stay in memory.
TEST(ShardedOptimizerTest, StatesInAFileGiveTheSameBits) {
  const ShardTier tier{.folder = testing::TempDir()};
  for (const Type type : {Type::kAdamW, Type::kSgd, Type::kLion, Type::kLamb}) {
    const OptimizerOptions options = Lively(type);
    const Values wanted = Reference(options, 6);
    for (const auto& [workers, laps] : {std::pair(1, 6), std::pair(2, 3), std::pair(6, 1)}) {
      SCOPED_TRACE(testing::Message() << "type " << int(type) << ", " << workers << " workers");
      for (const int threads : {1, 3}) {
        for (const Worker& worker :
             RunWorkers(options, workers, laps, threads, LocalTransports(), false, tier)) {
          ASSERT_TRUE(worker.status.ok()) << worker.status;
          EXPECT_EQ(worker.values, wanted);
        }
      }
    }
  }
}

// A model whose state is many times the memory through which it goes.
struct Large {
  static constexpr int64_t kSide = 900;
  explicit Large(std::optional<ShardTier> tier, int threads = 1,
                 const OptimizerOptions& optimizer_options = Lively(Type::kAdamW)) {
    auto made =
        ShardedOptimizer::Create({.optimizer = optimizer_options,
                                  .parameters = {{.name = "embed.weight", .shape = {kSide, kSide}},
                                                 {.name = "head.weight", .shape = {kSide, kSide}}},
                                  .threads = threads,
                                  .tier = std::move(tier)},
                                 PointersTo(values));
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) optimizer = *std::move(made);
  }
  absl::Status Add(float gradient) {
    const std::vector<float> g(kSide * kSide, gradient);
    return optimizer->AddGradients(std::vector{g.data(), g.data()});
  }
  absl::Status Update(float gradient) {
    const absl::Status added = Add(gradient);
    return added.ok() ? optimizer->Step() : added;
  }
  using NamedStates = std::map<std::string, std::vector<float>>;
  NamedStates States() const {
    NamedStates states;
    const absl::Status visited =
        optimizer->VisitStates([&](const ShardedOptimizer::NamedState& state) {
          states[state.parameter + "." + state.state] = {state.values.begin(), state.values.end()};
        });
    EXPECT_EQ(visited, absl::OkStatus());
    return states;
  }
  absl::Status Load(int64_t updates, const NamedStates& states) {
    const auto fill = [&](const std::string& parameter, const std::string& state,
                          std::span<float> to) {
      std::ranges::copy(states.at(parameter + "." + state), to.begin());
      return absl::OkStatus();
    };
    return optimizer->LoadStates(updates, fill);
  }
  Values values{std::vector<float>(kSide * kSide, 1), std::vector<float>(kSide* kSide, 2)};
  std::unique_ptr<ShardedOptimizer> optimizer;
};

// Whatever the staging, with threads, and from memory to a file and back.
TEST(ShardedOptimizerTest, StatesComeAndGoThroughLittleMemory) {
  Large in_memory(std::nullopt);
  Large in_file(ShardTier{.folder = testing::TempDir(), .staging_bytes = 1}, 3);
  const auto update_both = [&](float gradient) {
    EXPECT_EQ(in_memory.Update(gradient), absl::OkStatus());
    EXPECT_EQ(in_file.Update(gradient), absl::OkStatus());
    EXPECT_EQ(in_file.values, in_memory.values);
    EXPECT_EQ(in_file.States(), in_memory.States());
  };
  update_both(0.5);
  update_both(-2);
  const auto kept = in_file.States();
  update_both(1);
  EXPECT_EQ(in_memory.Load(2, kept), absl::OkStatus());
  EXPECT_EQ(in_file.Load(2, kept), absl::OkStatus());
  EXPECT_EQ(in_file.States(), kept);
  update_both(3);
  const auto refuse = [](const std::string&, const std::string& state, std::span<float>) {
    return state == "exp_avg_sq" ? absl::NotFoundError("gone") : absl::OkStatus();
  };
  EXPECT_EQ(in_file.optimizer->LoadStates(2, refuse), absl::NotFoundError("gone"));
  // Within an update, too: the file has what the last one left.
  const auto before = in_file.States();
  EXPECT_EQ(in_file.Add(1), absl::OkStatus());
  EXPECT_EQ(in_file.States(), before);
  EXPECT_EQ(in_file.optimizer->Step(), absl::OkStatus());
}

// Whatever the number of updates so far, the next one begins with the present values.
TEST(ShardedOptimizerTest, LoadedStatesLeaveTheParameters) {
  Large one(std::nullopt, 1, {}), other(std::nullopt, 1, {});  // with a constant rate
  for (Large* const each : {&one, &other}) {
    EXPECT_EQ(each->Update(0.5), absl::OkStatus());
    EXPECT_EQ(each->Update(-2), absl::OkStatus());
  }
  const auto kept = one.States();
  EXPECT_EQ(one.Load(4, kept), absl::OkStatus());
  EXPECT_EQ(other.Load(5, kept), absl::OkStatus());
  EXPECT_EQ(one.Update(1), absl::OkStatus());
  EXPECT_EQ(other.Update(1), absl::OkStatus());
  EXPECT_EQ(one.values, other.values);
}

// The only one of this process that is open in the tests' folder, and that no folder lists.
std::string TierFileOfThisProcess() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with(testing::TempDir()) && target.ends_with("(deleted)"))
      return entry.path();
  }
  return "";
}

TEST(ShardedOptimizerTest, AStateThatTheDiskHasChangedIsNamed) {
  Large in_file(ShardTier{.folder = testing::TempDir(), .staging_bytes = 1}, 3);
  ASSERT_EQ(in_file.Update(0.5), absl::OkStatus());
  // It is all in the file now, and only the first record is fetched for the next update.
  ASSERT_FALSE(in_file.States().empty());
  std::fstream file(TierFileOfThisProcess(), std::ios::in | std::ios::out | std::ios::binary);
  ASSERT_TRUE(file.seekp((int64_t{1} << 20) + 9).put(4).flush());
  EXPECT_THAT(in_file.Update(0.5),
              Fails(absl::StatusCode::kDataLoss,
                    "shard 0, record 1 at offset 1048576: what was read is not what was written"));
}

TEST(ShardedOptimizerTest, AFolderThatCannotBeHasItsNameInTheError) {
  Values values = Random(1);
  ShardedOptimizerOptions options = OptionsOf({}, 1, 1);
  options.tier = ShardTier{.folder = "/nowhere/at/all"};
  EXPECT_THAT(ShardedOptimizer::Create(options, PointersTo(values)), Says("/nowhere/at/all"));
}

// The norm is of all shards, and its bits do not depend on the cut.
TEST(ShardedOptimizerTest, ClipsByTheNormOfAll) {
  OptimizerOptions options = Lively(Type::kSgd);
  options.max_norm = 20;  // of about 300 / sqrt(6)
  const Values wanted = Reference(options, 6);
  EXPECT_NE(wanted, Reference(Lively(Type::kSgd), 6));
  for (const auto& [workers, laps] : {std::pair(1, 6), std::pair(2, 3), std::pair(6, 1)}) {
    SCOPED_TRACE(testing::Message() << workers << " workers");
    const MakeTransports make = workers == 2
                                    ? ShmTransports()
                                    : Delayed(LocalTransports(), 3, std::chrono::microseconds(200));
    for (const bool lends : {false, true}) {
      for (const Worker& worker : RunWorkers(options, workers, laps, 1, make, lends)) {
        ASSERT_TRUE(worker.status.ok()) << worker.status;
        EXPECT_EQ(worker.values, wanted) << lends;
        EXPECT_NEAR(worker.norm, 123, 5);
      }
    }
  }
}

// Of two workers.
std::vector<std::unique_ptr<Transport>> TransportsOf(const FlatShards& shards) {
  return *LocalTransports()(
      {ShardRing::Needs(shards, WorkerId(0), true), ShardRing::Needs(shards, WorkerId(1), true)});
}

// Who fails tells the others, wherever they wait.
TEST(ShardedOptimizerTest, OnesEndIsTheEndOfAll) {
  auto transports = TransportsOf(*FlatShards::Make(Model(), 2));
  absl::Status other;
  std::thread second([&] {
    Worker mine{.values = Random(1)};
    auto optimizer = ShardedOptimizer::CreateOver(OptionsOf({}, 1, 1), PointersTo(mine.values),
                                                  std::move(transports[1]), true);
    other = optimizer.ok() ? Train(**optimizer, 2, 1, mine) : optimizer.status();
  });
  Values values = Random(1);
  RZ_ASSIGN(auto optimizer, ShardedOptimizer::CreateOver(OptionsOf({}, 1, 1), PointersTo(values),
                                                         std::move(transports[0]), true));
  optimizer->Abort(absl::DataLossError("bad file"));
  second.join();
  EXPECT_EQ(other, absl::DataLossError("aborted by worker 0: bad file"));
}

TEST(ShardedOptimizerTest, AloneItNeedsNobody) {
  const OptimizerOptions options = Lively(Type::kAdamW);
  Worker mine{.values = Random(1)};
  RZ_ASSIGN(auto optimizer,
            ShardedOptimizer::Create(OptionsOf(options, 2, 1), PointersTo(mine.values)));
  EXPECT_DOUBLE_EQ(optimizer->rate(), 0.005);
  EXPECT_THAT(optimizer->Step(), Says("0 of 2 micro-batches"));
  ASSERT_TRUE(Train(*optimizer, 1, 2, mine).ok());
  EXPECT_EQ(mine.values, Reference(options, 2));
  EXPECT_EQ(optimizer->updates(), kUpdates);
  EXPECT_EQ(mine.states["embed.weight"], 3);  // step, exp_avg, exp_avg_sq
}

// Over a rendezvous, as processes do; with one number that differs.
TEST(ShardedOptimizerTest, WorkersAgreeOnEveryNumber) {
  const auto rendezvous = MakeLocalRendezvous();
  std::vector<absl::Status> statuses(2);
  std::vector<std::thread> running;
  for (int w = 0; w < 2; ++w) {
    running.emplace_back([&, w] {
      Values values = Random(1);
      OptimizerOptions options;
      options.adamw.beta2 = w == 0 ? 0.999 : 0.9990000001;
      const ShardJob job{.seat = {.self = WorkerId(w),
                                  .workers = 2,
                                  .secret = "secret",
                                  .rendezvous = rendezvous,
                                  .join_limit = std::chrono::seconds(60)}};
      statuses[w] =
          ShardedOptimizer::Create(OptionsOf(options, 1, 1), PointersTo(values), job).status();
    });
  }
  for (std::thread& thread : running) thread.join();
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, Fails(absl::StatusCode::kInvalidArgument,
                              "worker 1 has adamw.beta2 = 0.9990000001"));
  }
}

TEST(ShardedOptimizerTest, AWaitHasALimitAndAName) {
  const FlatShards shards = *FlatShards::Make(Model(), 2);
  auto transports = TransportsOf(shards);
  RZ_ASSIGN(const auto second,
            ShardRing::Create(shards, std::move(transports[1]),
                              {.lends = true, .wait_timeout = std::chrono::milliseconds(50)}));
  const auto sum = second->TakeSum(0, {.update = 7, .lap = 2, .laps = 3});
  EXPECT_EQ(sum.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(
      sum.status().message(),
      "worker 1 waited longer than 50ms for the sum of shard 0 in update 7, lap 2 from worker "
      "0");
  while (transports[0]->status().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_THAT(transports[0]->status(), Says("the sum of shard 0"));
}

// Who leaves early is told by who still waits for it.
TEST(ShardedOptimizerTest, AGoodbyeEndsAWait) {
  const FlatShards shards = *FlatShards::Make(Model(), 2);
  auto transports = TransportsOf(shards);
  RZ_ASSIGN(const auto second,
            ShardRing::Create(shards, std::move(transports[1]), {.lends = true}));
  EXPECT_EQ(transports[0]->Close(), absl::OkStatus());
  const std::string why(second->TakeSum(0, {.update = 7}).status().message());
  EXPECT_THAT(why, HasSubstr("waiting for the sum of shard 0 in update 7, lap 0: "));
  EXPECT_THAT(why, HasSubstr("goodbye"));
}

TEST(ShardedOptimizerTest, RefusesWhatCannotBe) {
  Values values = Random(1);
  OptimizerOptions optimizer;
  optimizer.groups = {{.pattern = "nothing.*"}};
  EXPECT_THAT(ShardedOptimizer::Create(OptionsOf(optimizer, 1, 1), PointersTo(values)),
              Says("\"nothing.*\" matches no parameter"));
  optimizer.groups = {};
  optimizer.learning_rate = -1;
  EXPECT_THAT(ShardedOptimizer::Create(OptionsOf(optimizer, 1, 1), PointersTo(values)),
              Says("lr must be at least 0"));
  optimizer.learning_rate = 1;
  optimizer.max_norm = -1;
  EXPECT_THAT(ShardedOptimizer::Create(OptionsOf(optimizer, 1, 1), PointersTo(values)),
              Says("max_norm must be at least 0"));
  EXPECT_THAT(ShardedOptimizer::Create(OptionsOf({}, 0, 1), PointersTo(values)),
              Says("micro_batches must be 1 to 32767, found 0"));
  ShardedOptimizerOptions twice = OptionsOf({}, 1, 1);
  twice.parameters[1].name = twice.parameters[0].name;
  EXPECT_THAT(ShardedOptimizer::Create(twice, PointersTo(values)),
              Says("two parameters are called embed.weight"));
}

TEST(FlatShardsTest, TheLargestGoToWhoHasLeast) {
  const FlatShards shards = *FlatShards::Make(Model(), 3);
  EXPECT_EQ(shards.places[5].shard, 0);  // 360,000 bytes
  EXPECT_EQ(shards.places[1].shard, 1);  // 3,840
  EXPECT_EQ(shards.places[0].shard, 2);  // 960
  EXPECT_EQ(shards.places[2].shard, 2);
  EXPECT_EQ(shards.places[4].shard, 2);
  EXPECT_EQ(shards.places[2].parameter, 1);  // in the order of the model
  EXPECT_EQ(FlatShards::Make(Model(), 9)->layouts[8].parameters.size(), 0u);
}

TEST(FlatShardsTest, SaysWhoOwnsHowMuch) {
  const std::vector<ParameterSpec> parameters = {{.name = "norm", .shape = {3}},
                                                 {.name = "embedding", .shape = {50, 4}},
                                                 {.name = "bias", .shape = {7}}};
  EXPECT_EQ(DescribeOwners(*FlatShards::Make(parameters, 3)),
            "worker 0 owns 800 bytes of parameters, worker 1 12, worker 2 28; the fullest has 2.86 "
            "times the mean");
}

// Every number has a line, and every line its number.
TEST(DescribeOptimizerTest, TellsWhatDiffers) {
  OptimizerOptions other;
  other.muon.momentum = 0.9;
  other.groups = {{.pattern = "*", .weight_decay = 0.5}};
  const std::string plain = DescribeOptimizer({}), changed = DescribeOptimizer(other);
  EXPECT_THAT(plain, HasSubstr("muon.momentum = 0.94999999999999996\n"));
  EXPECT_THAT(changed, HasSubstr("muon.momentum = 0.90000000000000002\n"));
  EXPECT_THAT(changed, HasSubstr("group 0.weight_decay = 0.5\n"));
  EXPECT_EQ(DescribeOptimizer(other), changed);
}

}  // namespace
}  // namespace ringzero
