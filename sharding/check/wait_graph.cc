// Finds cycles of waits and reads that an update might overtake.
#include "sharding/check/wait_graph.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sharding/rules/schedule.h"

namespace ringzero {

WaitGraph::WaitGraph(const LinkedRing& ring) : ring_(ring) {
  for (int i = 0; i < ring.count(); ++i) {
    if (ring.op(i).kind == OpKind::kUpdate) updates_.push_back(i);
  }
}

WaitGraph::Waits WaitGraph::FindWaits() const {
  Waits waits;
  waits.first.push_back(0);
  for (int node = 0; node < ring_.count(); ++node) {
    const RingOp& op = ring_.ops[node];
    for (const int after : op.after) waits.all.push_back({after, Why::kAfter});
    if (op.kind == OpKind::kReceive) waits.all.push_back({ring_.partner[node], Why::kMessage});
    // Of a ring in pieces this is a wait for a begin: good for circles, not for overwrites.
    if (op.kind != OpKind::kSend && op.behind >= 0) waits.all.push_back({op.behind, Why::kOrder});
    waits.first.push_back(static_cast<int>(waits.all.size()));
  }
  return waits;
}

std::vector<int> WaitGraph::Order(const Waits& waits) {
  const int count = static_cast<int>(waits.first.size()) - 1;
  const Reverse followers(count, [&](int node) { return waits.of(node); });
  std::vector<int> missing(count), order;
  for (int node = 0; node < count; ++node) {
    missing[node] = static_cast<int>(waits.of(node).size());
    if (missing[node] == 0) order.push_back(node);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (const int follower : followers[order[i]]) {
      if (--missing[follower] == 0) order.push_back(follower);
    }
  }
  return order;
}

absl::Status WaitGraph::CheckProgress() const {
  const Waits waits = FindWaits();
  const std::vector<int> order = Order(waits);
  if (static_cast<int>(order.size()) == ring_.count()) return absl::OkStatus();
  std::vector<bool> done(ring_.count(), false);
  for (const int node : order) done[node] = true;
  return FailedPrecondition("with a window of ", ring_.window,
                            " these wait for each other: ", DescribeCycle(waits, done));
}

std::string WaitGraph::DescribeCycle(const Waits& waits, const std::vector<bool>& done) const {
  const auto blocker_of = [&](int node) {
    return *std::ranges::find_if(waits.of(node), [&](const Wait& each) { return !done[each.on]; });
  };
  int node = static_cast<int>(std::ranges::find(done, false) - done.begin());
  std::vector<bool> seen(done.size());
  for (; !seen[node]; node = blocker_of(node).on) seen[node] = true;
  constexpr int kShown = 12;
  const int first = node;
  int length = 0;
  std::string text;
  do {
    const auto [on, why] = blocker_of(node);
    // Whether `on` delivers what is sent from a slot of this worker.
    const bool slot = why == Why::kAfter && ring_.op(on).kind == OpKind::kReceive &&
                      ring_.worker_of(on) != ring_.worker_of(node);
    const char* words = slot                   ? " waits for a slot until "
                        : why == Why::kAfter   ? " waits for "
                        : why == Why::kMessage ? " waits for the message of "
                                               : " waits behind ";
    if (length++ < kShown) absl::StrAppend(&text, ring_.Describe(node), words);
    node = on;
  } while (node != first);
  if (length > kShown) absl::StrAppend(&text, "... (", length - kShown, " more) ");
  return absl::StrCat(text, ring_.Describe(first));
}

absl::Status WaitGraph::CheckOverwrites(const Plan& plan, int small_ring) const {
  std::vector<Overwrite> overwrites;
  for (int w = 0; w < plan.workers; ++w) FindOverwrites(plan, w, small_ring, overwrites);
  if (overwrites.empty()) return absl::OkStatus();
  const Waits waits = FindWaits();
  const std::vector<int> order = Order(waits);
  // reached[i][k]: the last computing operation of worker first + k that is surely done before i.
  // Several workers at once: what takes time is going through the graph.
  constexpr int kTogether = 16;
  std::vector<std::array<int, kTogether>> reached(ring_.count());
  for (auto next = overwrites.begin(); next != overwrites.end();) {
    const int first = ring_.worker_of(next->reader);
    for (auto& none : reached) none.fill(-1);
    for (const int node : order) {
      for (const Wait& wait : waits.of(node)) {
        for (int i = 0; i < kTogether; ++i) {
          reached[node][i] = std::max(reached[node][i], reached[wait.on][i]);
        }
      }
      const int own = ring_.worker_of(node) - first;
      const bool among = own >= 0 && own < kTogether;
      if (among && IsCompute(ring_.op(node).kind)) reached[node][own] = node;
    }
    for (; next != overwrites.end(); ++next) {
      const int own = ring_.worker_of(next->reader) - first;
      if (own >= kTogether) break;
      if (next->reader <= reached[next->update][own]) continue;
      const Op& op = ring_.op(next->update);
      return FailedPrecondition(ring_.Describe(next->update), " overwrites version ",
                                LabelText(next->version), " of stage ", op.stage.value, ", which ",
                                ring_.Describe(next->reader), " may still be reading");
    }
  }
  return absl::OkStatus();
}

// Computing is ordered in each worker, so that the last of a worker's reads stands for all of them.
void WaitGraph::FindOverwrites(const Plan& plan, int worker, int small_ring,
                               std::vector<Overwrite>& overwrites) const {
  absl::flat_hash_map<std::pair<int, int>, int> readers;  // by stage and version
  absl::flat_hash_map<std::pair<int, int>, int> given;  // by stage and iteration: its last backward
  for (int i = ring_.begin[worker]; i < ring_.begin[worker + 1]; ++i) {
    const Op& op = ring_.op(i);
    if (!IsCompute(op.kind)) continue;
    if (op.kind == OpKind::kBackward) given[{op.stage.value, op.iteration.value}] = i;
    for (const RingRead& read : ring_.ops[i].reads) {
      readers[{read.stage.value, read.version.value}] = i;
    }
  }
  for (const int update : updates_) {
    // Masters that every worker has are read by nobody else.
    if (plan.spreads_sums() && ring_.worker_of(update) != worker) continue;
    const Op& op = ring_.op(update);
    const auto last = given.find({op.stage.value, op.iteration.value});
    for (const Version v : OverwrittenVersions(plan, op.iteration)) {
      const auto reader = readers.find({op.stage.value, v.value});
      if (reader == readers.end()) continue;
      // The update's sum has the gradient of this worker's last backward, which comes behind.
      const bool given_later = last != given.end() && reader->second <= last->second;
      if (given_later && ring_.count() > small_ring) continue;
      overwrites.push_back({update, reader->second, v});
    }
  }
}

absl::StatusOr<int> LargestUsefulWindow(const Plan& plan) {
  RZ_ASSIGN_OR_RETURN(const LinkedRing ring, LinkedRing::Write(plan));
  size_t most = 1;
  for (const MessageQueue& queue : ring.queues) most = std::max(most, queue.receives.size());
  return static_cast<int>(most);
}

namespace {

// Operations whose successors are found in one pass through the graph.
constexpr int kWords = 8;
constexpr size_t kTogether = 64 * kWords;

// Whether a few steps back from `later` there is `earlier`: as for most there is, by one message.
bool IsNear(int earlier, int later, const LentUses::Waits& before, int steps) {
  for (const int each : before[later]) {
    if (each == earlier) return true;
    if (steps > 1 && IsNear(earlier, each, before, steps - 1)) return true;
  }
  return false;
}
constexpr int kSteps = 5;  // an add, its backward, a receive, its send, the update

}  // namespace

void LentUses::AppendPairs(const std::vector<Use>& uses, Pairs& pairs) {
  int writer = -1;
  std::map<int, int> computing;  // by worker, the last reader
  std::vector<int> readers;      // the others
  const auto append = [&](int earlier, int later) {
    if (earlier >= 0 && earlier != later) pairs.emplace_back(earlier, later);
  };
  for (const Use& use : uses) {
    append(writer, use.op);
    if (!use.writes) {
      if (use.computes) {
        computing[use.worker] = use.op;
      } else {
        readers.push_back(use.op);
      }
      continue;
    }
    for (const int reader : readers) append(reader, use.op);
    for (const auto& [worker, reader] : computing) append(reader, use.op);
    readers.clear();
    computing.clear();
    writer = use.op;
  }
}

absl::Status LentUses::Check(const std::vector<int>& order, const Waits& before,
                             const std::function<std::string(int op)>& describe) const {
  Pairs pairs;
  for (const auto& [place, uses] : uses_) {
    const auto elsewhere = [home = place.home](const Use& use) { return use.worker != home; };
    if (std::ranges::any_of(uses, elsewhere)) AppendPairs(uses, pairs);
  }
  for (int steps = 1; steps <= kSteps; ++steps) {  // most are a few steps apart
    std::erase_if(pairs, [&](const std::pair<int, int>& pair) {
      return IsNear(pair.first, pair.second, before, steps);
    });
  }
  if (pairs.empty()) return absl::OkStatus();
  std::sort(pairs.begin(), pairs.end());
  std::vector<std::array<uint64_t, kWords>> behind(before.size());
  for (auto first = pairs.begin(); first != pairs.end();) {
    std::map<int, int> bits;
    auto end = first;
    for (; end != pairs.end(); ++end) {
      if (bits.size() == kTogether && !bits.contains(end->first)) break;
      bits.try_emplace(end->first, static_cast<int>(bits.size()));
    }
    for (auto& each : behind) each.fill(0);
    for (const auto& [op, bit] : bits) behind[op][bit / 64] |= uint64_t{1} << (bit % 64);
    for (const int op : order) {
      for (const int earlier : before[op]) {
        for (int i = 0; i < kWords; ++i) behind[op][i] |= behind[earlier][i];
      }
    }
    for (; first != end; ++first) {
      const int bit = bits.at(first->first);
      if ((behind[first->second][bit / 64] >> (bit % 64) & 1) != 0) continue;
      return FailedPrecondition(describe(first->second), " may come before ",
                                describe(first->first), ", which uses the same lent block");
    }
  }
  return absl::OkStatus();
}

}  // namespace ringzero
