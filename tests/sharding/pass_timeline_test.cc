// What a micro-batch holds at its most, with and without the gradients that wait.
#include <gtest/gtest.h>

#include "sharding/memory/fit_certificate.h"

namespace ringzero {
namespace {

using Gradients = PassTimeline::Gradients;

// Two stages, each saves 100 in its forward, makes a temporary of 10 and a gradient of 40.
PassTimeline TwoStages() {
  PassTimeline pass;
  pass.Allocate(1000, 100);
  pass.Allocate(2000, 100);
  for (const uint64_t stage : {2, 1}) {
    pass.Allocate(50, 10);
    pass.Allocate(10000 * stage, 40);
    pass.Free(50);
    pass.Free(1000 * stage);
    pass.EndStage({10000 * stage});
  }
  return pass;
}

TEST(PassTimelineTest, PeaksByWhatGradientsDo) {
  const PassTimeline pass = TwoStages();
  EXPECT_EQ(pass.Peak(Gradients::kNone), 210);
  EXPECT_EQ(pass.Peak(Gradients::kDropped), 250);
  // Stage 1's of this pass is there in the whole of the next pass' forward, and until its first
  // stage has ended.
  EXPECT_EQ(pass.Peak(Gradients::kWait, 1), 290);
  EXPECT_EQ(pass.Peak(Gradients::kWait, 2), 330);
  EXPECT_EQ(pass.Peak(Gradients::kWait, 0), pass.Peak(Gradients::kDropped));
}

TEST(PassTimelineTest, AnAddressInsideABlockIsThatBlock) {
  PassTimeline pass;
  pass.Allocate(1000, 64);
  pass.Allocate(2000, 8);
  pass.EndStage({1063, 1000});
  EXPECT_EQ(pass.Peak(Gradients::kNone), 8);
  // One past its end is not.
  PassTimeline other;
  other.Allocate(1000, 64);
  other.EndStage({1064, 999});
  EXPECT_EQ(other.Peak(Gradients::kNone), 64);
}

TEST(PassTimelineTest, AddressesAreUsedAgain) {
  PassTimeline pass;
  pass.Allocate(1000, 30);
  pass.Free(1000);
  pass.Free(1000);  // nothing
  pass.Free(7);     // not ours
  pass.Allocate(1000, 20);
  pass.EndStage({1000});
  EXPECT_EQ(pass.Peak(Gradients::kNone), 30);
  EXPECT_EQ(pass.Peak(Gradients::kDropped), 30);
}

// What is left at the end of a pass is not there in the next.
TEST(PassTimelineTest, LeftoversDoNotAddUp) {
  PassTimeline pass;
  pass.Allocate(1, 5);
  EXPECT_EQ(pass.Peak(Gradients::kWait, 1), 5);
  EXPECT_EQ(PassTimeline().Peak(Gradients::kWait, 1), 0);
}

}  // namespace
}  // namespace ringzero
