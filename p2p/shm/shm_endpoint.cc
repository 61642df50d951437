// Socket pairs, a board and rings, made before the workers are forked.
#include "p2p/shm/shm_endpoint.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {

std::vector<WorkerId> ShmEndpoint::Members() const {
  std::vector<WorkerId> members;
  for (int w = 0; w < static_cast<int>(sockets.size()); ++w) {
    if (w == self.value || sockets[w]) members.emplace_back(w);
  }
  return members;
}

absl::StatusOr<std::vector<ShmEndpoint>> MakeShmEndpoints(int workers) {
  if (workers < 1) {
    return InvalidArgument(workers, " workers; at least 1 is needed");
  }
  RZ_ASSIGN_OR_RETURN(const std::shared_ptr<PulseBoard> board, PulseBoard::Create(workers));
  RZ_ASSIGN_OR_RETURN(const std::shared_ptr<ShmRings> rings, ShmRings::Create(workers));
  std::vector<ShmEndpoint> endpoints(workers);
  for (int a = 0; a < workers; ++a) {
    endpoints[a].self = WorkerId(a);
    endpoints[a].sockets.resize(workers);
    endpoints[a].board = board;
    endpoints[a].rings = rings;
  }
  for (int a = 0; a < workers; ++a) {
    for (int b = a + 1; b < workers; ++b) {
      int pair[2] = {-1, -1};
      if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return absl::ResourceExhaustedError(
            absl::StrCat("cannot connect workers ", a, " and ", b, ": ", std::strerror(errno)));
      }
      endpoints[a].sockets[b] = UniqueFd(pair[0]);
      endpoints[b].sockets[a] = UniqueFd(pair[1]);
    }
  }
  return endpoints;
}

}  // namespace ringzero
