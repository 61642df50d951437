// JobSeat: what a worker knows before it can talk to the others.
//
//   JobSeat seat{.self = WorkerId(1), .workers = 4, .secret = secret, .rendezvous = store};
//   RZ_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, CreateUcxTransport(seat, options));
//
// A plain value.
#ifndef RINGZERO_P2P_RENDEZVOUS_JOB_SEAT_H_
#define RINGZERO_P2P_RENDEZVOUS_JOB_SEAT_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "base/ids.h"
#include "p2p/rendezvous/rendezvous.h"

namespace ringzero {

inline constexpr size_t kSecretBytes = 32;  // of a secret that is made anew

struct JobSeat {
  WorkerId self{0};
  int workers = 1;
  // Bytes that the workers of this start of the job have and nobody else: whoever says hello proves
  // that it knows them, by a MAC with nonces of both sides. In no message. JoinJob makes them of
  // the job's secret and the start's name, so that they are new in each start.
  std::string secret;
  // Shared: transports keep it while they connect.
  std::shared_ptr<Rendezvous> rendezvous;
  // Where the job's TCPStore is served: the way to it is the way to the others. Empty: there is
  // none.
  std::string store_host;
  // How long the others may take until they are there, too.
  std::chrono::milliseconds join_limit = std::chrono::minutes(2);
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_RENDEZVOUS_JOB_SEAT_H_
