// CreateUcxTransport in a build without UCX: an error that says so.
#include "p2p/ucx_transport.h"

namespace ringzero {

absl::StatusOr<std::unique_ptr<Transport>> CreateUcxTransport(const JobSeat&,
                                                              const TransportOptions&,
                                                              const UcxOptions&) {
  return absl::UnimplementedError(
      "transport 'ucx': this build has no UCX (configure with RINGZERO_WITH_UCX=ON to see what is "
      "missing)");
}

std::string UcxVersion() { return ""; }

}  // namespace ringzero
