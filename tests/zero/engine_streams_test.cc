// States that come from a tier for each update give the bits of states in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <vector>

#include "offload/io_engine.h"
#include "tests/offload/io_decorators.h"
#include "tests/support/status_matchers.h"
#include "tests/zero/expect_toy_bits.h"
#include "tests/zero/toy_ring.h"

namespace ringzero {
namespace {

using Type = OptimizerOptions::Type;

using Io = std::unique_ptr<IoEngine>;
constexpr int64_t kHead = 4096;  // of the toy's tier file

// A disk on which updates wait for their states.
Io SlowIo(Io io) { return MakeThrottled(std::move(io), 20e6); }

const Precision kBf16 = {.compute = ValueType::kBf16, .parameters = ValueType::kBf16};

TEST(EngineStreamsTest, BitsOverRulesOptimizersAndTypes) {
  const std::vector<Precision> precisions = {{},
                                             kBf16,
                                             {.compute = ValueType::kFp16,
                                              .parameters = ValueType::kFp16,
                                              .loss_scale = {.initial = 1024}}};
  std::mt19937 random(13);
  int run = 0;
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const Precision& precision : precisions) {
      for (const Type type : {Type::kAdamW, Type::kSgd, Type::kLion, Type::kAdagrad}) {
        ToyOptions o{.workers = 1 + run % 4, .laps = 1 + run % 2, .rule = rule};
        o.stages = o.workers + int(random() % 4);
        o.zero_stage = run % 4;
        o.precision = precision;
        o.width = 3 + int(random() % 40);
        DrawTheRest(random, o);
        o.optimizer.type = type;
        o.clipping = static_cast<Clipping>(random() % 4);
        if (o.clipping != Clipping::kOff) o.optimizer.max_norm = 0.5;
        o.staged_pieces = 1 + run % 3;
        if (run % 2 == 1) o.io = SlowIo;
        ExpectReferenceBits(o, TransportsOfRun(run++));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// A stage of two pieces, through a ring that has room for one.
TEST(EngineStreamsTest, AStageOfMorePiecesThanTheRing) {
  for (const Precision& precision : {Precision(), kBf16}) {
    for (const int pieces : {1, 3}) {
      ToyOptions o{.workers = 2, .stages = 4, .iterations = 3, .rule = Rule::kCdpV2};
      o.width = 300'000;
      o.precision = precision;
      o.optimizer.type = Type::kAdamW;
      o.staged_pieces = pieces;
      ExpectReferenceBits(o, ShmTransports());
    }
  }
}

TEST(EngineStreamsTest, AnUpdateThatIsSkippedStoresNothing) {
  std::vector<std::string> lines;
  ToyOptions o{.workers = 1, .stages = 1, .iterations = 4, .rule = Rule::kDp};
  o.optimizer.type = Type::kAdamW;
  o.precision = {.skip_overflows = true};
  o.overflows = {{Iteration(1), StageId(0), 0}, {Iteration(2), StageId(0), 0}};
  o.staged_pieces = 1;
  o.io = [&](Io io) { return MakeTracedIo(std::move(io), lines); };
  ExpectReferenceBits(o);
  const auto writes = [](const std::string& line) { return line.starts_with("write"); };
  EXPECT_EQ(std::ranges::count_if(lines, writes), 2 * 2) << "two updates of two states";
}

// Plain SGD has no state but them.
TEST(EngineStreamsTest, MastersStreamWithoutMoments) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1}) {
    ToyOptions o{.workers = 3, .stages = 4, .iterations = 3, .rule = rule};
    o.precision = kBf16;
    o.optimizer.type = Type::kSgd;
    o.staged_pieces = 1;
    ASSERT_TRUE(ToyPlan(o).any_streams_masters());
    ExpectReferenceBits(o, ShmTransports());
  }
}

// The last version's masters come through one block; saves and resumed runs see the file.
TEST(EngineStreamsTest, MastersAreCollectedSavedAndResumed) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const int zero_stage : {0, 1, 3}) {
      ToyOptions o{.workers = 3, .stages = 7, .iterations = 5, .rule = rule};
      o.zero_stage = zero_stage;
      o.precision = kBf16;
      o.optimizer.type = Type::kAdamW;
      o.checkpoint = {.every = 2, .at_end = true};
      o.staged_pieces = 2;
      ASSERT_TRUE(ToyPlan(o).any_streams_masters());
      RZ_ASSIGN(const ToyResult run, RunToyRing(o, ShmTransports()));
      ExpectSaved(o, run.saved);
      o.first_iteration = 2;
      ExpectReferenceBits(o, LocalTransports());
      o.hosts = {2, 1};
      ExpectReferenceBits(o, LocalTransports());
    }
  }
}

// There is no update, but a collection.
TEST(EngineStreamsTest, ARunThatWasOverShowsItsMasters) {
  ToyOptions o{.workers = 2, .stages = 4, .iterations = 3, .rule = Rule::kCdpV1};
  o.first_iteration = 3;
  o.precision = {.compute = ValueType::kFp16,
                 .parameters = ValueType::kFp16,
                 .loss_scale = {.initial = 1024},
                 .skip_overflows = true};
  o.optimizer.type = Type::kAdamW;
  o.staged_pieces = 1;
  ASSERT_TRUE(ToyPlan(o).any_streams_masters());
  RZ_ASSIGN(const ToyResult run, RunToyRing(o, ShmTransports()));
  EXPECT_EQ(run.parameters, RunToyReference(o).parameters);
}

TEST(EngineStreamsTest, AnErrorOfTheDiskEndsTheRunAndNamesTheStage) {
  ToyOptions o{.workers = 2, .stages = 2, .iterations = 4, .rule = Rule::kCdpV1};
  o.optimizer.type = Type::kAdamW;
  o.staged_pieces = 2;
  using Kind = IoRequest::Kind;
  struct Fault {
    IoFault fault;
    const char* said;
  };
  const Fault faults[] = {{[](const IoRequest& request) {
                             const bool reads = request.kind == Kind::kRead;
                             return reads ? absl::ErrnoToStatus(EIO, "read") : absl::OkStatus();
                           },
                           "read: Input/output error"},
                          {[](const IoRequest& request) {
                             const bool writes = request.kind == Kind::kWrite;
                             return writes ? absl::ErrnoToStatus(ENOSPC, "write")
                                           : absl::OkStatus();
                           },
                           "write: No space left on device"},
                          {[](const IoRequest& request) {
                             if (request.kind == Kind::kRead) request.memory[9] ^= std::byte{4};
                             return absl::OkStatus();
                           },
                           "what was read is not what was written there last"}};
  for (const Fault& each : faults) {
    o.io = [&](Io io) { return MakeFaultyIo(std::move(io), each.fault); };
    const absl::StatusOr<ToyResult> run = RunToyRing(o, LocalTransports());
    EXPECT_THAT(std::string(run.status().message()),
                testing::HasSubstr(absl::StrCat(
                    "the toy's tier: stage 0 (s0), record 0 at offset 4096: ", each.said)));
  }
}

// What the last update has left is read by no other update.
TEST(EngineStreamsTest, DamageIsFoundByWhatReadsTheFile) {
  for (const bool saves : {true, false}) {
    ToyOptions o{.workers = 1, .stages = 1, .iterations = 3, .rule = Rule::kDp};
    o.precision = kBf16;
    o.optimizer.type = Type::kAdamW;
    o.checkpoint.at_end = saves;
    o.staged_pieces = 1;
    int writes = 0;
    const IoFault damage = [&](const IoRequest& request) {
      const bool is_first = request.kind == IoRequest::Kind::kWrite && request.offset == kHead;
      if (!is_first || ++writes < o.iterations) return absl::OkStatus();
      request.memory[9] ^= std::byte{4};
      const size_t bytes = request.memory.size();
      EXPECT_EQ(pwrite(request.file, request.memory.data(), bytes, kHead), ssize_t(bytes));
      return absl::OkStatus();
    };
    o.io = [&](Io io) { return MakeFaultyIo(std::move(io), damage); };
    const absl::StatusOr<ToyResult> run = RunToyRing(o, LocalTransports());
    EXPECT_THAT(
        std::string(run.status().message()),
        testing::HasSubstr("the toy's tier: stage 0 (s0), record 0 at offset 4096: what was "
                           "read is not what was written there last"));
    EXPECT_EQ(writes, o.iterations);
  }
}

// The states move from file to file while some of them are read, and some do not change.
TEST(EngineStreamsTest, SavesThatTakeTheFileChangeNoBits) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const Precision& precision : {Precision(), kBf16}) {
      ToyOptions o{.workers = 3, .stages = 7, .iterations = 9, .rule = rule};
      o.precision = precision;
      o.optimizer.type = Type::kAdamW;
      o.checkpoint = {.every = 2, .at_end = true};
      o.staged_pieces = 2;
      o.saves_take_files = true;
      if (rule != Rule::kDp) o.io = SlowIo;
      ExpectReferenceBits(o, ShmTransports());
      RZ_ASSIGN(const ToyResult run, RunToyRing(o, ShmTransports()));
      ExpectSaved(o, run.saved);
    }
  }
}

TEST(EngineStreamsTest, WhatIsSavedIsWhatTheReferenceHas) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    ToyOptions o{.workers = 3, .stages = 5, .iterations = 7, .rule = rule};
    o.optimizer.type = Type::kAdamW;
    o.checkpoint = {.every = 2, .at_end = true};
    o.staged_pieces = 2;
    RZ_ASSIGN(const ToyResult run, RunToyRing(o, ShmTransports()));
    ExpectSaved(o, run.saved);
  }
}

}  // namespace
}  // namespace ringzero
