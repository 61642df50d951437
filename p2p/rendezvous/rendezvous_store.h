// RendezvousStore: a place that all workers of a job reach, with values under names; what a folder
// and a TCPStore have in common, so that everything else of a rendezvous is written once
// (p2p/rendezvous/store_rendezvous.h).
//
//   // text, or what another worker wrote before:
//   RZ_ASSIGN_OR_RETURN(std::string first, store.WriteOnce("r0-4f…/plan", text));
//
// Not thread-safe. Values are at most kMaxStoredBytes. Errors: Unavailable when the store cannot be
// reached, PermissionDenied when it is not ours alone; InvalidArgument for what no store would
// hold.
#ifndef RINGZERO_P2P_RENDEZVOUS_RENDEZVOUS_STORE_H_
#define RINGZERO_P2P_RENDEZVOUS_RENDEZVOUS_STORE_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "p2p/rendezvous/rendezvous.h"

namespace ringzero {

inline constexpr size_t kMaxStoredBytes = kMaxRendezvousValueBytes + 256;

class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;

  virtual std::string name() const = 0;  // "file:///shared/job7", "tcp://host:29500"
  // Puts or replaces.
  virtual absl::Status Write(const std::string& key, const std::string& value) = 0;
  // Puts it unless there is one already; what is there afterwards.
  virtual absl::StatusOr<std::string> WriteOnce(const std::string& key,
                                                const std::string& value) = 0;
  // Nothing while nobody has put it.
  virtual absl::StatusOr<std::optional<std::string>> Read(const std::string& key) = 0;
  // Removes the values whose keys begin so, as well as it can; "" for all.
  virtual void Clear(const std::string& prefix) = 0;
  // All workers have come: nobody's arrival keeps the store from answering any more.
  virtual void Gathered() {}
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_RENDEZVOUS_RENDEZVOUS_STORE_H_
