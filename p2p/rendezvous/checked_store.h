// CheckedStore: a RendezvousStore that several threads use, and that tells what our workers have
// written from anything else that lies there.
//
//   CheckedStore store(std::move(folder_or_tcp));
//   RZ_RETURN_IF_ERROR(store.Write("join.1", "4f…"));   // "ringzero 1 <digest>\n4f…"
//
// The digest is of key and value, and anybody can make it: it is against accidents, not attackers.
// Thread-safe: one call at a time. Errors: those of RendezvousStore, and as said.
#ifndef RINGZERO_P2P_RENDEZVOUS_CHECKED_STORE_H_
#define RINGZERO_P2P_RENDEZVOUS_CHECKED_STORE_H_

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "p2p/rendezvous/rendezvous_store.h"

namespace ringzero {

class CheckedStore {
 public:
  explicit CheckedStore(std::unique_ptr<RendezvousStore> store) : store_(std::move(store)) {}

  std::string name() const { return store_->name(); }
  // Puts or replaces.
  absl::Status Write(const std::string& key, const std::string& value);
  // AlreadyExists when there is another value, InvalidArgument when none of our workers wrote it.
  absl::Status WriteOnce(const std::string& key, const std::string& value);
  // Nothing while nobody has put it. InvalidArgument for what none of our workers wrote.
  absl::StatusOr<std::optional<std::string>> Read(const std::string& key);
  // "" for nothing, and for what none of our workers wrote.
  absl::StatusOr<std::string> ReadOrEmpty(const std::string& key);
  void Clear(const std::string& prefix);
  void Gathered();

 private:
  std::mutex mutex_;
  const std::unique_ptr<RendezvousStore> store_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_RENDEZVOUS_CHECKED_STORE_H_
