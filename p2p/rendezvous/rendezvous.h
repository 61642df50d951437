// Rendezvous: a small store of keys and values by which the workers of a job find each other.
//
//   RZ_RETURN_IF_ERROR(rendezvous->Put("ucx/0", address));
//   RZ_ASSIGN_OR_RETURN(std::string theirs, rendezvous->Get("ucx/1", std::chrono::seconds(60)));
//
// Keys belong to one start of one job: an implementation keeps jobs and restarts apart. A key is
// put once, by one worker. Used at a run's start and end, by one thread of a worker at a time;
// calls may block up to their limit. All implementations pass one contract suite
// (tests/p2p/rendezvous_test.cc).
#ifndef RINGZERO_P2P_RENDEZVOUS_RENDEZVOUS_H_
#define RINGZERO_P2P_RENDEZVOUS_RENDEZVOUS_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ringzero {

inline constexpr size_t kMaxRendezvousValueBytes = 64 << 10;

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  // "file:///shared/job7", "tcp://host:29500", …: for messages.
  virtual std::string name() const = 0;

  // Keys and values are any bytes, values at most kMaxRendezvousValueBytes (else InvalidArgument).
  // Unavailable when the store cannot be reached, AlreadyExists when the key has another value.
  virtual absl::Status Put(const std::string& key, const std::string& value) = 0;
  // Waits until somebody has put it. DeadlineExceeded, naming key and store, after `limit`;
  // Unavailable when the store is gone; InvalidArgument when what lies there is no worker's.
  virtual absl::StatusOr<std::string> Get(const std::string& key,
                                          std::chrono::milliseconds limit) = 0;
};

// For workers that are threads of one process, and for tests. Thread-safe.
std::shared_ptr<Rendezvous> MakeLocalRendezvous();

}  // namespace ringzero

#endif  // RINGZERO_P2P_RENDEZVOUS_RENDEZVOUS_H_
