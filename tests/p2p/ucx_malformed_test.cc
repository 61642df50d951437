// Strangers who speak our protocol over UCX, and nonsense: refused with words, and the right
// workers neither end nor hang. What somebody does to UCX itself, below the protocol, is not tried
// here (docs/p2p.md, "Who can reach a worker").
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "p2p/ucx/ucx_links.h"
#include "p2p/ucx/ucx_packet.h"
#include "p2p/ucx/ucx_transport.h"
#include "p2p/ucx/ucx_worker.h"
#include "tests/p2p/cluster.h"
#include "tests/p2p/losing_rendezvous.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using std::chrono::milliseconds;
using Result = absl::StatusOr<std::unique_ptr<Transport>>;

constexpr char kSecret[] = "of this job";

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template <typename T>
std::string TextOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// Somebody who has a worker's address, from the rendezvous say, and UCX.
class Stranger final : public UcxListener {
 public:
  explicit Stranger(Rendezvous& rendezvous, int workers) {
    // A payload leaves at once, whether it is awaited or not.
    auto made = UcxWorker::Create({.seat = {.workers = workers},
                                   .transport = {.progress = ProgressMode::kCaller},
                                   .ucx = {.settings = {{"RNDV_THRESH", "inf"}}}},
                                  this);
    EXPECT_TRUE(made.ok()) << made.status();
    worker_ = *std::move(made);
    for (int w = 0; w < workers; ++w) {
      const absl::StatusOr<std::string> address =
          rendezvous.Get(absl::StrCat("ucx/", w), kDeadline);
      EXPECT_TRUE(address.ok());
      const size_t header = address->find('\n') + 1;
      EXPECT_TRUE(worker_->Connect(w, address->substr(header + kUcxNonceBytes)).ok());
    }
  }
  void Say(int to, const std::string& header, const std::string& data) {
    UcxOperation operation{.listener = this};
    under_way_ = true;
    const UcxWorker::Fate fate = worker_->SendMessage(to, {.header = BytesOf(header),
                                                           .data = BytesOf(data),
                                                           .operation = &operation,
                                                           .wants_reply = true});
    Await(fate);
  }
  std::string address() const { return worker_->address(); }
  // What comes back, "" within the limit.
  std::string Refusal(milliseconds limit) {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (refusal_.empty() && std::chrono::steady_clock::now() < until) worker_->Progress();
    return std::exchange(refusal_, "");
  }

  bool OnMessage(const Message& message) override {
    UcxHeader header;
    if (message.header.size() < sizeof(header)) return false;
    std::memcpy(&header, message.header.data(), sizeof(header));
    const auto text = message.header.subspan(sizeof(header));
    if (header.type == UcxType::kRefusal) {
      refusal_.assign(reinterpret_cast<const char*>(text.data()), text.size());
    }
    return false;
  }
  void OnDone(UcxOperation&, const absl::Status&, size_t) override { under_way_ = false; }
  void OnBroken(int, const absl::Status&) override { under_way_ = false; }

 private:
  // The end of what was begun.
  void Await(UcxWorker::Fate fate) {
    if (fate != UcxWorker::Fate::kUnderWay) under_way_ = false;
    const auto until = std::chrono::steady_clock::now() + kDeadline;
    while (under_way_ && std::chrono::steady_clock::now() < until) worker_->Progress();
  }

  bool under_way_ = false;
  std::string refusal_;
  std::unique_ptr<UcxWorker> worker_;
};

struct Job {
  std::shared_ptr<Rendezvous> rendezvous = MakeLocalRendezvous();
  std::vector<JobSeat> seats;
  std::vector<TransportOptions> options;
  std::vector<Result> Make() {
    std::vector<Result> made(seats.size());
    std::vector<std::thread> threads;
    for (size_t w = 0; w < seats.size(); ++w) {
      threads.emplace_back([&, w] { made[w] = CreateUcxTransport(seats[w], options[w]); });
    }
    for (std::thread& thread : threads) thread.join();
    return made;
  }
  // All of them; ends the program with the error of one that is not made.
  std::vector<std::unique_ptr<Transport>> Run() {
    std::vector<std::unique_ptr<Transport>> running;
    for (Result& each : Make()) {
      RZ_CHECK(each.ok(), each.status().ToString());
      running.push_back(*std::move(each));
    }
    return running;
  }
};

void ExpectAllEnd(const std::vector<std::unique_ptr<Transport>>& transports,
                  const std::string& words) {
  for (const auto& transport : transports) {
    EXPECT_TRUE(Eventually([&] { return !transport->status().ok(); })) << words;
    EXPECT_THAT(transport->status(), Says(words));
  }
}

Job JobOf(int workers) {
  Job job;
  for (int w = 0; w < workers; ++w) {
    job.seats.push_back({.self = WorkerId(w),
                         .workers = workers,
                         .secret = kSecret,
                         .rendezvous = job.rendezvous,
                         .join_limit = std::chrono::seconds(20)});
    job.options.push_back(SmallOptions());
  }
  return job;
}

// What worker 1 of a job proves to worker 0.
class Insider {
 public:
  explicit Insider(Job& job) {
    for (int w = 0; w < 2; ++w) {
      const std::string told = job.rendezvous->Get(absl::StrCat("ucx/", w), kDeadline).value_or("");
      nonces_[w] = told.substr(told.find('\n') + 1, kUcxNonceBytes);
    }
  }
  UcxPair Pair(std::string_view secret = kSecret) const {
    return {.secret = secret,
            .from = 1,
            .to = 0,
            .nonce_of_from = nonces_[1],
            .nonce_of_to = nonces_[0]};
  }

 private:
  std::array<std::string, 2> nonces_;
};

TEST(UcxMalformed, StrangersWhoSpeakOurProtocolAreRefused) {
  Job job = JobOf(2);
  const auto made = job.Run();
  Stranger stranger(*job.rendezvous, 2);
  Job earlier = JobOf(2);  // with the same secret
  const auto made_earlier = earlier.Run();

  UcxHeader header;
  header.type = UcxType::kHello;
  UcxHello hello;
  hello.from = 1;
  hello.workers = 2;
  for (const Digest& proof : {HelloProof(Insider(job).Pair("of another job")),
                              HelloProof(Insider(earlier).Pair())}) {  // as it was heard then
    hello.proof = proof;
    stranger.Say(0, TextOf(header), TextOf(hello));
    EXPECT_EQ(stranger.Refusal(kDeadline), "it does not know this job's secret");
  }
  hello.version = 77;
  stranger.Say(0, TextOf(header), TextOf(hello));
  EXPECT_TRUE(absl::StartsWith(stranger.Refusal(kDeadline), "it speaks version 77"));
  stranger.Say(0, TextOf(header), "short");
  EXPECT_TRUE(absl::StrContains(stranger.Refusal(kDeadline), "bytes, not 5"));

  // Aborts, farewells and messages without the pass; and bytes without any sense.
  for (const UcxType type : {UcxType::kNote, UcxType::kFarewell, UcxType::kGoodbye, UcxType::kBlock,
                             UcxType::kRefusal}) {
    UcxHeader forged;
    forged.type = type;
    forged.from = 1;
    forged.bytes = type == UcxType::kBlock ? 64 : uint64_t{1} << 60;
    stranger.Say(0, TextOf(forged), std::string(64, 'x'));
  }
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    // Two of three have the size of a header.
    const std::array<size_t, 3> sizes = {sizeof(UcxHeader), sizeof(UcxShortHeader), random() % 200};
    std::string noise(sizes[static_cast<size_t>(i % 3)], '\0');
    std::string data(random() % 5000, '\0');
    for (char& each : noise) each = static_cast<char>(random());
    for (char& each : data) each = static_cast<char>(random());
    stranger.Say(static_cast<int>(random() % 2), noise, data);
  }
  // Messages of one endpoint come in order: an answer to this proves that all those were read.
  for (int to = 0; to < 2; ++to) {
    stranger.Say(to, TextOf(header), "short");
    // Noise may have been a hello, too, and was refused before.
    EXPECT_TRUE(Eventually(
        [&] { return absl::EndsWith(stranger.Refusal(milliseconds(100)), "bytes, not 5"); }));
  }
  for (uint64_t tag = 0; tag < 3; ++tag) {
    PassOne(*made[0], *made[1], {0, tag});
    PassOne(*made[1], *made[0], {0, tag});
  }
  EXPECT_TRUE(made[0]->status().ok() && made[1]->status().ok());
}

// One who knows the secret and sends what cannot be: an error of all that says what.
TEST(UcxMalformed, NonsenseOfAWorkerEndsTheJobWithWords) {
  struct Case {
    UcxHeader header;
    std::string data;
    std::string words;
    int times = 1;
    bool is_short = false;
  };
  const UcxHeader block = {.bytes = 64, .type = UcxType::kBlock};
  const auto numbered = [&](uint32_t number) {
    UcxHeader header = block;
    header.number = number;
    return header;
  };
  UcxHeader unknown = block;
  unknown.kind = kMaxMessageKinds;
  const std::string payload(64, 'x');
  Case cases[] = {
      {{.type = static_cast<UcxType>(77)}, "", "type is unknown"},
      {{.type = UcxType::kNote}, std::string(5000, 'x'), "it has 5000 bytes"},
      {{.type = UcxType::kNote, .kind = 4}, "", "its kind is unknown"},
      {block, "short", "says 64 bytes and brings 5"},
      {block, std::string(65, 'x'), "says 64 bytes and brings 65"},
      {{.bytes = 5000, .type = UcxType::kBlock}, std::string(5000, 'x'), "and offers 0"},
      {unknown, payload, "its kind is unknown"},
      {unknown, payload, "its kind is unknown", 1, true},
      {numbered(70000), payload, "message 70000 of kind 0 comes, but 0 were expected"},
      {numbered(0xffffffff), payload, "message 4294967295 of kind 0 comes"},
      {numbered(3), payload, "message 3 of kind 0 comes", 2},  // it came before
      {numbered(3), payload, "message 3 of kind 0 comes", 2, true},
  };
  for (Case& each : cases) {
    Job job = JobOf(2);
    const auto made = job.Run();
    Stranger insider(*job.rendezvous, 2);
    each.header.from = 1;
    each.header.pass = PassFor(Insider(job).Pair());
    UcxShortHeader memory;
    const std::span<const std::byte> sent = Pack(each.header, each.is_short, memory);
    for (int i = 0; i < each.times; ++i) {
      insider.Say(0, {reinterpret_cast<const char*>(sent.data()), sent.size()}, each.data);
    }
    ExpectAllEnd(made, each.words);
  }
}

TEST(UcxMalformed, WorkersWhoDifferSayWhat) {
  struct Case {
    std::function<void(Job&)> change;
    std::string words;
  };
  const std::vector<Case> cases = {
      {[](Job& job) { job.seats[1].secret = "of another job"; }, "job's secret"},
      {[](Job& job) { job.options[1].peer_timeout = milliseconds(777); }, "777 ms"},
      {[](Job& job) { job.seats[1].workers = 3; }, "worker 1 of 3"},
  };
  for (const Case& each : cases) {
    Job job = JobOf(2);
    for (JobSeat& seat : job.seats) seat.join_limit = std::chrono::seconds(4);
    each.change(job);
    if (job.seats[1].workers == 3) {  // its third is a copy of the first
      std::thread([rendezvous = job.rendezvous] {
        const auto address = rendezvous->Get("ucx/0", kDeadline);
        if (address.ok()) rendezvous->Put("ucx/2", *address).IgnoreError();
      }).detach();
    }
    std::vector<Result> made = job.Make();
    bool said = false;
    for (const Result& transport : made) {
      EXPECT_FALSE(transport.ok()) << each.words;
      said = said || absl::StrContains(transport.status().message(), each.words);
    }
    EXPECT_TRUE(said) << each.words << ": " << made[0].status() << "; " << made[1].status();
  }
}

TEST(UcxMalformed, AnAddressOfAnotherVersionIsRefused) {
  Job job = JobOf(2);
  job.seats.pop_back();
  ASSERT_TRUE(job.rendezvous->Put("ucx/1", "ringzero ucx 77\nnothing").ok());
  const Result made = CreateUcxTransport(job.seats[0], job.options[0]);
  EXPECT_THAT(made, Says("'ringzero ucx 77'"));
}

TEST(UcxMalformed, AMissingWorkerIsNamedInTime) {
  Job job = JobOf(2);
  job.seats[0].join_limit = milliseconds(200);
  const Result made = CreateUcxTransport(job.seats[0], job.options[0]);
  EXPECT_THAT(made, Fails(absl::StatusCode::kDeadlineExceeded, "worker 1"));
}

// Its address is there, and no hello comes from it.
TEST(UcxMalformed, AWorkerThatDiesBeforeItsHelloEndsTheWait) {
  Job job = JobOf(2);
  const auto losing = std::make_shared<LosingRendezvous>();
  job.seats[0].rendezvous = job.rendezvous = losing;
  Stranger silent(*job.rendezvous, 0);
  ASSERT_TRUE(losing
                  ->Put("ucx/1", absl::StrCat("ringzero ucx ", kUcxVersion, "\n",
                                              std::string(kUcxNonceBytes, 'n'), silent.address()))
                  .ok());
  const absl::Status lost = absl::UnavailableError("worker 1 gave no sign of life for 1.0 s");
  losing->Lose(lost, 5);  // after its address was read
  EXPECT_EQ(CreateUcxTransport(job.seats[0], job.options[0]).status(), lost);
}

// A worker whose join fails has no mailbox yet, and UCX hands it the others' hellos while it ends.
// When a hello comes in there is UCX's choice: so it is said here without UCX.
TEST(UcxMalformed, WhatComesBeforeTheBeginningIsDropped) {
  UcxPortOptions options;
  options.seat = JobOf(2).seats[0];
  options.peers = {WorkerId(0), WorkerId(1)};
  UcxLinks links(options);
  UcxHeader header;
  header.type = UcxType::kHello;
  UcxHello hello;
  hello.from = 1;
  hello.workers = 2;
  hello.proof = HelloProof({.secret = kSecret, .from = 1, .to = 0});
  hello.peer_timeout_ms = static_cast<uint64_t>(options.transport.peer_timeout.count());
  const std::string header_bytes = TextOf(header), hello_bytes = TextOf(hello);
  links.OnMessage({.header = BytesOf(header_bytes), .data = BytesOf(hello_bytes)});
  EXPECT_EQ(links.Ungreeted(), WorkerId(1));
  links.OnBroken(1, absl::UnavailableError("it is gone"));
  EXPECT_EQ(links.Ungreeted(), WorkerId(1));
}

TEST(UcxMalformed, SettingsAndMemoryThatAreNotThereAreRefused) {
  Job job = JobOf(1);
  const Result unknown =
      CreateUcxTransport(job.seats[0], job.options[0], {.settings = {{"TLS", "no_such_way"}}});
  EXPECT_FALSE(unknown.ok());
  job.options[0].memory = MemoryKind::kCuda;
  const Result cuda =
      CreateUcxTransport(job.seats[0], job.options[0], {.settings = {{"TLS", "tcp,self"}}});
  EXPECT_THAT(cuda, Fails(absl::StatusCode::kInvalidArgument, "CUDA"));
}

}  // namespace
}  // namespace ringzero
