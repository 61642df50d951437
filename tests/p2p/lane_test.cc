// Lanes over memory keep NCCL's rules, the driver sees what is stuck, words survive anything.
#include "p2p/nccl/lane.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "p2p/nccl/lane_transport.h"
#include "tests/p2p/cluster.h"
#include "tests/p2p/memory_lane.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using Direction = LaneOp::Direction;

struct Payload {
  std::byte bytes[8] = {};
};

LaneOp Op(Direction direction, int peer, Payload& payload) {
  return {direction, WorkerId(peer), payload.bytes};
}

TEST(MemoryLaneTest, MovesPayloadInOrder) {
  const auto group = MakeMemoryLaneGroup("0 -> 1", {WorkerId(0), WorkerId(1)}, HostMemory());
  const auto at0 = MakeMemoryLane(group, WorkerId(0)), at1 = MakeMemoryLane(group, WorkerId(1));
  EXPECT_EQ(at0->name(), "memory 0 -> 1");
  Payload sent[2] = {{{std::byte{1}}}, {{std::byte{2}}}}, got[2];
  for (Payload& each : sent) ASSERT_TRUE(at0->Start(Op(Direction::kSend, 1, each)).ok());
  EXPECT_EQ(*at0->Completed(), 0);
  ASSERT_TRUE(at1->Start(Op(Direction::kReceive, 0, got[0])).ok());
  EXPECT_EQ(*at0->Completed(), 1);
  ASSERT_TRUE(at1->Start(Op(Direction::kReceive, 0, got[1])).ok());
  EXPECT_EQ(*at1->Completed(), 2);
  EXPECT_EQ(got[0].bytes[0], std::byte{1});
  EXPECT_EQ(got[1].bytes[0], std::byte{2});
}

TEST(MemoryLaneTest, OneselfNeedsBothEnds) {
  const auto group = MakeMemoryLaneGroup("0 -> 0", {WorkerId(0)}, HostMemory());
  const auto lane = MakeMemoryLane(group, WorkerId(0));
  Payload sent = {{std::byte{3}}}, got;
  ASSERT_TRUE(lane->Start(Op(Direction::kReceive, 0, got)).ok());
  EXPECT_EQ(*lane->Completed(), 0);
  ASSERT_TRUE(lane->Start(Op(Direction::kSend, 0, sent)).ok());
  EXPECT_EQ(*lane->Completed(), 2);
  EXPECT_EQ(got.bytes[0], std::byte{3});
}

// Three workers of one lane, each of which has a receive before the send that another waits for.
TEST(MemoryLaneTest, ACircleHangsAndOneOrderDoesNot) {
  for (const bool one_order : {false, true}) {
    const auto group =
        MakeMemoryLaneGroup("all", {WorkerId(0), WorkerId(1), WorkerId(2)}, HostMemory());
    std::vector<std::unique_ptr<Lane>> lanes;
    Payload sent[3], got[3];
    for (int w = 0; w < 3; ++w) lanes.push_back(MakeMemoryLane(group, WorkerId(w)));
    for (int w = 0; w < 3; ++w) {
      const LaneOp receive = Op(Direction::kReceive, (w + 2) % 3, got[w]);
      const LaneOp send = Op(Direction::kSend, (w + 1) % 3, sent[w]);
      // The one order: 0 -> 1, 1 -> 2, 2 -> 0. Worker 0 sends first in it.
      const bool send_first = one_order && w == 0;
      ASSERT_TRUE(lanes[w]->Start(send_first ? send : receive).ok());
      ASSERT_TRUE(lanes[w]->Start(send_first ? receive : send).ok());
    }
    for (int w = 0; w < 3; ++w) EXPECT_EQ(*lanes[w]->Completed(), one_order ? 2 : 0);
  }
}

TEST(MemoryLaneTest, AbortLeavesPayloadAlone) {
  const auto group = MakeMemoryLaneGroup("0 -> 1", {WorkerId(0), WorkerId(1)}, HostMemory());
  const auto at0 = MakeMemoryLane(group, WorkerId(0)), at1 = MakeMemoryLane(group, WorkerId(1));
  Payload sent = {{std::byte{1}}}, got;
  ASSERT_TRUE(at1->Start(Op(Direction::kReceive, 0, got)).ok());
  at1->Abort();
  ASSERT_TRUE(at0->Start(Op(Direction::kSend, 1, sent)).ok());
  EXPECT_EQ(*at0->Completed(), 0);
  EXPECT_EQ(got.bytes[0], std::byte{0});
  EXPECT_FALSE(at1->Completed().ok());
  EXPECT_FALSE(at1->Start(Op(Direction::kReceive, 0, got)).ok());
  EXPECT_FALSE(at0->Start(Op(Direction::kSend, 2, sent)).ok()) << "it is not of the group";
}

TEST(LaneDriverTest, WhatIsStuckIsNamed) {
  const auto group = MakeMemoryLaneGroup("0 -> 1", {WorkerId(0), WorkerId(1)}, HostMemory());
  std::vector<std::unique_ptr<Lane>> lanes;
  lanes.push_back(MakeMemoryLane(group, WorkerId(0)));
  Ends failed;
  LaneDriver driver(std::move(lanes),
                    {.stall_limit = std::chrono::milliseconds(50), .on_failure = failed.Next()});
  std::atomic<int> done{0};
  const Buffer block = MakeHeapBuffer(64);
  driver.Start({.lane = 0,
                .op = {Direction::kSend, WorkerId(1), block.as<std::byte>()},
                .done = [&done] { ++done; }});
  const absl::Status why = failed.Take();
  EXPECT_THAT(
      why, Fails(absl::StatusCode::kDeadlineExceeded, "lane memory 0 -> 1: 64 bytes to worker 1"));
  EXPECT_EQ(done, 0);
}

TEST(LaneDriverTest, AnAbortIsToldToNobody) {
  const auto group = MakeMemoryLaneGroup("0 -> 1", {WorkerId(0), WorkerId(1)}, HostMemory());
  std::vector<std::unique_ptr<Lane>> lanes;
  lanes.push_back(MakeMemoryLane(group, WorkerId(0)));
  const Buffer block = MakeHeapBuffer(64);
  Ends failed, posted;
  {
    LaneDriver driver(std::move(lanes), {.on_failure = failed.Next()});
    driver.Abort();
    driver.Start({.op = {Direction::kSend, WorkerId(1), block.as<std::byte>()},
                  .done = [] { FAIL() << "it was aborted"; }});
    driver.Post([tell = posted.Next()] { tell(absl::OkStatus()); });
    EXPECT_EQ(posted.Take(), absl::OkStatus());
  }
  EXPECT_EQ(failed.calls(), 0);
}

TEST(LaneWordTest, ParsesItsOwnAndRefusesTheRest) {
  const LaneWord word = {.type = LaneWord::Type::kGo, .kind = 3, .tag = 7, .bytes = 9, .number = 4};
  RZ_ASSIGN(const LaneWord again, ParseLaneWord(ToText(word)));
  EXPECT_EQ(ToText(again), ToText(word));
  EXPECT_TRUE(IsLaneWord(ToText(word)));
  for (const auto break_it : {+[](LaneWord& w) { w.kind = kMaxMessageKinds; },
                              +[](LaneWord& w) { w.type = static_cast<LaneWord::Type>(9); },
                              +[](LaneWord& w) { w.bytes = uint64_t{1} << 60; }}) {
    LaneWord broken = word;
    break_it(broken);
    EXPECT_FALSE(ParseLaneWord(ToText(broken)).ok());
  }
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::string text = ToText(word).substr(0, random() % 60);
    for (int j = 0; j < 3 && !text.empty(); ++j) text[random() % text.size()] = char(random());
    if (IsLaneWord(text)) (void)ParseLaneWord(text);
  }
}

// A peer that says nonsense ends the run with a cause, wherever the nonsense is.
TEST(LaneWireTest, NonsenseFromAPeerIsNamed) {
  const std::string mark(kLaneWordMark);
  const LaneWord offer = {.type = LaneWord::Type::kOffer, .bytes = 64};
  LaneWord huge = offer, ahead = offer;
  huge.bytes = ~uint64_t{0};
  ahead.block = 1 << 20;
  const std::string go = ToText(LaneWord{.type = LaneWord::Type::kGo, .number = 3});
  for (const std::string& text : {mark, mark + "nonsense", ToText(huge), ToText(ahead), go}) {
    auto news = std::make_shared<LaneNews>();
    RZ_ASSIGN(auto words,
              LocalTransports()({LaneWordsOptions(SmallOptions(), news), SmallOptions()}));
    const auto group = MakeMemoryLaneGroup("0 -> 1", {WorkerId(0), WorkerId(1)}, HostMemory());
    LaneParts parts = {.name = "lanes",
                       .words = std::move(words[0]),
                       .news = news,
                       .routes = {.to = {kNoLane, 0}, .from = {kNoLane, 0}},
                       .memory = HostMemory()};
    parts.lanes.push_back(MakeMemoryLane(group, WorkerId(0)));
    RZ_ASSIGN(auto transport, CreateLaneTransport(std::move(parts), SmallOptions()));
    Waiter<std::string> answer;
    ASSERT_TRUE(words[1]->Ask(WorkerId(0), text, answer.Callback()).ok());
    EXPECT_TRUE(Eventually([&] { return !transport->status().ok(); }));
    EXPECT_THAT(transport->status(), Says("from worker 1"));
  }
}

TEST(LaneTransportTest, RefusesWhatCannotBe) {
  const auto make = [](LaneRoutes routes, TransportOptions options) {
    auto news = std::make_shared<LaneNews>();
    auto words = LocalTransports()({LaneWordsOptions(options, news)});
    LaneParts parts = {.name = "lanes",
                       .words = std::move((*words)[0]),
                       .news = news,
                       .routes = std::move(routes),
                       .memory = HostMemory()};
    return CreateLaneTransport(std::move(parts), options).status();
  };
  const LaneRoutes none = {.to = {kNoLane}, .from = {kNoLane}};
  EXPECT_TRUE(make(none, SmallOptions()).ok());
  EXPECT_THAT(make({.to = {0}, .from = {kNoLane}}, SmallOptions()),
              Says("a route takes lane 0; there are 0"));
  EXPECT_THAT(make({}, SmallOptions()), Says("routes for 0 workers"));
  TransportOptions options = SmallOptions();
  options.memory = MemoryKind::kCuda;
  EXPECT_THAT(make(none, options), Says("the host's memory only"));
  options = SmallOptions();
  options.progress = ProgressMode::kCaller;
  EXPECT_THAT(make(none, options), Says("threads of its own"));
}

}  // namespace
}  // namespace ringzero
