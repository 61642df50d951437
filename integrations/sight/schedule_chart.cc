// Rows of workers: computing above, updates and sums below, waits in between.
#include "integrations/sight/schedule_chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "integrations/sight/slices.h"
#include "integrations/sight/svg_chart.h"
#include "zero/flight_clock.h"

namespace ringzero {
namespace {

constexpr int kScheduleWidth = 1180, kScheduleLeft = 70, kRow = 40, kBar = 20;

bool Trains(const Op& op) { return op.kind == OpKind::kForward || op.kind == OpKind::kBackward; }

int64_t Until(const FlightRecord& record) {
  return record.events.empty() ? 0 : record.events.back().time;
}

std::string SliceColour(const Slice& slice) {
  if (slice.track == Track::kWaits) {
    switch (CauseOf(slice.op)) {
      case WaitCause::kParameters: return "#e9b44c";
      case WaitCause::kGradientSums: return "#d9834e";
      case WaitCause::kUpdate: return "#b0413e";
      default: return "#a9a9a9";
    }
  }
  switch (slice.op.kind) {
    case OpKind::kForward: return "#4a84c4";
    case OpKind::kBackward: return "#2f5d50";
    case OpKind::kEvaluate: return "#8fb8de";
    case OpKind::kUpdate: return "#8064a2";
    case OpKind::kAdd: return "#7fae6a";
    default: return "#c9c9c9";
  }
}

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

struct Drawn {
  double x = 0, width = 0;
};

void AppendSlice(std::string& svg, const Slice& slice, const Drawn& at, int top) {
  const bool computes = slice.track == Track::kCompute, waits = slice.track == Track::kWaits;
  const int y = top + (computes || waits ? 0 : kBar + 1);
  const int height = computes ? kBar : waits ? kBar : 6;
  const double ms = static_cast<double>(slice.end - slice.begin) * 1e-6;
  absl::StrAppendFormat(
      &svg,
      "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"%s><title>%s%s\n%.3f "
      "ms</title></rect>",
      at.x, y, std::max(at.width, 0.4), height, SliceColour(slice),
      waits ? " fill-opacity=\"0.55\"" : "", waits ? "waits for " : "",
      EscapeXml(ToString(slice.op)), ms);
  if (computes && Trains(slice.op) && at.width > 17) {
    absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%d\" class=\"op\">%s%d</text>",
                          at.x + at.width / 2, top + 14,
                          slice.op.kind == OpKind::kForward ? "F" : "B", slice.op.stage.value);
  }
}

}  // namespace

std::string ScheduleChart(std::span<const FlightRecord> records,
                          const ScheduleChartOptions& options) {
  const int64_t width =
      std::max<int64_t>(1, options.width > 0 ? options.width : options.to - options.from);
  const double scale = (kScheduleWidth - kScheduleLeft - 10) / static_cast<double>(width);
  const int height = kRow * static_cast<int>(records.size()) + 24;
  std::string svg =
      absl::StrFormat("<svg viewBox=\"0 0 %d %d\" role=\"img\">", kScheduleWidth, height);
  int top = 2;
  for (const FlightRecord& record : records) {
    const int64_t offset = OffsetTo(records[0], record).value_or(0);
    absl::StrAppendFormat(&svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">worker %d</text>",
                          kScheduleLeft - 8, top + 14, record.worker.value);
    for (const Slice& slice : SlicesOf(record.events, Until(record))) {
      if (slice.track == Track::kCopiesIn || slice.track == Track::kCopiesOut) continue;
      const int64_t begin = std::max(slice.begin + offset, options.from);
      const int64_t end = std::min(slice.end + offset, options.to);
      if (begin >= end) continue;
      AppendSlice(svg, slice,
                  {kScheduleLeft + static_cast<double>(begin - options.from) * scale,
                   static_cast<double>(end - begin) * scale},
                  top);
    }
    top += kRow;
  }
  const double whole_ms = static_cast<double>(width) * 1e-6;
  for (int i = 0; i <= 8; ++i) {
    const double x = kScheduleLeft + (kScheduleWidth - kScheduleLeft - 10) * i / 8.0;
    absl::StrAppendFormat(&svg,
                          "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" y2=\"%d\" class=\"grid\"/>"
                          "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%.3g ms</text>",
                          x, x, top, x, top + 14, i == 8 ? "end" : "middle", whole_ms * i / 8);
  }
  return svg + "</svg>\n";
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
