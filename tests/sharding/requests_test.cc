// What worker 0 asks for changes no part of a program that was written before, and what is verified
// around a version stands for the whole run.

#include "sharding/program/requests.h"

#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sharding/check/verify.h"
#include "tests/sharding/given_programs.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

RunRequest RequestOf(int kind, Version version) {
  return {.version = version,
          .ends = kind == 0,
          .evaluates = kind == 1,
          .collects = kind == 2,
          .saves = kind == 3};
}

// A worker's program, in which the request is noted when a worker hears of it at the latest.
void WriteWith(const RunRequest& request, int brought_by, const Plan& plan, int worker,
               std::vector<Instruction>& ops) {
  RZ_ASSIGN(const auto writer, ProgramWriter::Create(plan, WorkerId(worker), WholeRun(plan).begin));
  bool noted = false;
  while (writer->part().has_value()) {
    if (!noted && writer->part()->iteration.value == brought_by + IterationsOfNotice(plan)) {
      writer->Note(request);
      noted = true;
    }
    std::vector<Instruction> part = writer->Next();
    std::move(part.begin(), part.end(), std::back_inserter(ops));
  }
  EXPECT_TRUE(noted);
}

TEST(RequestsTest, ProgramsAreThoseOfAPlanThatHadItFromTheBeginning) {
  RandomShapes shapes(1);
  int met = 0;
  for (int checked = 0; checked < (FullTier() ? 4000 : 150);) {
    PlanShape shape = shapes.Next();
    shape.requests = true;
    shape.evaluate_versions = {};
    const int brought_by = shape.first_iteration + shapes.Draw(0, 2);
    shape.iterations = brought_by + 6 + shapes.Draw(0, 3);
    Plan plan = MakeTestPlan(shape);
    if (!CheckPlan(plan).ok()) continue;  // options that exclude each other
    const auto window = ChooseWindow(plan);
    if (!window.ok()) continue;
    plan.window = *window;
    ++checked;
    const RunRequest request =
        RequestOf(shapes.Draw(0, 3), RequestedVersion(plan, Iteration(brought_by)));
    SCOPED_TRACE(absl::StrCat(PlanToString(plan), "version ", request.version.value, ", ends ",
                              request.ends, ", evaluates ", request.evaluates));
    Plan asked = plan;
    NoteRequest(request, asked);
    const std::vector<Program> programs = ProgramsOf(asked);
    for (int w = 0; w < plan.workers; ++w) {
      std::vector<Instruction> ops;
      WriteWith(request, brought_by, plan, w, ops);
      ASSERT_EQ(ops, programs[w].ops) << "worker " << w;
    }
    // The window is the plan's own: for some requests it is too small.
    if (!VerifyPlan(PlanAround(plan, request)).ok()) continue;
    ++met;
    ASSERT_EQ(Verify(asked, programs), absl::OkStatus());
  }
  EXPECT_GT(met, FullTier() ? 3600 : 130);
}

TEST(RequestsTest, TravelAsNumbers) {
  for (int kinds = 0; kinds < 16; ++kinds) {
    const RunRequest request{.version = Version(7),
                             .ends = kinds % 2 == 1,
                             .evaluates = kinds / 2 % 2 == 1,
                             .collects = kinds / 4 % 2 == 1,
                             .saves = kinds / 8 == 1};
    double numbers[kRequestNumbers];
    WriteRequest(request, numbers);
    EXPECT_EQ(ReadRequest(numbers), request);
  }
}

TEST(RequestsTest, NoteChangesThePlan) {
  Plan plan = MakeTestPlan({.iterations = 30});
  NoteRequest({.version = Version(9), .evaluates = true, .collects = true}, plan);
  NoteRequest({.version = Version(7), .evaluates = true}, plan);
  NoteRequest({.version = Version(7), .evaluates = true}, plan);
  NoteRequest({.version = Version(12), .ends = true}, plan);
  NoteRequest({.version = Version(14), .ends = true}, plan);
  NoteRequest({.version = Version(8), .saves = true}, plan);
  EXPECT_EQ(plan.evaluation.versions, (std::vector<int>{7, 9}));
  EXPECT_EQ(plan.collection.versions, (std::vector<int>{9}));
  EXPECT_EQ(plan.checkpoint.versions, (std::vector<int>{8}));
  EXPECT_EQ(plan.iterations, 12);
  RZ_ASSIGN(const Plan parsed, ParsePlan(PlanToString(plan)));
  EXPECT_EQ(PlanToString(parsed), PlanToString(plan));
}

// As little notice as kLapsAhead allows.
TEST(RequestsTest, Notice) {
  EXPECT_EQ(RequestedVersion(MakeTestPlan({.laps = 1}), Iteration(5)), Version(9));
  EXPECT_EQ(RequestedVersion(MakeTestPlan({.laps = 2}), Iteration(5)), Version(8));
  EXPECT_EQ(RequestedVersion(MakeTestPlan({.laps = 8}), Iteration(5)), Version(8));
}

}  // namespace
}  // namespace ringzero
