// The parts of ring_perf: flags, data, statistics, and workers as threads, which sanitizers see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/ring/host.h"
#include "bench/ring/meeting.h"
#include "bench/ring/needs.h"
#include "bench/ring/options.h"
#include "bench/ring/payload.h"
#include "bench/ring/run.h"
#include "bench/ring/statistics.h"
#include "bench/ring/traffic.h"
#include "bench/ring/train_traffic.h"
#include "p2p/transport.h"
#include "p2p/transport_decorator.h"
#include "sharding/op.h"
#include "tests/p2p/far_memory.h"
#include "tests/p2p/transports.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::span<std::byte> Bytes(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

RingOptions Parsed(const std::vector<std::string>& words) {
  const absl::StatusOr<ParsedOptions> parsed = ParseRingOptions(words);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? parsed->options : RingOptions();
}

TEST(RingOptions, DefaultsAreThoseOfNcclTests) {
  const RingOptions options = Parsed({});
  EXPECT_THAT(options.Sizes(), ElementsAre(size_t{32} << 20));
  EXPECT_EQ(options.iterations, 20);
  EXPECT_EQ(options.warmup, 1);
  EXPECT_EQ(options.aggregate, 1);
  EXPECT_EQ(options.check, 1);
  EXPECT_EQ(options.cycles, 1);
  EXPECT_EQ(options.timeout_s, 0);
  EXPECT_EQ(options.average, Average::kMean);
  EXPECT_THAT(options.types, ElementsAre(ElementType::kFloat));
}

TEST(RingOptions, SizesGrowByAFactorOrAStep) {
  EXPECT_THAT(Parsed({"-b", "1K", "-e", "8K", "-f", "3"}).Sizes(), ElementsAre(1024, 3072));
  EXPECT_THAT(Parsed({"-b1M", "-e3M"}).Sizes(), ElementsAre(1 << 20, 2 << 20, 3 << 20));
  EXPECT_THAT(Parsed({"--minbytes=0.5g", "--maxbytes=512MiB"}).Sizes(),
              ElementsAre(size_t{1} << 29));
}

TEST(RingOptions, AHintForEveryUnknownFlag) {
  EXPECT_THAT(ParseRingOptions({"--iter", "3"}), Says("--iters"));
  EXPECT_THAT(ParseRingOptions({"--transprot=shm"}), Says("--transport"));
  EXPECT_THAT(ParseRingOptions({"-z", "1"}), Says("nccl-tests"));
}

TEST(RingOptions, NcclHasNoHostMemory) {
  EXPECT_THAT(ParseRingOptions({"--transport", "nccl", "--memory", "host"}),
              Says("--memory: host is not for --transport nccl"));
  EXPECT_EQ(Parsed({"--transport", "nccl"}).memory, MemoryKind::kCuda);
}

TEST(RingOptions, RoundsAreOfAComparison) {
  EXPECT_THAT(ParseRingOptions({"--rounds", "3"}), Says("--compare"));
  EXPECT_EQ(Rounds(Parsed({"-n", "10"})), 1);
  const RingOptions compared = Parsed({"-n", "10", "--compare", "--rounds", "3"});
  EXPECT_EQ(Rounds(compared), 3);
  EXPECT_EQ(IterationsOfRound(compared), 4);
}

TEST(Elements, EveryDifferenceCounts) {
  std::vector<float> values(1001);
  const DataKey key{WorkerId(3), 7};
  FillData(key, Bytes(values));
  EXPECT_EQ(CountWrong(ElementType::kFloat, key, Bytes(values)), 0);
  EXPECT_GT(CountWrong(ElementType::kFloat, {WorkerId(2), 7}, Bytes(values)), 990);
  EXPECT_GT(CountWrong(ElementType::kFloat, {WorkerId(3), 8}, Bytes(values)), 990);
  std::vector<float> shifted(values.begin() + 1, values.end());
  EXPECT_GT(CountWrong(ElementType::kFloat, key, Bytes(shifted)), 990);
  for (const size_t at : {size_t{0}, size_t{500}, size_t{1000}}) {
    Bytes(values)[4 * at + 2] ^= std::byte{16};
  }
  EXPECT_EQ(CountWrong(ElementType::kFloat, key, Bytes(values)), 3);
  EXPECT_EQ(CountWrong(ElementType::kInt8, key, Bytes(values)), 3);
}

TEST(Elements, SumsAreExact) {
  for (const ElementType type : AllElementTypes()) {
    if (!CanAdd(type)) continue;
    std::vector<std::byte> sum(800), terms(800);
    for (int w = 0; w < 5; ++w) {
      FillTerms(type, {WorkerId(w), 9}, w == 0 ? sum : terms);
      if (w > 0) AddTerms(type, terms, sum);
      EXPECT_EQ(CountWrongSums(type, {WorkerId(w), 9}, sum), 0) << ToString(type);
    }
    EXPECT_GT(CountWrongSums(type, {WorkerId(3), 9}, sum), 0) << ToString(type);
    EXPECT_GT(CountWrongSums(type, {WorkerId(4), 8}, sum), 0) << ToString(type);
    sum[SizeOf(type) * 2] ^= std::byte{1};
    EXPECT_EQ(CountWrongSums(type, {WorkerId(4), 9}, sum), 1) << ToString(type);
  }
}

TEST(Statistics, NearestRank) {
  std::vector<double> values(200);
  std::iota(values.begin(), values.end(), 1.0);
  const Statistics s = StatisticsOf(values);
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.max, 200);
  EXPECT_EQ(s.median, 100.5);
  EXPECT_EQ(s.mean, 100.5);
  EXPECT_EQ(s.p95, 190);
  EXPECT_EQ(s.p99, 198);
  EXPECT_NEAR(s.deviation, 57.7343, 1e-3);
  EXPECT_NEAR(s.variation_percent, 57.447, 1e-3);
  EXPECT_EQ(StatisticsOf({7}).p99, 7);
  EXPECT_EQ(StatisticsOf({}).max, 0);
}

// The whole program over threads; what it prints is ring_perf_test.py's.
int RunQuietly(std::vector<std::string> words) {
  for (const char* word : {"--transport", "local", "-b", "8", "-e", "8K", "-f", "1024", "-n", "3",
                           "--skip_host", "--cached"}) {
    words.push_back(word);
  }
  testing::internal::CaptureStdout();
  const int code = RingMain(words);
  const std::string out = testing::internal::GetCapturedStdout();
  EXPECT_THAT(out, HasSubstr("Out of bounds values")) << out;
  return code;
}

TEST(RingMain, EveryModeOverThreads) {
  for (const char* mode : {"shift", "relay", "reduce"}) {
    EXPECT_EQ(RunQuietly({"--mode", mode, "--workers", "3", "-m", "2"}), 0) << mode;
    EXPECT_EQ(RunQuietly({"--mode", mode, "--workers", "2", "--copy"}), 0) << mode;
    EXPECT_EQ(RunQuietly({"--mode", mode, "--workers", "1"}), 0) << mode;
    EXPECT_EQ(RunQuietly({"--mode", mode, "--workers", "3", "--inject", "flip"}), kRingWrongData);
  }
  EXPECT_EQ(RunQuietly({"--mode", "pingpong"}), 0);
  EXPECT_EQ(RunQuietly({"--mode", "pingpong", "--compare"}), 0);
  EXPECT_EQ(RunQuietly({"--mode", "shift", "--workers", "2", "--copy", "--compare"}), 0);
}

TEST(RingMain, ExitCodes) {
  EXPECT_EQ(RingExitCode(absl::OkStatus()), 0);
  EXPECT_EQ(RingExitCode(absl::InvalidArgumentError("")), 2);
  EXPECT_EQ(RingExitCode(absl::UnavailableError("worker 1 died")), 3);
  EXPECT_EQ(RingExitCode(absl::DeadlineExceededError("")), 3);
  EXPECT_EQ(RingExitCode(absl::CancelledError("interrupted by signal 15 (Terminated)")), 143);
  EXPECT_EQ(RingExitCode(absl::InternalError("")), 5);
}

// Damages the n-th payload of one kind that arrives.
class Damaging final : public TransportDecorator {
 public:
  Damaging(std::unique_ptr<Transport> inner, uint8_t kind)
      : TransportDecorator(std::move(inner)), kind_(kind) {}
  ~Damaging() override { DestroyInner(); }

  absl::Status Post(WorkerId from, MessageKey key, std::span<std::byte> block,
                    Done arrived) override {
    return inner().Post(from, key, block,
                        [this, key, block, arrived = std::move(arrived)](const absl::Status& came) {
                          const bool damages = came.ok() && key.kind == kind_;
                          if (damages && armed.exchange(false)) block[5] ^= std::byte{4};
                          arrived(came);
                        });
  }

  std::atomic<bool> armed{false};

 private:
  const uint8_t kind_;
};

Plan SmallPlan(const std::string& rule) {
  Plan plan{.workers = 3, .laps = 2, .rule = *ParseRule(rule), .iterations = 3};
  plan.window = 6;
  for (int j = 0; j < 4; ++j) {
    plan.stages.push_back({.name = absl::StrCat("s", j),
                           .first_layer = j,
                           .end_layer = j + 1,
                           .parameter_bytes = 256,
                           .sum_bytes = j == 0 ? 0 : 256,
                           .buffer_bytes = j == 2 ? 64 : 0,
                           .owner = WorkerId(j % 2),
                           .has_backward = j != 0});
  }
  EXPECT_TRUE(CheckPlan(plan).ok()) << CheckPlan(plan);
  return plan;
}

std::vector<TransportOptions> NeedsOf(const Plan& plan) {
  std::vector<TransportOptions> needs;
  for (int w = 0; w < plan.workers; ++w) needs.push_back(TrainNeeds(plan, WorkerId(w)));
  return needs;
}

using Transports = absl::StatusOr<std::vector<std::unique_ptr<Transport>>>;

// Runs `work` for every worker, each in a thread with its own payload. The sum of what they return.
int64_t InThreads(Transports transports, const PayloadMemory& memory,
                  const std::function<int64_t(Waiting&, Payload&)>& work) {
  EXPECT_TRUE(transports.ok()) << transports.status();
  if (!transports.ok()) return -1;
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> threads;
  for (std::unique_ptr<Transport>& transport : *transports) {
    threads.emplace_back([&] {
      Waiting waiting({.transport = transport.get()});
      Payload payload(transport->self(), memory);
      sum += work(waiting, payload);
      EXPECT_TRUE(transport->Close().ok());
      transport.reset();  // the callbacks end before what they use does
    });
  }
  for (std::thread& thread : threads) thread.join();
  return sum;
}

// `before_check` is called between the timed runs and the check.
int64_t WrongOf(
    const absl::StatusOr<std::unique_ptr<Traffic>>& traffic,
    const std::function<void()>& before_check = [] {}) {
  EXPECT_TRUE(traffic.ok()) << traffic.status();
  if (!traffic.ok()) return -1;
  const auto times = (*traffic)->Time(4);
  EXPECT_TRUE(times.ok()) << times.status();
  EXPECT_EQ(times.ok() ? times->size() : 0, 4u);
  before_check();
  const auto wrong = (*traffic)->Check(3);
  EXPECT_TRUE(wrong.ok()) << wrong.status();
  return wrong.value_or(-1);
}

// Wrong elements that the workers of a plan find when one message of `channel` is damaged in a
// check; kNone: none is.
int64_t WrongInTraining(const Plan& plan, Channel channel) {
  Transports transports = CreateLocalTransports(NeedsOf(plan));
  EXPECT_TRUE(transports.ok()) << transports.status();
  for (std::unique_ptr<Transport>& each : *transports) {
    each = std::make_unique<Damaging>(std::move(each), static_cast<uint8_t>(channel));
  }
  return InThreads(std::move(transports), HostMemory(), [&](Waiting& waiting, Payload& payload) {
    auto& damaging = static_cast<Damaging&>(waiting.transport());
    const int64_t wrong =
        WrongOf(MakeTrainTraffic({.waiting = &waiting, .payload = &payload, .plan = plan}), [&] {
          damaging.armed = damaging.self().value == plan.workers - 1 && channel != Channel::kNone;
        });
    EXPECT_FALSE(damaging.armed) << "nothing of this kind arrived";
    return wrong;
  });
}

TEST(TrainTraffic, EveryRuleAndWhatADamagedMessageDoes) {
  for (const char* rule : {"dp", "cdp_v1", "cdp_v2"}) {
    const Plan plan = SmallPlan(rule);
    EXPECT_EQ(WrongInTraining(plan, Channel::kNone), 0) << rule;
    EXPECT_GE(WrongInTraining(plan, Channel::kForwardCopy), 1) << rule;
    EXPECT_GE(WrongInTraining(plan, Channel::kSum), 1) << rule;
  }
}

// Over lanes between memory that the host cannot touch.
int64_t OverFarMemory(std::vector<TransportOptions> needs,
                      const std::function<int64_t(Waiting&, Payload&)>& work) {
  for (TransportOptions& each : needs) each.memory = MemoryKind::kCuda;
  return InThreads(LaneTransports(LocalTransports(), FarMemory())(needs), FarMemory(), work);
}

// More than any small setup needs.
Buffer Allocated(Waiting& waiting, MemoryUse use) {
  absl::StatusOr<Buffer> buffer = waiting.transport().Allocate(1 << 16, use);
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  return *std::move(buffer);
}

TEST(FarMemory, EveryModeLeavesTheHostsHandsOff) {
  for (const RingMode mode : {RingMode::kShift, RingMode::kRelay, RingMode::kReduce,
                              RingMode::kPingpong, RingMode::kStream}) {
    for (const bool copy : {false, true}) {
      const TrafficSetup setup = {.mode = mode, .copy = copy, .bytes = 4096, .buffers = 3};
      TransportOptions needs{.parameter_bytes = 1 << 20, .sum_bytes = 1 << 20};
      EXPECT_EQ(OverFarMemory({needs, needs},
                              [&](Waiting& waiting, Payload& payload) {
                                TrafficSetup mine = setup;
                                mine.waiting = &waiting;
                                mine.payload = &payload;
                                const Buffer send = Allocated(waiting, SentFrom(mode));
                                const Buffer receive = Allocated(waiting, MemoryUse::kParameters);
                                mine.send = send.as<std::byte>();
                                mine.receive = receive.as<std::byte>();
                                return WrongOf(MakeTraffic(mine));
                              }),
                0)
          << ToString(mode);
    }
  }
}

TEST(FarMemory, TrainingsTrafficToo) {
  const Plan plan = SmallPlan("cdp_v2");
  EXPECT_EQ(OverFarMemory(NeedsOf(plan),
                          [&](Waiting& waiting, Payload& payload) {
                            return WrongOf(MakeTrainTraffic(
                                {.waiting = &waiting, .payload = &payload, .plan = plan}));
                          }),
            0);
}

}  // namespace
}  // namespace ringzero
