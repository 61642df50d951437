// Transports over NCCL for tests: worker w has GPU w, in memory that the host can read.
//
//   if (const std::string missing = NcclMissing(4); !missing.empty()) GTEST_SKIP() << missing;
//   Cluster cluster = MakeCluster(NcclTransports(), options);
#ifndef RINGZERO_TESTS_P2P_NCCL_TRANSPORTS_H_
#define RINGZERO_TESTS_P2P_NCCL_TRANSPORTS_H_

#include <string>

#include "tests/p2p/transports.h"

namespace ringzero {

// Why `workers` cannot be made here; empty if they can.
std::string NcclMissing(int workers);
// All pairs have a lane; words over local transports.
MakeTransports NcclTransports();

}  // namespace ringzero

#endif  // RINGZERO_TESTS_P2P_NCCL_TRANSPORTS_H_
