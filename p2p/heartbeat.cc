// Beats, and measures the others' silence in time during which this worker was awake itself.
#include "p2p/heartbeat.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ringzero {

absl::StatusOr<std::shared_ptr<PulseBoard>> PulseBoard::Create(int workers, const UniqueFd& file) {
  if (workers < 1) return InvalidArgument(workers, " workers; at least 1 is needed");
  RZ_ASSIGN_OR_RETURN(Mapping memory, Mapping::Shared(FileBytes(workers), file));
  return std::shared_ptr<PulseBoard>(new PulseBoard(workers, std::move(memory)));
}

PulseBoard::Pulse& PulseBoard::At(WorkerId worker) const {
  RZ_CHECK(worker.value >= 0 && worker.value < workers_, absl::StrCat("worker ", worker.value));
  return reinterpret_cast<Pulse*>(memory_.data())[worker.value];
}

void PulseBoard::Beat(WorkerId worker, Clock::time_point now) {
  At(worker).last.store(now.time_since_epoch().count(), std::memory_order_relaxed);
}

std::optional<PulseBoard::Clock::time_point> PulseBoard::LastBeat(WorkerId worker) const {
  const Clock::rep last = At(worker).last.load(std::memory_order_relaxed);
  if (last == 0) return std::nullopt;
  return Clock::time_point(Clock::duration(last));
}

Heartbeat::Heartbeat(WorkerId self, std::shared_ptr<PulseBoard> board,
                     std::chrono::milliseconds timeout)
    : self_(self),
      board_(std::move(board)),
      timeout_(timeout),
      interval_(timeout / 5),
      clock_(Clock::now(), interval_),
      peers_(board_->workers()) {
  const Clock::time_point now = Clock::now();
  board_->Beat(self_, now);
  next_ = now + interval_;
}

std::vector<Silence> Heartbeat::Tick(Clock::time_point now) {
  board_->Beat(self_, now);
  if (now < next_) return {};  // woken by a message: a store, and nobody's line is read
  const Clock::time_point awake = clock_.Tick(now);
  Clock::duration until_next = interval_;
  std::vector<Silence> found;
  for (int w = 0; w < board_->workers(); ++w) {
    Peer& peer = peers_[w];
    if (w == self_.value || peer.silent) continue;
    const std::optional<Clock::time_point> beat = board_->LastBeat(WorkerId(w));
    if (!beat.has_value()) continue;
    if (beat != peer.seen) {
      peer.seen = beat;
      peer.awake = clock_.At(*beat);
    }
    const Clock::duration silence = awake - peer.awake;
    peer.silent = silence >= timeout_;
    if (peer.silent) {
      found.push_back(
          {WorkerId(w), std::chrono::duration_cast<std::chrono::milliseconds>(silence)});
    } else {
      until_next = std::min(until_next, timeout_ - silence);
    }
  }
  next_ = now + until_next;
  return found;
}

}  // namespace ringzero
