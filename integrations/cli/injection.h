// Injection: the one fault that cyclic.inject asks for, at its point of the run, and the latency of
// every message; for tests and benchmarks.
//
//   Injection injection(config.cyclic.inject, self);
//   injection.Reach(InjectConfig::Point::kConnect);          // a process may end or stop here
//   transport = injection.Wrap(std::move(transport));        // messages count from here on
//   RZ_RETURN_IF_ERROR(injection.RunLap([&] { … }));         // slow from a lap on, or stuck in it
//
// Without a fault for this worker everything passes through. Before a process ends or stops it
// says so on stderr, with the time (CLOCK_MONOTONIC), so that a test can count seconds from there.
#ifndef RINGZERO_INTEGRATIONS_CLI_INJECTION_H_
#define RINGZERO_INTEGRATIONS_CLI_INJECTION_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "base/ids.h"
#include "p2p/transport.h"
#include "zero/config/config.h"

namespace ringzero {

// One worker's; used by one thread.
class Injection {
 public:
  Injection(const InjectConfig& inject, WorkerId self);

  void Reach(InjectConfig::Point point) const;
  std::unique_ptr<Transport> Wrap(std::unique_ptr<Transport> transport) const;
  absl::Status RunLap(const std::function<absl::Status()>& lap);

 private:
  InjectConfig inject_;  // action kNone on other workers
  uint64_t laps_ = 0;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_INJECTION_H_
