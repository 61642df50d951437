// A Rendezvous in memory that forked processes share: tests need no files and no server.
//
//   std::shared_ptr<Rendezvous> rendezvous = MakeSharedRendezvous();   // before the fork
//
// Room for 256 keys of up to 63 bytes, values up to 8 KiB. Thread-safe, across processes.
#ifndef RINGZERO_TESTS_P2P_SHARED_RENDEZVOUS_H_
#define RINGZERO_TESTS_P2P_SHARED_RENDEZVOUS_H_

#include <memory>

#include "p2p/rendezvous/rendezvous.h"

namespace ringzero {

std::shared_ptr<Rendezvous> MakeSharedRendezvous();

}  // namespace ringzero

#endif  // RINGZERO_TESTS_P2P_SHARED_RENDEZVOUS_H_
