// RendezvousStore: a place that all workers of a job reach, with values under names; what a folder
// and a TCPStore have in common, so that everything else of a rendezvous is written once
// (p2p/rendezvous/store_rendezvous.h).
//
//   RZ_ASSIGN_OR_RETURN(std::unique_ptr<RendezvousStore> folder,
//                       OpenFileStore("/shared/job7", "4711"));
//   CheckedStore store(std::move(folder));
//   RZ_RETURN_IF_ERROR(store.Write("join.1", "4f…"));   // "ringzero 1 <digest>\n4f…"
#ifndef RINGZERO_P2P_RENDEZVOUS_RENDEZVOUS_STORE_H_
#define RINGZERO_P2P_RENDEZVOUS_RENDEZVOUS_STORE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "p2p/rendezvous/rendezvous.h"

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
// Anybody can make such a digest: it is against accidents, not attackers. Errors: those of
// RendezvousStore, and those named at the functions.
class CheckedStore {
 public:
  explicit CheckedStore(std::unique_ptr<RendezvousStore> store)
      : name_(store->name()), store_(std::move(store)) {}

  std::string name() const { return name_; }
  // Puts or replaces.
  absl::Status Write(const std::string& key, const std::string& value);
  // AlreadyExists when there is another value, InvalidArgument when none of our workers wrote it.
  absl::Status WriteOnce(const std::string& key, const std::string& value);
  // Nothing until the key is put. InvalidArgument for what none of our workers wrote.
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

}  // namespace ringzero

#endif  // RINGZERO_P2P_RENDEZVOUS_RENDEZVOUS_STORE_H_
