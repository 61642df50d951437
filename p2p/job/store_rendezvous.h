// Where the workers of a job meet: RendezvousStore, a place with values under names that all
// workers reach (a folder or a TCPStore); and the Rendezvous that GatherAt makes of such a place.
//
//   RZ_ASSIGN_OR_RETURN(std::unique_ptr<RendezvousStore> folder,
//                       OpenFileStore("/shared/job7", "4711"));
//   RZ_ASSIGN_OR_RETURN(std::shared_ptr<Rendezvous> rendezvous,
//                       GatherAt(std::move(folder), {.self = WorkerId(1), .workers = 4}));
//
// How they gather: every worker writes a random number, made now. Worker 0 answers with the name of
// the start and all numbers. A worker that finds its own number in the answer takes the name, and
// says so. Worker 0 answers again as long as numbers change. So no worker takes an old answer, and
// no job id or restart count has to be told from outside; a restart count that is told is part of
// the name. All keys carry the name, so what an earlier start has left is not taken for ours. From
// its first moment until it is connected each worker gives signs of life at the store, and looks
// for the signs of the others (Presence).
#ifndef RINGZERO_P2P_JOB_STORE_RENDEZVOUS_H_
#define RINGZERO_P2P_JOB_STORE_RENDEZVOUS_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "p2p/deadline.h"
#include "p2p/job/rendezvous.h"

namespace ringzero {

inline constexpr size_t kMaxStoredBytes = kMaxRendezvousValueBytes + 256;

// Not thread-safe. Values are at most kMaxStoredBytes. Errors: Unavailable when the store cannot be
// reached, PermissionDenied when it is not ours alone; InvalidArgument for what no store would
// hold.
class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;

  virtual std::string name() const = 0;  // "file:///shared/job7", "tcp://host:29500"
  // Puts or replaces.
  virtual absl::Status Write(const std::string& key, const std::string& value) = 0;
  // Puts the value unless there is one already. Returns the value that is there afterwards.
  virtual absl::StatusOr<std::string> WriteOnce(const std::string& key,
                                                const std::string& value) = 0;
  // Nothing until the key is put.
  virtual absl::StatusOr<std::optional<std::string>> Read(const std::string& key) = 0;
  // Removes the values whose keys begin with `prefix` ("": all), as well as it can.
  virtual void Clear(const std::string& prefix) = 0;
  // Called when all workers have come: from now on no arrival keeps the store from answering.
  virtual void Gathered() {}
};

// Opens file:///shared/job7: a folder that all workers see, also over NFS. It is made if it is not
// there (its parent must be there). It must be the user's alone: another reader would have the
// job's secret. A job's files lie in a subfolder of its id; the last worker that leaves removes
// them. Values appear whole or not at all, by link(2) and rename(2). `job`: any text; tells jobs
// apart that share the folder.
// PermissionDenied when the folder belongs to another user, others may enter it, or it may not be
// made; NotFound without its parent; InvalidArgument when it is no folder or its path not absolute.
absl::StatusOr<std::unique_ptr<RendezvousStore>> OpenFileStore(const std::string& folder,
                                                               const std::string& job);

// A RendezvousStore that several threads use, one call at a time. It tells what our workers have
// written from anything else that lies there: a digest of key and value stands before the value.
// Anybody can make such a digest: it is against accidents, not attackers. As RendezvousStore, but:
class CheckedStore {
 public:
  explicit CheckedStore(std::unique_ptr<RendezvousStore> store)
      : name_(store->name()), store_(std::move(store)) {}

  std::string name() const { return name_; }
  absl::Status Write(const std::string& key, const std::string& value);
  // AlreadyExists when there is another value, InvalidArgument when none of our workers wrote it.
  absl::Status WriteOnce(const std::string& key, const std::string& value);
  // InvalidArgument for what none of our workers wrote.
  absl::StatusOr<std::optional<std::string>> Read(const std::string& key);
  // "" for nothing, and for what none of our workers wrote.
  absl::StatusOr<std::string> ReadOrEmpty(const std::string& key);
  void Clear(const std::string& prefix) {
    const MutexLock lock(mutex_);
    store_->Clear(prefix);
  }
  void Gathered() {
    const MutexLock lock(mutex_);
    store_->Gathered();
  }

 private:
  const std::string name_;
  Mutex mutex_;
  const std::unique_ptr<RendezvousStore> store_ ABSL_PT_GUARDED_BY(mutex_);
};

struct Gathering {
  WorkerId self{0};
  int workers = 1;
  int restart = 0;
  // How long the others may take to come.
  std::chrono::milliseconds limit = std::chrono::minutes(2);
  // How long a worker that leaves waits for the workers that have not left. 0 if the store stays
  // when this worker is gone.
  std::chrono::milliseconds leave_limit{0};
  // A worker that gives no sign of life for so long is lost.
  std::chrono::milliseconds peer_timeout = std::chrono::seconds(5);
};

// Waits for all workers. DeadlineExceeded names the missing workers, Unavailable a worker that came
// and fell silent. AlreadyExists: another process is this worker, too (two jobs in one folder). If
// another worker could not gather: its error, its number in front. The end of the rendezvous object
// says that this worker has left; the last worker clears the store.
absl::StatusOr<std::shared_ptr<Rendezvous>> GatherAt(std::unique_ptr<RendezvousStore> store,
                                                     const Gathering& gathering);

inline constexpr char kAliveKeys[] = "alive.";  // what the keys of a Presence begin with

// A worker's signs of life at the store, and what those of the others say: from its first moment
// there until it leaves. A thread of its own writes "alive.<worker>" again and again, and reads
// those of all others, at least ten times in peer_timeout. Why so:
// docs/decisions/0040-signs-of-life-at-the-store.md.
class Presence {
 public:
  // `number`: random: tells this process from others that are or were this worker.
  Presence(CheckedStore& store, const Gathering& gathering, std::string number);
  ~Presence() { Stop(); }  // gives no more signs, and no last sign

  // All have come, with `numbers` (by worker). A process with another number is of another start.
  // Before, only a worker that gave a sign since this worker came is known to be of this start.
  void Know(std::vector<std::string> numbers);
  // The error with which the process of that number left, if it did. It may have left before our
  // first look, which takes what it finds for an earlier start's.
  absl::Status LastWords(WorkerId worker, const std::string& number) const;
  // OK while no worker is lost, and after Leave. Otherwise Unavailable: a worker fell silent, or
  // the store is lost; or the error with which a worker left. Thread-safe.
  absl::Status status() const;
  // Gives the last sign. OK: this worker is missed no more. Otherwise the others end with `why`.
  void Leave(const absl::Status& why);
  // After Leave: waits until all that gave signs have left or fallen silent.
  void AwaitOthers(std::chrono::milliseconds limit);
  // Whether the worker gave signs, and fell silent.
  bool IsSilent(WorkerId worker) const;

 private:
  using Clock = AwakeClock::Clock;
  struct Peer {
    std::string sign;  // the last one
    enum class State { kUnknown, kAlive, kLeft, kSilent } state = State::kUnknown;
    Clock::time_point heard;  // in awake time
  };

  void Run();
  void Stop();
  absl::Status Look();
  absl::Status Take(int worker, const std::string& sign) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AnyAlive() const;

  CheckedStore& store_;
  const Gathering gathering_;
  const std::string number_;

  std::binary_semaphore stop_{0};  // released: the thread is to end
  mutable Mutex mutex_;
  bool looked_ ABSL_GUARDED_BY(mutex_) = false;  // once at least: a sign that changed since is new
  bool left_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
  AwakeClock clock_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point now_ ABSL_GUARDED_BY(mutex_);             // of the last look, in awake time
  std::vector<std::string> numbers_ ABSL_GUARDED_BY(mutex_);  // empty: not known
  std::vector<Peer> peers_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_JOB_STORE_RENDEZVOUS_H_
