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

struct Implementation {
  std::string name;
  MakeTransports transports;
  size_t hidden_bytes = 0;  // that it adds to each payload
  // Why the suites cannot run over it on this machine; empty if they can.
  std::string (*missing)() = [] { return std::string(); };
  std::string link = "";  // is part of LinkTo's answer
};

std::vector<Implementation> AllImplementations();

// A suite's fixture. Use with RINGZERO_FOR_ALL_TRANSPORTS(Suite).
class TransportSuite : public testing::TestWithParam<Implementation> {
 protected:
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
