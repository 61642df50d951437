// Rendezvous: a small store of keys and values by which the workers of a job find each other;
// JobSeat, a worker's place there; and what the workers tell each other there when the job begins
// and when it ends.
//
//   JobSeat seat{.self = WorkerId(1), .workers = 4, .secret = secret, .rendezvous = store};
//   RZ_RETURN_IF_ERROR(seat.rendezvous->Put("ucx/1", address));
//   RZ_ASSIGN_OR_RETURN(std::string theirs, seat.rendezvous->Get("ucx/0", seat.join_limit));
//
//   RZ_RETURN_IF_ERROR(Agree(seat, {{"versions", "ringzero = 0.5.0\ntorch = 2.11.0\n"},
//                                   {"configuration", "cyclic.slack = 1\n…"}}));
//   // InvalidArgument "worker 2 has cyclic.slack = 0, worker 0 has 1 (configuration)"
//   …
//   RZ_ASSIGN_OR_RETURN(std::vector<std::string> all, ShareResults(seat, mine, limit));
//
// Keys belong to one start of one job: an implementation keeps jobs and restarts apart. A key is
// put once, by one worker. Used at a run's start and end, by one thread of a worker at a time;
// calls may block up to their limit. All implementations pass one contract suite
// (tests/p2p/rendezvous_test.cc).
//
// If no process has started the workers and watches them, the rendezvous watches them until they
// are connected (docs/decisions/0040-signs-of-life-at-the-store.md).
#ifndef RINGZERO_P2P_JOB_RENDEZVOUS_H_
#define RINGZERO_P2P_JOB_RENDEZVOUS_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "base/unique_fd.h"

namespace ringzero {

inline constexpr size_t kMaxRendezvousValueBytes = 64 << 10;

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  // "file:///shared/job7", "tcp://host:29500", …: for messages.
  virtual std::string name() const = 0;
  // The random name of this start of the job (docs/decisions/0015); "" if the store itself belongs
  // to this start alone.
  virtual std::string start() const { return ""; }

  // Keys and values are any bytes, values at most kMaxRendezvousValueBytes (else InvalidArgument).
  // Unavailable when the store cannot be reached, AlreadyExists when the key has another value.
  virtual absl::Status Put(const std::string& key, const std::string& value) = 0;
  // Waits until the key is there. DeadlineExceeded, naming key and store, after `limit`;
  // Unavailable if the store is gone; InvalidArgument if no worker wrote what lies there; or the
  // error of status().
  virtual absl::StatusOr<std::string> Get(const std::string& key,
                                          std::chrono::milliseconds limit) = 0;

  // OK while no worker is lost. If one is lost: Unavailable, naming the worker that gives no sign
  // of life, or the error with which a worker has left, its number in front. OK again after Leave.
  // Thread-safe; a wait for other workers that is not a Get looks here.
  virtual absl::Status status() { return absl::OkStatus(); }
  // From now on this worker gives no signs of life, and is not missed. `why` is OK: the worker is
  // connected, and its transport watches from now on. Otherwise it ends with `why`, and so do all
  // workers that are not connected. Only the first call counts.
  virtual void Leave(const absl::Status& why) { why.IgnoreError(); }

 protected:
  // For Put.
  absl::Status CheckSize(const std::string& key, const std::string& value) const;
  // For Get: calls `look` again and again, until it finds the value, or Get's errors.
  using Look = std::function<absl::StatusOr<std::optional<std::string>>()>;
  absl::StatusOr<std::string> WaitFor(const std::string& key, std::chrono::milliseconds limit,
                                      const Look& look);
};

// For workers that are threads of one process, and for tests. Thread-safe.
std::shared_ptr<Rendezvous> MakeLocalRendezvous();

// For the children of one process. `log` is an empty memory file that they have inherited, and that
// outlives the rendezvous. Only these children can write to it, so its contents are not checked as
// a stranger's would be.
std::shared_ptr<Rendezvous> MakeLaunchRendezvous(const UniqueFd& log);

inline constexpr size_t kSecretBytes = 32;  // of a secret that is made anew

// What a worker knows before it can talk to the others. A value.
struct JobSeat {
  WorkerId self{0};
  int workers = 1;
  // Bytes that only the workers of this start of the job have. A worker that says hello proves that
  // it knows them, by a MAC with nonces of both sides. No message holds them. JoinJob makes them of
  // the job's secret and the start's name, so that each start has new ones.
  std::string secret;
  // Shared: transports keep it while they connect.
  std::shared_ptr<Rendezvous> rendezvous;
  // The host that serves the job's TCPStore: the route to it is the route to the other workers.
  // Empty: there is no TCPStore.
  std::string store_host;
  // The host of each worker (hosts.h), by worker. Empty: all are where this process is.
  std::vector<std::string> hosts;
  // How long the others may take until they are there, too.
  std::chrono::milliseconds join_limit = std::chrono::minutes(2);
};

// Each worker tells `mine` under "<key>/<worker>", and hears the values of all, by worker. All
// workers of the job must call it, once for a key. Waits at most seat.join_limit for all together:
// DeadlineExceeded, "worker 2 has not told its host: …" with `missing` for the words behind the
// number, names the first worker that is missing. Otherwise the errors of Rendezvous: an error that
// names a lost worker stays as it is.
absl::StatusOr<std::vector<std::string>> TellAll(const JobSeat& seat, absl::string_view key,
                                                 const std::string& mine,
                                                 absl::string_view missing);

// A text that all workers must have alike: lines "name = value", or any other lines.
struct AgreementSection {
  std::string name;
  std::string text;
};

// Called before the first byte of training. Waits for all workers, for all together up to the
// seat's join_limit. All workers end with the same error. InvalidArgument: a difference, in words
// if it is within the first 16 KiB of a section. If a worker Disagrees: its code and words, with
// its number in front. Otherwise the errors of Rendezvous. After an error this worker has left the
// rendezvous, with the error as its last words.
absl::Status Agree(const JobSeat& seat, const std::vector<AgreementSection>& sections);

// Called instead of Agree by a worker that cannot come as far as Agree. The worker ends with `why`,
// and so do the others, at once.
void Disagree(const JobSeat& seat, const absl::Status& why);

// Called once, at the end. Worker 0 gets the results of all workers, by worker; another worker gets
// its own alone. This worker's error comes back as it is. Worker 0 also: the first error among the
// others, with that worker's number in front; Unavailable if a worker has left nothing within
// `limit` (for all together). An error that only tells of a missing worker (DeadlineExceeded,
// Unavailable) is replaced by the missing worker's own error, if it left one.
absl::StatusOr<std::vector<std::string>> ShareResults(const JobSeat& seat,
                                                      const absl::StatusOr<std::string>& mine,
                                                      std::chrono::milliseconds limit);

}  // namespace ringzero

#endif  // RINGZERO_P2P_JOB_RENDEZVOUS_H_
