// Pairs ends with begins, and takes means.
#include "integrations/sight/slices.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <set>

#include "zero/flight_clock.h"

namespace ringzero {
namespace {

// What has begun and not ended on one track. All that it does takes the logarithm of how many those
// are: a file may say that everything began and nothing ended.
class OpenSlices {
 public:
  // The row in which slice number `slice` lies.
  int Begin(const Event& event, size_t slice) {
    open_[KeyOf(event)].push_back(slice);
    if (free_rows_.empty()) return rows_++;
    return free_rows_.extract(free_rows_.begin()).value();
  }

  // The number of the slice that ends, the first of several alike; none had begun: nothing.
  std::optional<size_t> End(const Event& event) {
    const auto found = open_.find(KeyOf(event));
    if (found == open_.end()) return std::nullopt;
    const size_t slice = found->second.front();
    found->second.pop_front();
    if (found->second.empty()) open_.erase(found);
    return slice;
  }
  void FreeRow(int row) { free_rows_.insert(row); }

 private:
  // The operation and the message, in comparable form.
  static PackedEvent KeyOf(const Event& event) {
    return Pack({.kind = EventKind::kBegin, .op = event.op, .message = event.message});
  }

  std::map<PackedEvent, std::deque<size_t>> open_;
  std::set<int> free_rows_;
  int rows_ = 0;
};

bool Trains(const Op& op) { return op.kind == OpKind::kForward || op.kind == OpKind::kBackward; }

// The mean length of slices, in nanoseconds.
class MeanOf {
 public:
  void Add(const Slice& slice) {
    sum_ += static_cast<double>(slice.end - slice.begin);
    ++count_;
  }
  int64_t value() const {
    return std::llround(sum_ / static_cast<double>(std::max<int64_t>(count_, 1)));
  }

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

}  // namespace

int64_t Until(const FlightRecord& record) {
  return record.events.empty() ? 0 : record.events.back().time;
}

std::vector<Slice> SlicesOf(std::span<const Event> events, int64_t until) {
  std::vector<Slice> slices;
  std::array<OpenSlices, kTrackCount> open;
  for (const Event& event : events) {
    const Track track = TrackOf(event);
    OpenSlices& now = open[static_cast<size_t>(track)];
    if (event.kind == EventKind::kEnd || event.kind == EventKind::kWaited) {
      const std::optional<size_t> begun = now.End(event);
      if (!begun.has_value()) continue;
      slices[*begun].end = event.time;
      slices[*begun].ended = true;
      now.FreeRow(slices[*begun].row);
      continue;
    }
    const Slice slice{.track = track,
                      .row = now.Begin(event, slices.size()),
                      .op = event.op,
                      .message = event.message,
                      .begin = event.time,
                      .end = std::max(until, event.time),
                      .ended = false};
    slices.push_back(slice);
  }
  return slices;
}

std::optional<std::pair<Iteration, Iteration>> LastWhole(std::span<const FlightRecord> records,
                                                         int count) {
  int first = 0, last = std::numeric_limits<int>::max();
  for (const FlightRecord& record : records) {
    // Iterations that are over, and the one that the record may have begun within.
    int begun_in = std::numeric_limits<int>::max(), over = -1;
    for (const Event& event : record.events) {
      if (!IsCompute(event.op.kind) || event.op.copy == Copy::kEvaluation) continue;
      if (TrackOf(event) != Track::kCompute) continue;
      begun_in = std::min(begun_in, event.op.iteration.value);
      if (event.op.kind == OpKind::kEnd && event.kind == EventKind::kEnd) {
        over = std::max(over, event.op.iteration.value);
      }
    }
    // Of the run's very first iteration a record has everything, too.
    first = std::max(first, begun_in == 0                                 ? 0
                            : begun_in == std::numeric_limits<int>::max() ? begun_in
                                                                          : begun_in + 1);
    last = std::min(last, over);
  }
  if (records.empty() || first > last) return std::nullopt;
  return std::pair(Iteration(std::max(first, last - count + 1)), Iteration(last + 1));
}

std::pair<int64_t, int64_t> TimesOf(std::span<const FlightRecord> records,
                                    std::pair<Iteration, Iteration> iterations) {
  int64_t from = std::numeric_limits<int64_t>::max(), to = std::numeric_limits<int64_t>::min();
  for (const FlightRecord& record : records) {
    const int64_t offset = OffsetTo(records[0], record).value_or(0);
    for (const Event& event : record.events) {
      if (!Trains(event.op) || TrackOf(event) != Track::kCompute) continue;
      if (event.op.iteration < iterations.first || event.op.iteration >= iterations.second)
        continue;
      from = std::min(from, event.time + offset);
      to = std::max(to, event.time + offset);
    }
  }
  return {from, std::max(from, to)};
}

std::vector<StageTicks> MeasuredTicks(std::span<const FlightRecord> records, int stages) {
  std::vector<std::pair<MeanOf, MeanOf>> means(static_cast<size_t>(stages));
  for (const FlightRecord& record : records) {
    for (const Slice& slice : SlicesOf(record.events, Until(record))) {
      const int stage = slice.op.stage.value;
      if (!slice.ended || slice.track != Track::kCompute || !Trains(slice.op)) continue;
      if (stage < 0 || stage >= stages) continue;
      auto& [forward, backward] = means[static_cast<size_t>(stage)];
      MeanOf& mean = slice.op.kind == OpKind::kForward ? forward : backward;
      mean.Add(slice);
    }
  }
  std::vector<StageTicks> ticks;
  for (const auto& [forward, backward] : means) {
    ticks.push_back({.forward = forward.value(), .backward = backward.value()});
  }
  return ticks;
}

std::pair<int64_t, int64_t> MeasuredAddAndUpdate(std::span<const FlightRecord> records) {
  std::map<OpKind, MeanOf> means;
  for (const FlightRecord& record : records) {
    for (const Slice& slice : SlicesOf(record.events, Until(record))) {
      if (!slice.ended || slice.track == Track::kWaits) continue;
      means[slice.op.kind].Add(slice);
    }
  }
  return {means[OpKind::kAdd].value(), means[OpKind::kUpdate].value()};
}

}  // namespace ringzero
