// Finds what must be ordered, and looks for it in the graph of waits.
#include "sharding/lent_uses.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>

#include "base/status.h"

namespace ringzero {
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

void LentUses::Note(const BlockPlace& place, const Use& use) {
  if (place.home >= std::ssize(uses_)) uses_.resize(place.home + 1);
  std::vector<std::vector<Use>>& blocks = uses_[place.home];
  if (place.block >= std::ssize(blocks)) blocks.resize(place.block + 1);
  blocks[place.block].push_back(use);
}

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
  for (int home = 0; home < std::ssize(uses_); ++home) {
    for (const std::vector<Use>& uses : uses_[home]) {
      const bool shared = std::any_of(uses.begin(), uses.end(),
                                      [home](const Use& use) { return use.worker != home; });
      if (shared) AppendPairs(uses, pairs);
    }
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
