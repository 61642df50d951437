// Signals to oneself, a faulty transport, and laps that take ten times as long.
#include "integrations/cli/injection.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <thread>
#include <utility>

#include "p2p/faulty_transport.h"

namespace ringzero {
namespace {

using Action = InjectConfig::Action;
using Point = InjectConfig::Point;

constexpr int kSlowness = 10;

void Say(const char* what) {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  std::fprintf(stderr, "ringzero: injected: %s at %lld.%09ld\n", what,
               static_cast<long long>(now.tv_sec), now.tv_nsec);
}

void Act(Action action) {
  Say(action == Action::kKill ? "kill" : "stop");
  kill(getpid(), action == Action::kKill ? SIGKILL : SIGSTOP);
}

double ThreadSeconds() {
  timespec used = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace

Injection::Injection(const InjectConfig& inject, WorkerId self) : inject_(inject) {
  if (inject.worker != self.value) inject_.action = Action::kNone;
}

void Injection::Reach(Point point) const {
  const bool ends = inject_.action == Action::kKill || inject_.action == Action::kStop;
  if (ends && inject_.at == point) Act(inject_.action);
}

std::unique_ptr<Transport> Injection::Wrap(std::unique_ptr<Transport> transport) const {
  const bool at_message = inject_.action != Action::kNone && inject_.at == Point::kMessage;
  if (!at_message && inject_.delay.count() == 0) return transport;
  FaultOptions faults{.seed = inject_.seed, .min_delay = inject_.delay, .max_delay = inject_.delay};
  if (at_message && inject_.action == Action::kFlip) {
    faults.flip_message = inject_.number;
  } else if (at_message) {
    faults.act_at_message = inject_.number;
    faults.act = [action = inject_.action] { Act(action); };
  }
  return MakeFaulty(std::move(transport), faults);
}

absl::Status Injection::RunLap(const std::function<absl::Status()>& lap) {
  const bool mine = inject_.action != Action::kNone && inject_.at == Point::kLap;
  const bool reached = mine && ++laps_ >= inject_.number;
  if (!reached) return lap();
  if (laps_ == inject_.number) Reach(Point::kLap);
  if (inject_.action == Action::kHang) {
    Say("hang");
    while (true) pause();
  }
  const double before = ThreadSeconds();
  const absl::Status status = lap();
  if (inject_.action == Action::kSlow) {
    const double computed = ThreadSeconds() - before;
    std::this_thread::sleep_for(std::chrono::duration<double>((kSlowness - 1) * computed));
  }
  return status;
}

}  // namespace ringzero
