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
  // kNo: a payload arrives in memory of the receiver's own, and its sender's is free when it has
  // left.
  enum class SameMemory { kYes, kNo };
  SameMemory same_memory = SameMemory::kYes;
  std::string link = "";  // is part of LinkTo's answer
};

std::vector<Implementation> AllImplementations();

// A suite's fixture. Use with RINGZERO_FOR_ALL_TRANSPORTS(Suite).
class TransportSuite : public testing::TestWithParam<Implementation> {
 protected:
  bool same_memory() const { return GetParam().same_memory == Implementation::SameMemory::kYes; }
  // Does it hold: at once where memory is one; soon where a copy may still be leaving.
  bool HoldsOnceItHasLeft(const std::function<bool()>& condition) const {
    return same_memory() ? condition() : Eventually(condition);
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
