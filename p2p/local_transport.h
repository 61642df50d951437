// LocalTransport: workers are threads of one process.
//
//   RZ_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Transport>> transports,
//                       CreateLocalTransports({options, options}));    // two workers
//   transports[0]->SendWord(WorkerId(1), key);
//
// Each transport has a message thread of its own, which sleeps while nothing happens (or, with
// ProgressMode::kCaller, none). They may be destroyed in any order and from any thread but a
// message thread.
#ifndef RINGZERO_P2P_LOCAL_TRANSPORT_H_
#define RINGZERO_P2P_LOCAL_TRANSPORT_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "p2p/transport.h"

namespace ringzero {

// One transport per entry of `options`, in order of workers. InvalidArgument for bad options,
// ResourceExhausted when memory cannot be mapped.
absl::StatusOr<std::vector<std::unique_ptr<Transport>>> CreateLocalTransports(
    const std::vector<TransportOptions>& options);

}  // namespace ringzero

#endif  // RINGZERO_P2P_LOCAL_TRANSPORT_H_
