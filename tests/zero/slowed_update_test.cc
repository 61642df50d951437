#include "zero/slowed_update.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

TEST(SlowedUpdate, NoLongerThanItsSteps) {
  SlowedUpdate slowed(1);
  int left = 3;
  int calls = 0;
  do ++calls;
  while (slowed.Step([&] { return --left > 0; }));
  EXPECT_EQ(left, 0);
  EXPECT_EQ(calls, 3);
}

TEST(SlowedUpdate, SleepsInSmallPartsAndRepeatsNoStep) {
  SlowedUpdate slowed(10);
  int left = 2;
  int calls = 0;
  const Clock::time_point begin = Clock::now();
  Clock::duration took{0};
  do ++calls;
  while (slowed.Step([&] {
    const Clock::time_point step = Clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    took += Clock::now() - step;
    return --left > 0;
  }));
  EXPECT_EQ(left, 0);
  EXPECT_GE(Clock::now() - begin, 10 * took);
  EXPECT_GT(calls, 3);
}

}  // namespace
}  // namespace ringzero
