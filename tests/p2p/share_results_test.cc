// What worker 0 gets of the others' results, and whose failure it names.
#include "p2p/rendezvous/share_results.h"

#include <gtest/gtest.h>

#include <thread>

#include "p2p/failure.h"

namespace ringzero {
namespace {

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
