// What the engine does now, with its last events, as a record for a file.
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "zero/engine_impl.h"

namespace ringzero {
namespace {

// A lock that is held for so long belongs to a thread that hangs: then the events alone must do.
constexpr int kLockTries = 200;
constexpr std::chrono::milliseconds kLockPause(5);

}  // namespace

uint32_t Engine::Impl::NextMessage(std::vector<uint32_t>& counts, const Op& op) {
  return counts[static_cast<size_t>(op.peer.value * kChannelCount) +
                static_cast<size_t>(op.channel)]++;
}

void Engine::Impl::DescribeWaits(FlightRecord& record) const {
  record.has_waits = true;
  record.error = error_;
  record.appended = appended_;
  record.now = WhatItDoes();
  if (record.now.next.has_value() && absl::StartsWith(record.now.says, "waits ")) {
    const auto waited = std::chrono::steady_clock::now() - computing_since_;
    record.now.says = absl::StrCat("has waited ", SecondsText(waited), " ",
                                   record.now.says.substr(sizeof("waits ") - 1));
  }
  const int64_t first = state_.FirstUndone();
  for (int64_t op = first; op != kNoOp && op < state_.end(); ++op) {
    const OpKind kind = state_.at(op).linked.op.kind;
    if (state_.IsDone(op) || (kind != OpKind::kSend && kind != OpKind::kUpdate)) continue;
    record.open.push_back({state_.at(op).linked.op, WhyNotDone(op)});
  }
  if (options_.transport != nullptr) record.undelivered = options_.transport->undelivered();
}

FlightRecord Engine::Impl::Flight(const std::string& why) const {
  FlightRecord record{.worker = options_.self, .workers = plan_.workers, .why = why};
  record.clock = SteadyClockName();
  Lock lock(mutex_, std::try_to_lock);
  for (int i = 0; i < kLockTries && !lock.owns_lock(); ++i) {
    std::this_thread::sleep_for(kLockPause);
    lock.try_lock();
  }
  if (lock.owns_lock()) {
    DescribeWaits(record);
    lock.unlock();
  }
  record.events = recorder_.Last();
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  record.time_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  return record;
}

}  // namespace ringzero
