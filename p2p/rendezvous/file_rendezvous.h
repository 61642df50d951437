// Rendezvous in a folder that all workers see, also over NFS: file:///shared/job7.
//
//   RZ_ASSIGN_OR_RETURN(std::unique_ptr<RendezvousStore> store,
//                       OpenFileStore({.folder = "/shared/job7", .job = "4711"}));
//   RZ_ASSIGN_OR_RETURN(std::shared_ptr<Rendezvous> rendezvous,
//                       GatherAt(std::move(store), {.self = self, .workers = 4}));
//
// The folder is made if it is not there (its parent must be), and must be the user's alone: who
// else could read it would have the job's secret. A job's files lie in a subfolder of its id; the
// last worker that leaves removes them. Values appear whole or not at all, by link(2) and
// rename(2).
#ifndef RINGZERO_P2P_RENDEZVOUS_FILE_RENDEZVOUS_H_
#define RINGZERO_P2P_RENDEZVOUS_FILE_RENDEZVOUS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "p2p/rendezvous/rendezvous_store.h"

namespace ringzero {

struct FileStoreOptions {
  std::string folder;  // absolute
  std::string job;     // any text; tells jobs apart that share the folder
};

// PermissionDenied when the folder belongs to another user, or others may enter it; NotFound when
// it cannot be made; InvalidArgument when it is no folder or its path is not absolute.
absl::StatusOr<std::unique_ptr<RendezvousStore>> OpenFileStore(const FileStoreOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_P2P_RENDEZVOUS_FILE_RENDEZVOUS_H_
