// Chains of blame: their end comes first, circles are told, texts read back.
#include "zero/blame.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

BlameAnswer Waits(int next, uint64_t tag) {
  return {.says = "waits for " + std::to_string(tag),
          .next = WorkerId(next),
          .message = MessageKey{3, tag}};
}

TEST(BlameChain, TheEndIsNamedFirst) {
  BlameChain chain;
  EXPECT_FALSE(chain.next().has_value());
  chain.Add(WorkerId(0), Waits(1, 10));
  ASSERT_TRUE(chain.next().has_value());
  EXPECT_EQ(chain.next()->worker, WorkerId(1));
  EXPECT_EQ(chain.next()->question.waiter, WorkerId(0));
  EXPECT_EQ(chain.next()->question.message, (MessageKey{3, 10}));
  chain.Add(WorkerId(1), Waits(2, 20));
  chain.Add(WorkerId(2), {.says = "has been computing \"F3\" for 601 s"});
  EXPECT_FALSE(chain.next().has_value());
  EXPECT_EQ(chain.Describe(),
            "worker 2 has been computing \"F3\" for 601 s, so worker 1 waits for 20, so worker 0 "
            "waits for 10");
}

TEST(BlameChain, ACircleIsTold) {
  BlameChain chain;
  chain.Add(WorkerId(0), Waits(1, 10));
  chain.Add(WorkerId(1), Waits(2, 20));
  chain.Add(WorkerId(2), Waits(1, 30));
  // Worker 1 again, but about another message: it may be on the way.
  ASSERT_TRUE(chain.next().has_value());
  EXPECT_EQ(chain.next()->question.waiter, WorkerId(2));
  chain.Add(WorkerId(1), Waits(2, 20));
  EXPECT_FALSE(chain.next().has_value());
  EXPECT_EQ(chain.Describe(),
            "workers wait in a circle: worker 2 waits for 30, worker 1 waits for 20, which is "
            "where it began, so worker 1 waits for 20, so worker 0 waits for 10");
}

TEST(BlameChain, EndsThoughEveryAnswerIsANewOne) {
  BlameChain chain;
  int links = 0;
  chain.Add(WorkerId(0), Waits(1, 0));
  while (chain.next().has_value() && links < 1000) {
    ++links;
    chain.Add(chain.next()->worker, Waits(links % 2, static_cast<uint64_t>(links)));
  }
  EXPECT_LT(links, 1000);
}

TEST(BlameText, ReadsBack) {
  for (const BlameQuestion& question :
       {BlameQuestion{WorkerId(7), MessageKey{11, ~uint64_t{0}}}, BlameQuestion{WorkerId(0), {}}}) {
    RZ_ASSIGN(const auto read, ParseQuestion(WriteQuestion(question)));
    EXPECT_EQ(read.waiter, question.waiter);
    EXPECT_EQ(read.message, question.message);
  }
  for (const BlameAnswer& answer : {Waits(5, 42), BlameAnswer{.says = "has spoken"},
                                    BlameAnswer{.says = "is full", .next = WorkerId(2)}}) {
    RZ_ASSIGN(const auto read, ParseAnswer(WriteAnswer(answer)));
    EXPECT_EQ(read.says, answer.says);
    EXPECT_EQ(read.next, answer.next);
    EXPECT_EQ(read.message, answer.message);
  }
}

TEST(BlameText, NonsenseIsRefused) {
  for (const char* text : {"", "x -", "-1 -", "1", "1 99.5", "1 3.", "1 3.x", "1 .5"}) {
    EXPECT_FALSE(ParseQuestion(text).ok()) << text;
  }
  for (const char* text : {"", "1 -", "x - words", "1 3 words", "1 - ", "-2 - words"}) {
    EXPECT_FALSE(ParseAnswer(text).ok()) << text;
  }
}

}  // namespace
}  // namespace ringzero
