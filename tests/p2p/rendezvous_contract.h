// What every Rendezvous promises, as tests over an implementation.
//
//   INSTANTIATE_TEST_SUITE_P(Mine, RendezvousContract,
//                            testing::Values(Implementation{"mine", run}));
//
// rendezvous_contract.cc is compiled into each test program that brings implementations.
#ifndef RINGZERO_TESTS_P2P_RENDEZVOUS_CONTRACT_H_
#define RINGZERO_TESTS_P2P_RENDEZVOUS_CONTRACT_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/job/rendezvous.h"

namespace ringzero {

using RendezvousBody = std::function<absl::StatusOr<std::string>(WorkerId self, Rendezvous&)>;

struct RendezvousImplementation {
  std::string name;
  // Runs the body in so many workers at the same time; what they returned, or the first error.
  std::function<absl::StatusOr<std::vector<std::string>>(int workers, const RendezvousBody& body)>
      run;
};

inline void PrintTo(const RendezvousImplementation& implementation, std::ostream* out) {
  *out << implementation.name;
}

class RendezvousContract : public testing::TestWithParam<RendezvousImplementation> {};

// Runs `body` as each of so many workers at the same time, and waits for all of them.
void InThreads(int workers, const std::function<void(WorkerId self)>& body);

// Workers as threads; `join` makes each one's rendezvous. `leaves`: at the end of its body each says
// how it went, as Connect does: others may still read what is there.
absl::StatusOr<std::vector<std::string>> RunInThreads(
    int workers,
    const std::function<absl::StatusOr<std::shared_ptr<Rendezvous>>(WorkerId self)>& join,
    const RendezvousBody& body, bool leaves = true);

}  // namespace ringzero

#endif  // RINGZERO_TESTS_P2P_RENDEZVOUS_CONTRACT_H_
