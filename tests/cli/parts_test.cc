// The program's parts that no process is needed for: arguments, batches, reports, progress; cores and
// memory of a host, as a made-up kernel tells them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "integrations/cli/command_line.h"
#include "integrations/cli/parameter_files.h"
#include "integrations/cli/resources.h"
#include "integrations/cli/run_metrics.h"
#include "integrations/cli/worker_report.h"
#include "integrations/data/dataset.h"
#include "p2p/job/limits.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<CommandLine> Parse(std::vector<const char*> words) {
  words.insert(words.begin(), "ringzero");
  return ParseCommandLine(static_cast<int>(words.size()), words.data());
}

TEST(CommandLine, OptionsInAnyOrderAndBothForms) {
  RZ_ASSIGN(const auto line,
            Parse({"train", "--set", "a=b=c", "run.json", "--summary=s.json", "--workers", "3"}));
  EXPECT_EQ(line.config, "run.json");
  EXPECT_EQ(line.summary, "s.json");
  EXPECT_THAT(line.overrides, ElementsAre("a=b=c", "cyclic.workers=3"));
  // In their order; of two the last one counts.
  RZ_ASSIGN(const auto twice,
            Parse({"plan", "plan", "--workers=2", "--set=a=1", "--hosts=2", "--hosts=1"}));
  EXPECT_EQ(twice.config, "plan");
  EXPECT_THAT(twice.overrides, ElementsAre("cyclic.workers=2", "a=1"));
  EXPECT_EQ(twice.hosts, 1);
}

TEST(CommandLine, HelpManPageAndCompletionNameEveryOption) {
  for (const char* const of : {"", "man", "bash"}) {
    RZ_ASSIGN(const auto text, HelpText(of));
    const std::string option =
        std::string(of) == "man" ? R"(\-\-dump\-parameters FILE)" : "--dump-parameters";
    EXPECT_THAT(text, AllOf(HasSubstr("train"), HasSubstr(option)));
  }
  EXPECT_FALSE(HelpText("trian").ok());
}

TEST(ExitCodes, OfStatuses) {
  EXPECT_EQ(ExitCode(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCode(absl::NotFoundError("")), 2);
  EXPECT_EQ(ExitCode(absl::UnavailableError("")), 3);
  EXPECT_EQ(ExitCode(absl::DeadlineExceededError("")), 4);
  EXPECT_EQ(ExitCode(absl::InternalError("")), 5);
  EXPECT_EQ(ExitCode(absl::ResourceExhaustedError("")), 5);
  EXPECT_EQ(ExitCode(absl::OutOfRangeError("")), 6);
}

std::vector<int64_t> Epoch(SampleNumbers& numbers, int first_iteration, int iterations,
                           int per_iteration) {
  std::vector<int64_t> seen;
  for (int t = first_iteration; t < first_iteration + iterations; ++t) {
    for (int m = 0; m < per_iteration; ++m) {
      const std::span<const int64_t> found = numbers.Train(t, m);
      seen.insert(seen.end(), found.begin(), found.end());
    }
  }
  return seen;
}

TEST(SampleNumbers, AnEpochVisitsEverySampleOnceWhateverTheWorkers) {
  constexpr int64_t kSize = 50;
  constexpr int kPerEpoch = kSize / 12;
  // 12 samples an iteration: as 4 micro-batches of 3, or 2 of 6.
  SampleNumbers four(
      {.seed = 7, .micro_batch = 3, .train_batch = 12, .iterations_per_epoch = kPerEpoch}, kSize);
  SampleNumbers two(
      {.seed = 7, .micro_batch = 6, .train_batch = 12, .iterations_per_epoch = kPerEpoch}, kSize);
  const std::vector<int64_t> first = Epoch(four, 0, kPerEpoch, 4);
  EXPECT_EQ(first, Epoch(two, 0, kPerEpoch, 2));
  std::vector<int64_t> sorted = first;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(std::unique(sorted.begin(), sorted.end()), sorted.end());
  const std::vector<int64_t> second = Epoch(four, kPerEpoch, kPerEpoch, 4);
  EXPECT_NE(first, second);                        // another order
  EXPECT_EQ(first, Epoch(four, 0, kPerEpoch, 4));  // and back again
}

TEST(SampleNumbers, AnIncompleteBatchHasTheRestOfTheEpoch) {
  constexpr int64_t kSize = 53;
  constexpr int kWhole = kSize / 12;  // 5 samples are left: 3, then 2
  SampleNumbers numbers(
      {.seed = 7, .micro_batch = 3, .train_batch = 12, .iterations_per_epoch = kWhole + 1}, kSize);
  std::vector<int64_t> seen = Epoch(numbers, 0, kWhole + 1, 4);
  EXPECT_EQ(numbers.Train(kWhole, 1).size(), 2u);
  EXPECT_EQ(static_cast<int64_t>(seen.size()), kSize);
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
  // The next epoch's first is full again.
  EXPECT_EQ(numbers.Train(kWhole + 1, 0).size(), 3u);
}

TEST(SampleNumbers, AnEvaluationReadsEverySampleOnce) {
  constexpr int64_t kSize = 20;
  const SampleNumbers numbers({.evaluation_batch = 3, .test_samples = kSize}, 0);
  std::vector<int64_t> seen;
  for (int m = 0; m < kSize / 3 + 3; ++m) {
    const std::vector<int64_t> found = numbers.Evaluate(m);
    EXPECT_EQ(static_cast<int64_t>(found.size()), std::clamp<int64_t>(kSize - 3 * m, 0, 3));
    seen.insert(seen.end(), found.begin(), found.end());
  }
  std::vector<int64_t> all(kSize);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(seen, all);
}

// The order is an engine's own: a file in another one would have the values of other tensors.
TEST(ParameterCollector, TakesNoTensorInAnothersPlace) {
  const NamedValues first{.name = "first", .values = {1, 2}},
      second{.name = "second", .values = {3}};
  const NamedValues longer{.name = "first", .values = {1, 2, 3}};
  const StageLayout layout =
      StageLayout::Make({{.name = "first", .shape = {2}}, {.name = "second", .shape = {1}}}, {});
  const std::string path = absl::StrCat(testing::TempDir(), "/order.safetensors");
  const std::vector<std::pair<std::vector<NamedValues>, const char*>> cases = {
      {{second}, "\"second\""},       {{longer}, "\"first\""},
      {{first, first}, "\"first\""},  {{first, second, second}, "\"second\""},
      {{first}, "second is missing"}, {{first, second}, ""}};
  for (const auto& [given, wrong] : cases) {
    RZ_ASSIGN(const auto collector, ParameterCollector::Create(path, {layout}));
    absl::Status status;
    for (const NamedValues& values : given) {
      if (status.ok()) status = collector->Add(values);
    }
    if (status.ok()) status = collector->Finish().status();
    EXPECT_EQ(status.ok(), *wrong == '\0') << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(wrong));
    EXPECT_EQ(std::filesystem::exists(path), status.ok());
  }
  std::filesystem::remove(path);
}

TEST(RingTotals, TakesWhatHasHappenedSince) {
  RingTotals totals(Plan{.workers = 2, .laps = 2});
  EngineStats stats;
  stats.forward_seconds = 1;
  stats.wait_update_seconds = 0.5;
  stats.transport.bytes_sent = std::vector<uint64_t>(kMaxMessageKinds, 0);
  stats.transport.bytes_sent[size_t(Channel::kSum)] = 1000;
  stats.transport.bytes_sent[size_t(Channel::kMetrics)] = 7;
  stats.memory.masters = 64;
  stats.memory.taken = 128;
  stats.memory.gradients = 192;
  LapTask lap{.kind = LapTask::Kind::kTrain, .lap = Lap(0)};
  std::vector<double> sums = totals.Take(lap, stats);
  sums[RingTotals::kOffCore] = 0.5;
  RingTotals::SetPace({.micro_batches = 9, .computing_seconds = 7, .stolen_seconds = 2}, sums);
  stats.forward_seconds = 3;
  lap.lap = Lap(1);
  std::vector<double> second = totals.Take(lap, stats);
  second[RingTotals::kPss] = 30;
  EXPECT_EQ(second[0], 2);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += second[i];
  RingReport report{.sums = {0, 0, 0}};
  report.sums.insert(report.sums.end(), sums.begin(), sums.end());
  std::map<std::string, double> shown;
  for (const Metric& scalar : report.Scalars(2)) shown[scalar.name] = scalar.value;
  EXPECT_EQ(shown.at("Train/Samples/elapsed_time_ms_forward"), 1500);
  EXPECT_EQ(shown.at("Ring/Samples/wait_ms_update"), 250);
  EXPECT_EQ(shown.at("Ring/Samples/bytes_sum"), 1000);
  EXPECT_EQ(shown.at("Ring/Samples/off_core_ms"), 250);
  EXPECT_EQ(shown.at("Ring/Samples/pss_mib"), 30);
  EXPECT_EQ(shown.at("Ring/Samples/bytes_other"), 7);
  EXPECT_EQ(shown.at("Ring/Samples/memory_masters"), 64);  // of the last lap alone
  EXPECT_EQ(shown.at("Ring/Samples/memory_taken"), 128);
  EXPECT_EQ(shown.at("Ring/Samples/memory_gradients"), 192);
  stats.wait_other_seconds = 9;
  lap.kind = LapTask::Kind::kEvaluate;
  EXPECT_EQ(report.pace().computing_seconds, 7);
  EXPECT_EQ(report.pace().stolen_seconds, 2);
  EXPECT_EQ(totals.Take(lap, stats), std::vector<double>(RingTotals::kCount));
}

TEST(ReportInbox, MeansOfFoldedSums) {
  ReportInbox inbox;
  const auto listen = inbox.Listener();
  listen(Iteration(1), LapTask::Kind::kTrain, {10, 6, 8});
  listen(Iteration(2), LapTask::Kind::kEvaluate, {50, 75, 100});
  inbox.Close();
  listen(Iteration(2), LapTask::Kind::kTrain, {10, 6, 8});
  const std::vector<RingReport> reports = inbox.Take();
  ASSERT_EQ(reports.size(), 2u) << "nothing once it is closed";
  EXPECT_EQ(reports[0].done(), 2);
  EXPECT_EQ(reports[0].loss(), 1.25);
  const EvaluationResult classes = EvaluationIn(reports[1], /*tokens=*/false);
  EXPECT_EQ(classes.accuracy, 0.75);
  EXPECT_EQ(classes.Describe(), "held-out loss 0.5000, accuracy 75.00 %");
  const EvaluationResult tokens = EvaluationIn(reports[1], /*tokens=*/true);
  EXPECT_EQ(tokens.Describe(), "held-out loss 0.5000, perplexity 1.649");
  EXPECT_TRUE(inbox.Take().empty());
}

TEST(WorkerReport, ReadsBack) {
  WorkerReport report;
  report.worker = 3;
  report.steps = {.count = 7, .median = 0.1};
  report.training_bytes = uint64_t{1} << 60;
  report.steps.all.update = 1.0 / 3;
  report.steps.all.on_core = 0.7;
  report.lr = 0.1;
  report.gradient_norm = 2.0 / 3;
  report.mfu = 0.3;
  report.pss_mib = 12;
  report.iterations = 9;
  report.interrupted = true;
  report.not_written = {{"trace", "t\xff.json: no"}};  // a path has any bytes
  report.dump_trouble = "p: no";
  report.first_loss = 0.1;
  report.last_loss = std::numeric_limits<double>::quiet_NaN();  // a run that diverged
  report.evaluations = {{.iteration = 5, .loss = 2, .accuracy = 0.5}, {.iteration = 9}};
  report.costs = CostProfile{.threads = 5, .layers = {{"head", {.forward = 3, .update = 4}}}};
  report.memory.taken = 6;
  report.parameters_sha256 = "abc";
  RZ_ASSIGN(const auto again, FromBytes(ToBytes(report)));
  EXPECT_EQ(again.training_bytes, report.training_bytes);
  EXPECT_EQ(again.steps.all.update, report.steps.all.update);
  EXPECT_EQ(again.steps.all.on_core, report.steps.all.on_core);
  EXPECT_EQ(again.lr, report.lr);
  EXPECT_EQ(again.gradient_norm, report.gradient_norm);
  EXPECT_EQ(again.mfu, report.mfu);
  EXPECT_EQ(again.pss_mib, report.pss_mib);
  EXPECT_EQ(again.iterations, report.iterations);
  EXPECT_TRUE(again.interrupted);
  EXPECT_EQ(again.not_written, report.not_written);
  EXPECT_EQ(again.dump_trouble, report.dump_trouble);
  EXPECT_EQ(again.first_loss, report.first_loss);
  ASSERT_TRUE(again.last_loss.has_value());
  EXPECT_TRUE(std::isnan(*again.last_loss));
  ASSERT_EQ(again.evaluations.size(), 2u);
  EXPECT_EQ(again.evaluations[0].accuracy, 0.5);
  EXPECT_EQ(again.evaluations[1].accuracy, std::nullopt);
  ASSERT_TRUE(again.costs.has_value());
  EXPECT_EQ(again.costs->layers.at(0).name, "head");
  EXPECT_EQ(again.costs->layers.at(0).nanoseconds.update, 4);
  EXPECT_EQ(again.memory, report.memory);
  EXPECT_FALSE(FromBytes("").ok());
  EXPECT_FALSE(FromBytes("{}").ok());
}

std::string SummaryText(const Config& config, int iterations, const WorkerReport& report) {
  const RunInput input{.config = config, .length = {.iterations = iterations}, .chosen = Rule::kDp};
  return Summarize({.input = input, .iterations = iterations}, {report}).text;
}

// A worker that was stopped for three quarters of its steps has not computed in that time.
TEST(Summary, TellsTimeOffTheProcessorFromComputing) {
  const Config config;
  WorkerReport report{
      .steps = {.count = 10, .all = {.seconds = 10, .parameters = 1, .on_core = 1.5}}};
  EXPECT_THAT(SummaryText(config, 10, report),
              HasSubstr("compute 15.0 %, off the core 75.0 %, waits for parameters 10.0 %"));
}

TEST(Summary, SpeaksOfSkippedUpdatesWhereSomeWere) {
  Config config;
  config.precision.skip_overflows = true;
  WorkerReport report;
  EXPECT_THAT(SummaryText(config, 4, report), Not(HasSubstr("skipped")));
  report.skipped_updates = 1;
  EXPECT_THAT(SummaryText(config, 4, report), HasSubstr("skipped 1 of 4 updates"));
}

// Iteration `done` reported `seconds` after now.
RingReport Reported(int done, double loss, int seconds) {
  return {.iteration = Iteration(done - 1),
          .sums = {loss, 0, 1},
          .when = std::chrono::steady_clock::now() + std::chrono::seconds(seconds)};
}

TEST(Progress, EveryStepsPerPrint) {
  const Plan plan{.iterations = 10};
  Config config;
  config.steps_per_print = 4;
  ProgressMeter meter({config, plan});
  std::vector<int> printed;
  for (int done = 1; done <= 10; ++done) {
    if (meter.Line(Reported(done, 1.0, done), {}, 0).has_value()) printed.push_back(done);
  }
  EXPECT_THAT(printed, ElementsAre(4, 8, 10));
}

TEST(Progress, RatesAreByTheTimeOfTheReport) {
  const Plan plan{.iterations = 10};
  Config config;
  config.batch.train_batch = 40;
  ProgressMeter meter({config, plan});
  EXPECT_TRUE(meter.Line(Reported(1, 1.0, 1), {}, 0).has_value()) << "the first one at once";
  EXPECT_FALSE(meter.Line(Reported(2, 1.0, 10), {}, 0).has_value());
  EXPECT_TRUE(meter.Line(Reported(2, 1.0, 20), {}, 0).has_value());
  // Seen at once with the one before, reported 20 s after it.
  const std::optional<std::string> last = meter.Line(Reported(10, 0.5, 40), {}, 0);
  ASSERT_TRUE(last.has_value());
  EXPECT_THAT(*last, HasSubstr("iteration 10/10  loss 0.5000  lr 0  16 samples/s"));
}

TEST(Progress, ALineSaysWhatIsKnown) {
  const Plan plan{.iterations = 4};
  Config config;
  config.batch.train_batch = 8;
  config.model.type = ModelConfig::Type::kGpt;
  config.model.gpt.seq = 64;
  config.steps_per_print = 1;
  RingReport first = Reported(1, 2.5, 0), second = first;
  ProgressMeter meter({.config = config, .plan = plan, .flops = 1e9, .peak_flops = 1e9});
  meter.Line(first, {}, 0);
  second.iteration = Iteration(1);
  second.when += std::chrono::seconds(2);
  const WorkerReport so_far{.lr = 0.002, .gradient_norm = 0.8125, .pss_mib = 212};
  EXPECT_THAT(*meter.Line(second, so_far, 0.5),
              AllOf(HasSubstr("iteration 2/4  loss 2.5000  lr 0.002  gradient_norm 0.812  "
                              "256 tokens/s  "),
                    HasSubstr(" left  pss 212 MiB  mfu 50 %  waits 25 %")));
  EXPECT_THAT(*ProgressMeter({config, plan}).Line(second, {}, 0),
              Not(AnyOf(HasSubstr("gradient_norm"), HasSubstr("pss"), HasSubstr("mfu"))));
}

// A NaN's sign, which some processors set, is not shown.
TEST(Progress, ALossThatIsNaNIsNan) {
  const RingReport report{.sums = {-NAN, 0, 8}};
  const Plan plan{.iterations = 1};
  const Config config;
  ProgressMeter meter({config, plan});
  EXPECT_THAT(*meter.Line(report, {}, 0), HasSubstr("loss nan "));
  EXPECT_THAT(EvaluationIn(report, /*tokens=*/false).Describe(), HasSubstr("held-out loss nan,"));
}

TEST(NonfiniteWatch, SaysTheFirstAndCountsAll) {
  NonfiniteWatch watch(20);
  EXPECT_EQ(watch.Note("loss", 1, 2.5, ""), std::nullopt);
  EXPECT_EQ(watch.Summary(), std::nullopt);
  EXPECT_EQ(watch.Note("gradient norm", 3, INFINITY, "from stage 1 (head)"),
            "iteration 3/20: the gradient norm is inf, from stage 1 (head)");
  EXPECT_EQ(watch.Note("loss", 4, -NAN, ""), std::nullopt);
  EXPECT_EQ(watch.Note("loss", 5, NAN, ""), std::nullopt);
  EXPECT_EQ(watch.Summary(),
            "not finite: the gradient norm 1 time, first in iteration 3/20; the loss 2 times, "
            "first in iteration 4/20");
  NonfiniteWatch other(20);
  EXPECT_EQ(other.Note("held-out loss", 20, -NAN, ""), "iteration 20/20: the held-out loss is nan");
}

TEST(RingReport, NamesTheWorkerOfOneMicroBatch) {
  const Plan plan{.workers = 4, .laps = 2};
  RingReport loss{.sums = std::vector<double>(kMetricsCount)};
  loss.sums[kQualityCount + RingTotals::kNonfiniteLosses] = 1;
  loss.sums[kQualityCount + RingTotals::kNonfiniteNumbers] = 6;
  EXPECT_EQ(loss.OriginOfLoss(plan), "from micro-batch 6 of worker 2");
  loss.sums[kQualityCount + RingTotals::kNonfiniteLosses] = 3;
  EXPECT_EQ(loss.OriginOfLoss(plan), "from 3 of 8 micro-batches");
}

TEST(Progress, Durations) {
  EXPECT_EQ(FormatDuration(1.53), "1.5 s");
  EXPECT_EQ(FormatDuration(42.2), "42 s");
  EXPECT_EQ(FormatDuration(185), "3 min 05 s");
  EXPECT_EQ(FormatDuration(7800), "2 h 10 min");
}

class HostTest : public testing::Test {
 protected:
  HostTest() : root_(absl::StrCat(testing::TempDir(), "/host-", getpid(), "/")) {
    std::filesystem::remove_all(root_);
  }
  ~HostTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full(root_ + path);
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void WriteFree(int64_t kib) {
    Write("proc/meminfo", absl::StrCat("MemTotal:   99999999 kB\nMemAvailable: ", kib, " kB\n"));
  }

  const std::string root_;
};

TEST_F(HostTest, TheMaskWhereNoGroupLimits) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  EXPECT_EQ(UsableCores(root_), CPU_COUNT(&mask));
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(UsableCores(root_), CPU_COUNT(&mask));
  Write("sys/fs/cgroup/cpu.max", "100000000 100000\n");
  EXPECT_EQ(UsableCores(root_), CPU_COUNT(&mask)) << "a quota gives no cores";
}

TEST_F(HostTest, TheLeastQuotaAboveThisProcess) {
  Write("proc/self/cgroup", "0::/jobs/mine\n");
  Write("sys/fs/cgroup/jobs/mine/cpu.max", "max 100000\n");
  Write("sys/fs/cgroup/jobs/cpu.max", "50000 100000\n");
  EXPECT_EQ(UsableCores(root_), 0.5);
  Write("sys/fs/cgroup/jobs/mine/cpu.max", "25000 100000\n");
  EXPECT_EQ(UsableCores(root_), 0.25);
}

TEST_F(HostTest, QuotasOfTheFirstVersion) {
  Write("proc/self/cgroup", "4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(UsableCores(root_), 0.5);
  Write("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(UsableCores(root_), 0.5) << "-1: no limit of its own";
}

TEST(Cores, ALineOnlyWhereSpinningHurts) {
  EXPECT_EQ(DescribeCrowd({.workers = 4, .threads = 2}, 2),
            "4 workers with 2 threads each share 2 cores");
  EXPECT_THAT(DescribeCrowd({.workers = 1, .threads = 2}, 0.5), HasSubstr("share 0.5 cores"));
  EXPECT_EQ(DescribeCrowd({.workers = 4, .threads = 2}, 8), "");
  EXPECT_EQ(DescribeCrowd({.workers = 4, .threads = 1}, 2), "") << "one thread waits for none";
}

TEST_F(HostTest, NothingTellsOfMemory) { EXPECT_FALSE(FindHostMemory(root_).bytes.has_value()); }

TEST_F(HostTest, WhatIsAvailable) {
  WriteFree(4096);
  const FitBudget found = FindHostMemory(root_);
  EXPECT_EQ(found.bytes, 4096 * 1024);
  EXPECT_EQ(found.source, "MemAvailable of /proc/meminfo");
}

TEST_F(HostTest, TheTightestGroupAboveThisOne) {
  WriteFree(4096);
  Write("proc/self/cgroup", "0::/jobs/mine\n");
  Write("sys/fs/cgroup/jobs/mine/memory.max", "max\n");
  Write("sys/fs/cgroup/jobs/mine/memory.current", "100\n");
  EXPECT_EQ(FindHostMemory(root_).bytes, 4096 * 1024) << "no limit";
  Write("sys/fs/cgroup/jobs/memory.max", "3000000\n");
  Write("sys/fs/cgroup/jobs/memory.current", "1000000\n");
  EXPECT_EQ(FindHostMemory(root_).bytes, 2000000);
  // File pages are given up at once.
  Write("sys/fs/cgroup/jobs/memory.stat", "anon 5\ninactive_file 600000\n");
  EXPECT_EQ(FindHostMemory(root_).bytes, 2600000);
  EXPECT_EQ(FindHostMemory(root_).source, "what is left of the memory limit of cgroup /jobs");
  Write("sys/fs/cgroup/jobs/mine/memory.max", "50\n");
  EXPECT_EQ(FindHostMemory(root_).bytes, 0) << "nothing is left, not less than nothing";
}

TEST_F(HostTest, GroupsOfTheFirstVersion) {
  WriteFree(1 << 20);
  Write("proc/self/cgroup", "9:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n");
  // In a container the path is the host's, and its own group lies at the top.
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "8000000\n");
  Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "3000000\n");
  EXPECT_EQ(FindHostMemory(root_).bytes, 5000000);
  EXPECT_EQ(FindHostMemory(root_).source, "what is left of the memory limit of cgroup /");
}

}  // namespace
}  // namespace ringzero
