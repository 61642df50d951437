// Parameters that come from files before they are read give the bits of parameters in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <random>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "offload/io_engine.h"
#include "tests/offload/io_decorators.h"
#include "tests/support/status_matchers.h"
#include "tests/zero/expect_toy_bits.h"
#include "tests/zero/toy_ring.h"

namespace ringzero {
namespace {

using Type = OptimizerOptions::Type;
using Io = std::unique_ptr<IoEngine>;

// A disk on which everything waits for parameters.
Io SlowIo(Io io) { return MakeThrottled(std::move(io), 20e6); }

const Precision kBf16 = {.compute = ValueType::kBf16, .parameters = ValueType::kBf16};
const Precision kFp16 = {
    .compute = ValueType::kFp16, .parameters = ValueType::kFp16, .loss_scale = {.initial = 1024}};

TEST(EngineParametersTest, BitsOverRulesOptimizersAndTypes) {
  std::mt19937 random(17);
  int run = 0;
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const Precision& precision : {Precision(), kBf16, kFp16}) {
      for (const Type type : {Type::kAdamW, Type::kSgd, Type::kLion, Type::kAdagrad}) {
        ToyOptions o{.workers = 1 + run % 4, .laps = 1 + run % 3, .rule = rule};
        o.stages = o.workers + int(random() % 5);
        o.precision = precision;
        o.width = 3 + int(random() % 40);
        DrawTheRest(random, o);
        o.optimizer.type = type;
        o.clipping = static_cast<Clipping>(random() % 4);
        if (o.clipping != Clipping::kOff) o.optimizer.max_norm = 0.5;
        o.predict = rule != Rule::kDp && random() % 2 == 0;
        o.parameter_slots = 2 + run % 2;
        o.staged_pieces = run % 3;
        if (run % 4 == 3) o.io = SlowIo;
        o.hosts = {o.workers};
        if (o.retain == 0 && !o.tied && o.frozen_prefix == 0) {
          EXPECT_TRUE(ToyPlan(o).stages[0].streams_parameters);
        }
        ExpectReferenceBitsOn(o, run++ % 2 == 0 ? LocalTransports() : ShmTransports());
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Of one worker whose stages all lie in a file but the third and sixth.
ToyOptions Few(Rule rule) {
  ToyOptions o{.workers = 1, .stages = 7, .iterations = 5, .rule = rule};
  o.optimizer.type = Type::kAdamW;
  o.parameter_slots = 2;
  o.hosts = {1};
  return o;
}

TEST(EngineParametersTest, EachIsReadWhenItIsWantedAndWrittenOnceItIsMade) {
  std::vector<std::string> lines;
  ToyOptions o = Few(Rule::kDp);
  o.io = [&](Io io) { return MakeTracedIo(std::move(io), lines); };
  ExpectReferenceBitsOn(o, LocalTransports());
  const auto count = [&](const char* kind) {
    return std::ranges::count_if(lines, [&](const auto& line) { return line.starts_with(kind); });
  };
  const int stages = 5, slots = 2;
  EXPECT_EQ(count("write"), stages * o.iterations);
  // By each lap: all for the forward, and those for the backward that it has not left; by each
  // update; and what the end collects.
  EXPECT_EQ(count("read"), (stages + (stages - slots) + stages) * o.iterations + stages);
}

TEST(EngineParametersTest, AreSavedAndResumed) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const Precision& precision : {Precision(), kBf16}) {
      ToyOptions o{.workers = 3, .stages = 7, .iterations = 7, .rule = rule};
      o.precision = precision;
      o.optimizer.type = Type::kAdamW;
      o.checkpoint = {.every = 2, .at_end = true};
      o.parameter_slots = 3;
      o.staged_pieces = 2;
      o.hosts = {3};
      RZ_ASSIGN(const ToyResult run, RunToyRing(o, ShmTransports()));
      ExpectSaved(o, run.saved);
      o.first_iteration = 4;
      ExpectReferenceBitsOn(o, LocalTransports());
      o.saves_take_files = true;
      ExpectReferenceBitsOn(o, ShmTransports());
    }
  }
}

// A slot keeps what another stage has left there, unless the update fills it.
TEST(EngineParametersTest, AnUpdateThatIsSkippedLeavesTheVersion) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const ValueType type : {ValueType::kFp32, ValueType::kBf16}) {
      ToyOptions o = Few(rule);
      o.precision = {.compute = type, .parameters = type, .skip_overflows = true};
      o.overflows = {{Iteration(1), StageId(0), 0}, {Iteration(2), StageId(4), 0}};
      for (const int pieces : {0, 2}) {
        o.staged_pieces = pieces;
        ExpectReferenceBitsOn(o, LocalTransports());
      }
    }
  }
}

TEST(EngineParametersTest, WhatIsAskedForComesFromFilesToo) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV2}) {
    ToyOptions o{.workers = 2, .stages = 6, .iterations = 9, .rule = rule};
    o.evaluation.laps = 2;
    o.collection = {.worker = WorkerId(1), .on_request = true};
    o.checkpoint.on_request = true;
    o.requests = {{1, Request::kEvaluation}, {2, Request::kCollection}, {3, Request::kEnd}};
    o.parameter_slots = 2;
    o.hosts = {2};
    ExpectReferenceBitsOn(o, ShmTransports());
  }
}

using Kind = IoRequest::Kind;

// After a write of the disk's own: what lies there is this.
void Overwrite(const IoRequest& request, std::span<const std::byte> bytes) {
  EXPECT_EQ(pwrite(request.file, bytes.data(), bytes.size(), request.offset), std::ssize(bytes));
}

void Damage(const IoRequest& request) {
  request.memory[9] ^= std::byte{4};
  Overwrite(request, request.memory);
}

TEST(EngineParametersTest, AnErrorOfTheDiskNamesStageAndVersion) {
  struct Case {
    IoFault fault;
    const char* said;
  };
  std::map<int64_t, Buffer> reads;  // by offset
  // Errors of one stage only: reads and writes of several stages are under way at once, and any of
  // them may be over first.
  const Case cases[] = {
      {[](const IoRequest& request) {
         const bool here = request.kind == Kind::kRead && request.offset == 0;
         return here ? absl::ErrnoToStatus(EIO, "read") : absl::OkStatus();
       },
       "stage 0 (s0), version 0 at offset 0: read: Input/output error"},
      {[](const IoRequest& request) {
         const bool here = request.kind == Kind::kWrite && request.offset == 16384;
         return here ? absl::ErrnoToStatus(ENOSPC, "write") : absl::OkStatus();
       },
       "stage 6 (s6), version 1 at offset 16384: write: No space left on device"},
      {[](const IoRequest& request) {
         if (request.kind == Kind::kWrite) Damage(request);
         return absl::OkStatus();
       },
       "what was read is not what was written there last"},
      {[&](const IoRequest& request) {  // a write is lost: what was read before is there again
         Buffer& read = reads[request.offset];
         if (request.kind == Kind::kWrite) Overwrite(request, read.as<std::byte>());
         read = MakeHeapBuffer(request.memory.size());
         std::ranges::copy(request.memory, read.data());
         return absl::OkStatus();
       },
       "what was read is not what was written there last"}};
  for (const Case& each : cases) {
    ToyOptions o = Few(Rule::kDp);
    o.io = [&](Io io) { return MakeFaultyIo(std::move(io), each.fault); };
    const absl::StatusOr<ToyResult> run = RunToyRing(o, LocalTransports());
    const std::string said(run.status().message());
    EXPECT_THAT(said,
                testing::ContainsRegex("the toy's tier: parameters of stage [0-9] \\(s[0-9]\\), "
                                       "version [01] at offset [0-9]+: "));
    EXPECT_THAT(said, testing::HasSubstr(each.said));
  }
}

// Of the last version, which is read by no update.
TEST(EngineParametersTest, ASaveFindsDamage) {
  ToyOptions o = Few(Rule::kDp);
  o.checkpoint.at_end = true;
  int writes = 0;
  o.io = [&](Io io) {
    return MakeFaultyIo(std::move(io), [&](const IoRequest& request) {
      const bool last = request.kind == Kind::kWrite && ++writes == 5 * o.iterations;
      if (last) Damage(request);
      return absl::OkStatus();
    });
  };
  const absl::StatusOr<ToyResult> run = RunToyRing(o, LocalTransports());
  EXPECT_THAT(std::string(run.status().message()),
              testing::HasSubstr("what was read is not what was written there last"));
}

}  // namespace
}  // namespace ringzero
