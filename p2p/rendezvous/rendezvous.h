// Rendezvous: a small store of keys and values by which the workers of a job find each other.
//
//   RZ_RETURN_IF_ERROR(rendezvous->Put("ucx/0", address));
//   RZ_ASSIGN_OR_RETURN(std::string theirs, rendezvous->Get("ucx/1", std::chrono::seconds(60)));
//
// Keys belong to one start of one job: an implementation keeps jobs and restarts apart. A key is
// put once, by one worker. Used at a run's start and end, by one thread of a worker at a time;
// calls may block up to their limit. All implementations pass one contract suite
// (tests/p2p/rendezvous_test.cc).
//
// Where no process has started the workers and watches them, the rendezvous does so until they are
// connected (docs/decisions/0040-signs-of-life-at-the-store.md).
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
  // The name of this start of the job, random (docs/decisions/0015); "" where the store itself is
  // of this start alone.
  virtual std::string start() const { return ""; }

  // Keys and values are any bytes, values at most kMaxRendezvousValueBytes (else InvalidArgument).
  // Unavailable when the store cannot be reached, AlreadyExists when the key has another value.
  virtual absl::Status Put(const std::string& key, const std::string& value) = 0;
  // Waits until somebody has put it. DeadlineExceeded, naming key and store, after `limit`;
  // Unavailable when the store is gone; InvalidArgument when what lies there is no worker's; the
  // error of status().
  virtual absl::StatusOr<std::string> Get(const std::string& key,
                                          std::chrono::milliseconds limit) = 0;

  // OK while nobody is lost. Then Unavailable with the name of the worker that gives no sign of
  // life, or the error with which a worker has left, its number in front. OK again after Leave.
  // Thread-safe; a wait for other workers that is not a Get looks here.
  virtual absl::Status status() { return absl::OkStatus(); }
  // This worker gives no more signs of life, and nobody misses them. OK: it is connected, and its
  // transport watches from now on. Else it ends, and so do all that are not connected, with `why`.
  // Only the first call counts.
  virtual void Leave(const absl::Status& why) { why.IgnoreError(); }
};

// For workers that are threads of one process, and for tests. Thread-safe.
std::shared_ptr<Rendezvous> MakeLocalRendezvous();

}  // namespace ringzero

#endif  // RINGZERO_P2P_RENDEZVOUS_RENDEZVOUS_H_
