// The transports that every contract test suite runs over: a new one joins with one line in the
// .cc.
#ifndef RINGZERO_TESTS_P2P_IMPLEMENTATIONS_H_
#define RINGZERO_TESTS_P2P_IMPLEMENTATIONS_H_

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/p2p/cluster.h"

namespace ringzero {

// Whether what is delivered is the very memory that was sent, or a copy of it at the receiver.
enum class Delivery { kSameMemory, kCopy };

struct Implementation {
  std::string name;
  MakeTransports transports;
  size_t hidden_bytes = 0;  // that it adds to each payload
  Delivery delivery = Delivery::kSameMemory;
  // Why the suites cannot run over it on this machine; empty if they can.
  std::string (*missing)() = [] { return std::string(); };
  std::string link = "";  // is part of LinkTo's answer
};

std::vector<Implementation> AllImplementations();

// A suite's fixture. Use with RINGZERO_FOR_ALL_TRANSPORTS(Suite).
class TransportSuite : public testing::TestWithParam<Implementation> {
 protected:
  bool same_memory() const { return GetParam().delivery == Delivery::kSameMemory; }
  // Does it hold: at once where memory is one; soon where a copy may still be leaving.
  bool HoldsOnceItHasLeft(const std::function<bool()>& condition) const {
    return same_memory() ? condition() : Eventually(condition);
  }
  void SetUp() override {
    if (const std::string missing = GetParam().missing(); !missing.empty()) GTEST_SKIP() << missing;
  }
  Cluster Make(int workers, TransportOptions options = SmallOptions()) {
    return Make(std::vector<TransportOptions>(workers, options));
  }
  Cluster Make(const std::vector<TransportOptions>& options) {
    return MakeCluster(GetParam().transports, options);
  }
};

}  // namespace ringzero

#define RINGZERO_FOR_ALL_TRANSPORTS(Suite)                                      \
  INSTANTIATE_TEST_SUITE_P(All, Suite, testing::ValuesIn(AllImplementations()), \
                           [](const auto& info) { return info.param.name; })

#endif  // RINGZERO_TESTS_P2P_IMPLEMENTATIONS_H_
