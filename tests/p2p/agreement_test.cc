// What the workers must have alike, and how a difference is said; what worker 0 gets of the others'
// results, and whose failure it names.
#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "p2p/failure.h"
#include "p2p/rendezvous/hosts.h"
#include "p2p/rendezvous/rendezvous.h"
#include "tests/p2p/losing_rendezvous.h"

namespace ringzero {
namespace {

using Sections = std::vector<AgreementSection>;

// What each worker ends with. `odd` is what the last one has instead.
std::vector<absl::Status> AgreeAll(int workers, const Sections& sections, const Sections& odd) {
  const std::shared_ptr<Rendezvous> rendezvous = MakeLocalRendezvous();
  std::vector<absl::Status> ends(workers);
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      const JobSeat seat = {.self = WorkerId(w), .workers = workers, .rendezvous = rendezvous};
      ends[w] = Agree(seat, w == workers - 1 ? odd : sections);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

void ExpectAll(const std::vector<absl::Status>& ends, const std::string& words) {
  for (const absl::Status& end : ends) {
    EXPECT_EQ(end, absl::InvalidArgumentError(words));
  }
}

const Sections kOurs = {{"versions", "ringzero = 0.5\ntorch = 2.11.0\n"},
                        {"configuration", "cyclic.rule = \"dp\"\ncyclic.slack = 1\n"},
                        {"plan", "stage 0: 1 layer\nstage 1: 2 layers\n"}};

Sections Ours(int section, const std::string& text) {
  Sections sections = kOurs;
  sections[section].text = text;
  return sections;
}

TEST(AgreementTest, EqualWorkersAgree) {
  for (const absl::Status& end : AgreeAll(4, kOurs, kOurs)) EXPECT_TRUE(end.ok()) << end;
  EXPECT_TRUE(Agree({.self = WorkerId(0), .workers = 1}, kOurs).ok());
}

// Who is not that far does not have to guess why this worker ended.
TEST(AgreementTest, WhoDoesNotAgreeLeavesItsCause) {
  const auto rendezvous = std::make_shared<LosingRendezvous>();
  ASSERT_TRUE(rendezvous->Put("agreement/1", "not a statement").ok());
  const JobSeat seat = {.self = WorkerId(0), .workers = 2, .rendezvous = rendezvous};
  const absl::Status end = Agree(seat, kOurs);
  EXPECT_EQ(end.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rendezvous->last_words(), end);
}

// Not as what the others have not told.
TEST(AgreementTest, ALostWorkerIsNamedInEveryWait) {
  const absl::Status lost = absl::UnavailableError("worker 2 gave no sign of life for 1.0 s");
  const auto rendezvous = std::make_shared<LosingRendezvous>();
  rendezvous->Lose(lost);
  const JobSeat seat = {.self = WorkerId(0), .workers = 3, .rendezvous = rendezvous};
  EXPECT_EQ(HostsOfWorkers(seat).status(), lost);
  EXPECT_EQ(InterfacesToOtherHosts(seat, {"a", "b", "c"}).status(), lost);
  EXPECT_EQ(Agree(seat, kOurs), lost);
}

TEST(AgreementTest, EverybodySaysWhatDiffersAndWhere) {
  ExpectAll(AgreeAll(3, kOurs, Ours(1, "cyclic.rule = \"dp\"\ncyclic.slack = 0\n")),
            "worker 2 has cyclic.slack = 0, worker 0 has 1 (configuration)");
  ExpectAll(AgreeAll(2, kOurs, Ours(0, "ringzero = 0.5\ntorch = 2.12.0\n")),
            "worker 1 has torch = 2.12.0, worker 0 has 2.11.0 (versions)");
  ExpectAll(AgreeAll(2, kOurs, Ours(1, "cyclic.rule = \"dp\"\ncyclic.slack = 1\nseed = 3\n")),
            "worker 1 has seed = 3, worker 0 has no such value (configuration)");
  ExpectAll(AgreeAll(2, kOurs, Ours(1, "cyclic.rule = \"dp\"\n")),
            "worker 1 has no cyclic.slack, worker 0 has cyclic.slack = 1 (configuration)");
  ExpectAll(AgreeAll(2, kOurs, Ours(2, "stage 0: 1 layer\nstage 1: 3 layers\n")),
            "worker 1 has line 2 = stage 1: 3 layers, worker 0 has stage 1: 2 layers (plan)");
  ExpectAll(AgreeAll(2, kOurs, {kOurs[0], kOurs[1]}),
            "worker 1 compares other things than worker 0: another version of ringzero?");
}

TEST(AgreementTest, WhatIsTooLongToShowIsCompared) {
  const std::string text(100'000, 'p');
  std::string other = text;
  other.back() = 'q';
  for (const absl::Status& end : AgreeAll(2, Ours(2, text), Ours(2, text))) EXPECT_TRUE(end.ok());
  ExpectAll(AgreeAll(2, Ours(2, text), Ours(2, other)),
            "worker 1's differs from worker 0's (plan)");
}

TEST(AgreementTest, WhoCannotComeSaysWhy) {
  const std::shared_ptr<Rendezvous> rendezvous = MakeLocalRendezvous();
  Disagree({.self = WorkerId(1), .workers = 2, .rendezvous = rendezvous},
           absl::NotFoundError("/data: no such folder"));
  EXPECT_EQ(Agree({.self = WorkerId(0), .workers = 2, .rendezvous = rendezvous}, kOurs),
            absl::NotFoundError("worker 1: /data: no such folder"));
}

TEST(AgreementTest, GarbageIsRefused) {
  using Garbage = std::pair<std::string, std::string>;  // a head, and a first part
  for (const auto& [head, part] :
       {Garbage("", ""), Garbage("x", ""), Garbage("0", ""), Garbage("0 x", ""),
        Garbage("0 1 2", ""), Garbage("17 0", ""), Garbage("-1 0", ""), Garbage("0 1", "x"),
        Garbage("0 1", "5:plan"), Garbage("0 1", "4:plan"),
        Garbage("0 1", "99999999999999999999:x")}) {
    const std::shared_ptr<Rendezvous> rendezvous = MakeLocalRendezvous();
    ASSERT_TRUE(rendezvous->Put("agreement/1", head).ok());
    ASSERT_TRUE(rendezvous->Put("agreement/1/0", part).ok());
    const absl::Status end =
        Agree({.self = WorkerId(0), .workers = 2, .rendezvous = rendezvous}, kOurs);
    EXPECT_EQ(end.code(), absl::StatusCode::kInvalidArgument) << head << ", " << part;
    EXPECT_TRUE(absl::StrContains(end.message(), "worker 1's statement")) << end;
  }
}

TEST(AgreementTest, AMissingWorkerIsADeadline) {
  const JobSeat seat = {.self = WorkerId(0),
                        .workers = 2,
                        .rendezvous = MakeLocalRendezvous(),
                        .join_limit = std::chrono::milliseconds(50)};
  const absl::Status missing = Agree(seat, kOurs);
  EXPECT_EQ(missing.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(absl::StartsWith(missing.message(), "worker 1 has stated nothing: ")) << missing;
}

using Result = absl::StatusOr<std::string>;
using Results = absl::StatusOr<std::vector<std::string>>;

// What worker 0 ends with.
Results ShareAll(const std::vector<Result>& each) {
  const std::shared_ptr<Rendezvous> rendezvous = MakeLocalRendezvous();
  const auto share = [&](int w) {
    const JobSeat seat = {
        .self = WorkerId(w), .workers = static_cast<int>(each.size()), .rendezvous = rendezvous};
    return ShareResults(seat, each[w], std::chrono::seconds(60));
  };
  std::vector<std::thread> others;
  for (size_t w = 1; w < each.size(); ++w) {
    others.emplace_back([&, w] {
      const Results own = share(static_cast<int>(w));
      EXPECT_EQ(own.status(), each[w].status());
      if (own.ok()) {
        EXPECT_EQ(*own, std::vector<std::string>{*each[w]});
      }
    });
  }
  Results all = share(0);
  for (std::thread& other : others) other.join();
  return all;
}

TEST(ShareResultsTest, AllComeOfAnySize) {
  const std::string large(200'000, 'x');
  const Results all = ShareAll({"a", large, ""});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(*all, (std::vector<std::string>{"a", large, ""}));
}

TEST(ShareResultsTest, WhoFailedIsNamed) {
  EXPECT_EQ(ShareAll({"a", "b", absl::DataLossError("bad file")}).status(),
            absl::DataLossError("worker 2: bad file"));
  EXPECT_EQ(ShareAll({absl::DataLossError("mine"), "b", absl::DataLossError("bad file")}).status(),
            absl::DataLossError("mine"));
}

TEST(ShareResultsTest, WhoIsMissingSaysItself) {
  const absl::Status cause = absl::ResourceExhaustedError("no memory for 3 GiB of sums");
  const absl::Status told = absl::ResourceExhaustedError("worker 2: no memory for 3 GiB of sums");
  const auto late = absl::DeadlineExceededError("worker 2 did not connect within 100 ms");
  EXPECT_EQ(ShareAll({late, late, cause}).status(), told);
  EXPECT_EQ(ShareAll({"a", late, cause}).status(), told);
  EXPECT_EQ(ShareAll({WorkerDied(WorkerId(2)), WorkerDied(WorkerId(2)), cause}).status(), told);
  EXPECT_EQ(ShareAll({AbortedBy(WorkerId(1), late), AbortedBy(WorkerId(1), late), cause}).status(),
            told);
  // Nobody knows more.
  EXPECT_EQ(ShareAll({late, late, "c"}).status(), late);
}

TEST(ShareResultsTest, WhoLeavesNothingIsNamedInTime) {
  const JobSeat seat = {.workers = 3, .rendezvous = MakeLocalRendezvous()};
  EXPECT_EQ(ShareResults(seat, std::string("a"), std::chrono::milliseconds(50)).status(),
            absl::UnavailableError("worker 1 has left no result within 0.05 s"));
}

}  // namespace
}  // namespace ringzero
