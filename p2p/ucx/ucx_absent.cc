// What needs UCX, in a build without it: errors that say so.
#include "p2p/ucx/ucx_transport.h"

namespace ringzero {
namespace {

absl::Status NotBuilt() {
  return absl::UnimplementedError(
      "transport 'ucx': this build has no UCX (configure with RINGZERO_WITH_UCX=ON to see what is "
      "missing)");
}

}  // namespace

// NOLINTBEGIN(performance-unnecessary-value-param): as the headers have them
absl::StatusOr<std::unique_ptr<Transport>> CreateUcxTransport(const JobSeat&,
                                                              const TransportOptions&, UcxOptions) {
  return NotBuilt();
}

absl::StatusOr<std::unique_ptr<Transport>> CreateMixedTransport(const JobSeat&, ShmEndpoint,
                                                                const TransportOptions&,
                                                                const UcxOptions&) {
  return NotBuilt();
}

// NOLINTEND(performance-unnecessary-value-param)

absl::Status UcxAvailable() { return NotBuilt(); }
std::string UcxVersion() { return ""; }

}  // namespace ringzero
