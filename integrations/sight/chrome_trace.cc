// Pairs ends with begins. Writes the events' JSON by hand: a trace has millions of them, all alike.
#include "integrations/sight/chrome_trace.h"

#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace ringzero {
namespace {

bool Trains(const Op& op) { return op.kind == OpKind::kForward || op.kind == OpKind::kBackward; }

constexpr int kRowsPerTrack = 16;  // thread numbers per track; further rows share the last one
// Perfetto binds a flow to the slice that the flow lies within, so every slice lasts some time.
constexpr double kShortest = 1e-3;

std::string NameOf(const Slice& slice) {
  const Op& op = slice.op;
  if (slice.track == Track::kWaits) return absl::StrCat("wait: ", ToString(CauseOf(op)));
  if (slice.track == Track::kCopiesIn || slice.track == Track::kCopiesOut) {
    const std::string stage = op.stage == kNoStage ? "" : absl::StrCat(" s", op.stage.value);
    return absl::StrCat(ToString(op.channel), stage);
  }
  const std::string text = ToString(op);
  return text.substr(0, text.find(' '));
}

class Writer {
 public:
  Writer(std::span<const FlightRecord> records, const std::string& note)
      : records_(records), note_(note) {}

  std::string Write() {
    const std::string clocks = FindStart();
    text_ = R"({"displayTimeUnit":"ms","traceEvents":[)";
    uint64_t lost = 0;
    for (const FlightRecord& record : records_) {
      WriteWorker(record);
      lost += record.lost;
    }
    WriteFlows();
    const nlohmann::ordered_json other = {
        {"note", note_}, {"lost_events", absl::StrCat(lost)}, {"clocks", clocks}};
    absl::StrAppend(&text_, "\n],\"otherData\":", other.dump(), "}\n");
    return std::move(text_);
  }

 private:
  // One end of a flow: where a slice begins.
  struct End {
    int worker = 0;
    int thread = 0;  // 0: not known
    double time = 0;
  };

  // Returns how well the clocks are aligned.
  std::string FindStart() {
    start_ = std::numeric_limits<int64_t>::max();
    std::string loose;
    int64_t within_ns = 0;
    for (const FlightRecord& record : records_) {
      const std::optional<int64_t> offset = OffsetTo(records_[0], record);
      if (!offset.has_value()) absl::StrAppend(&loose, " worker ", record.worker.value);
      const bool measured = record.clock != records_[0].clock && record.offset.has_value();
      if (measured) within_ns = std::max(within_ns, record.offset->within_ns);
      if (record.events.empty()) continue;
      start_ = std::min(start_, record.events[0].time + offset.value_or(0));
    }
    if (!loose.empty()) return absl::StrCat("not aligned:", loose);
    if (within_ns == 0) return "aligned";
    return absl::StrFormat("aligned within %.0f us", static_cast<double>(within_ns) * 1e-3);
  }

  // Microseconds since start_.
  double Time(int64_t time) const { return static_cast<double>(time - start_) * 1e-3; }

  template <typename... Values>
  void Append(const absl::FormatSpec<Values...>& format, const Values&... values) {
    text_ += std::exchange(separator_, ",\n");
    absl::StrAppendFormat(&text_, format, values...);
  }

  // The name of a process or a thread, and the place where it is shown.
  void Name(const char* what, int worker, int thread, const std::string& name, int place) {
    Append(R"({"ph":"M","name":"%s_name","pid":%d,"tid":%d,"args":{"name":"%s"}})", what, worker,
           thread, name);
    Append(R"({"ph":"M","name":"%s_sort_index","pid":%d,"tid":%d,"args":{"sort_index":%d}})", what,
           worker, thread, place);
  }

  void WriteWorker(const FlightRecord& record) {
    const int worker = record.worker.value;
    const std::optional<int64_t> offset = OffsetTo(records_[0], record);
    const char* const loose = offset.has_value() ? "" : " (clock not aligned)";
    Name("process", worker, 0, absl::StrCat("worker ", worker, loose), worker);
    std::map<int, std::string> threads;
    for (const Slice& slice : SlicesOf(record.events)) {
      const int row = std::min(slice.row, kRowsPerTrack - 1);
      const int thread = 1 + static_cast<int>(slice.track) * kRowsPerTrack + row;
      std::string& name = threads[thread];
      if (name.empty()) {
        name = absl::StrCat(ToString(slice.track), row == 0 ? "" : absl::StrCat(" ", row + 1));
      }
      const double begin = Time(slice.begin + offset.value_or(0));
      WriteSlice(slice, {worker, thread, begin}, Time(slice.end + offset.value_or(0)) - begin);
    }
    for (const auto& [thread, name] : threads) Name("thread", worker, thread, name, thread);
  }

  void WriteSlice(const Slice& slice, const End& at, double lasted) {
    const Op& op = slice.op;
    const bool sent = slice.track == Track::kCopiesOut, received = slice.track == Track::kCopiesIn;
    Append(R"({"ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"cat":"%s","name":"%s",)"
           R"("args":{"op":"%s"%s%s}})",
           at.worker, at.thread, at.time, std::max(kShortest, lasted), ToString(slice.track),
           NameOf(slice), ToString(op), slice.ended ? "" : R"(,"unfinished":true)",
           sent || received ? absl::StrCat(R"(,"message":)", slice.message) : "");
    if (sent) flows_[{at.worker, op.peer.value, op.channel, slice.message}].first = at;
    if (received) flows_[{op.peer.value, at.worker, op.channel, slice.message}].second = at;
  }

  void WriteFlows() {
    for (const auto& [name, ends] : flows_) {
      if (ends.first.thread == 0 || ends.second.thread == 0) continue;
      const auto& [from, to, channel, number] = name;
      const std::string id = absl::StrCat(from, ".", to, ".", ToString(channel), ".", number);
      for (const auto& [phase, end] :
           {std::pair(R"("s")", ends.first), std::pair(R"("f","bp":"e")", ends.second)}) {
        Append(R"({"ph":%s,"pid":%d,"tid":%d,"ts":%.3f,"cat":"message","name":"%s","id":"%s"})",
               phase, end.worker, end.thread, end.time, ToString(channel), id);
      }
    }
  }

  std::span<const FlightRecord> records_;
  const std::string& note_;
  int64_t start_ = 0;
  std::string text_;
  const char* separator_ = "\n";
  std::map<std::tuple<int, int, Channel, uint32_t>, std::pair<End, End>> flows_;  // by message
};

// Packs into a file in memory, because zlib's gzFile writes to files.
absl::StatusOr<std::string> Gzip(const std::string& plain) {
  const UniqueFd packed(memfd_create("trace", MFD_CLOEXEC));
  const gzFile file = gzdopen(dup(packed.get()), "wb");
  if (file == nullptr) {
    return absl::ResourceExhaustedError("cannot pack the trace: no descriptor or no memory");
  }
  const size_t taken = gzfwrite(plain.data(), 1, plain.size(), file);
  if (gzclose(file) != Z_OK || taken != plain.size()) {
    return absl::ResourceExhaustedError("cannot pack the trace: no memory for it");
  }
  return ReadWholeFile(absl::StrCat("/proc/self/fd/", packed.get()));
}

}  // namespace

// The time per event grows with the logarithm of the number of open slices: a file may say that
// everything began and nothing ended.
std::vector<Slice> SlicesOf(std::span<const Event> events) {
  struct Rows {
    std::set<int> free;
    int count = 0;
  };
  std::vector<Slice> slices;
  std::array<Rows, kTrackCount> tracks;
  // Open slices by track, operation and message; the first of several equal ones ends first.
  std::map<std::pair<Track, PackedEvent>, std::deque<size_t>> open;
  for (const Event& event : events) {
    const Track track = TrackOf(event);
    Rows& rows = tracks[static_cast<size_t>(track)];
    const std::pair key(track, Pack({.op = event.op, .message = event.message}));
    if (event.kind == EventKind::kEnd || event.kind == EventKind::kWaited) {
      const auto found = open.find(key);
      if (found == open.end()) continue;
      Slice& slice = slices[found->second.front()];
      slice.end = event.time;
      slice.ended = true;
      rows.free.insert(slice.row);
      found->second.pop_front();
      if (found->second.empty()) open.erase(found);
      continue;
    }
    open[key].push_back(slices.size());
    const int row = rows.free.empty() ? rows.count++ : rows.free.extract(rows.free.begin()).value();
    slices.push_back({.track = track,
                      .row = row,
                      .op = event.op,
                      .message = event.message,
                      .begin = event.time,
                      .end = std::max(events.back().time, event.time)});
  }
  return slices;
}

std::optional<std::pair<Iteration, Iteration>> LastWhole(std::span<const FlightRecord> records,
                                                         int count) {
  constexpr int kNone = std::numeric_limits<int>::max();
  int first = 0, last = kNone;
  for (const FlightRecord& record : records) {
    // The last iteration that is over, and the iteration within which the record may have begun.
    int begun_in = kNone, over = -1;
    for (const Event& event : record.events) {
      if (!IsCompute(event.op.kind) || event.op.copy == Copy::kEvaluation) continue;
      if (TrackOf(event) != Track::kCompute) continue;
      begun_in = std::min(begun_in, event.op.iteration.value);
      if (event.op.kind == OpKind::kEnd && event.kind == EventKind::kEnd) {
        over = std::max(over, event.op.iteration.value);
      }
    }
    // A record that begins in the run's first iteration has all of that iteration.
    first = std::max(first, begun_in == 0 || begun_in == kNone ? begun_in : begun_in + 1);
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
      const Iteration t = event.op.iteration;
      if (!Trains(event.op) || TrackOf(event) != Track::kCompute) continue;
      if (t < iterations.first || t >= iterations.second) continue;
      from = std::min(from, event.time + offset);
      to = std::max(to, event.time + offset);
    }
  }
  return {from, std::max(from, to)};
}

SimulationOptions MeasuredSpeed(std::span<const FlightRecord> records, int stages) {
  struct Mean {
    double nanoseconds = 0;
    int64_t count = 0;
  };
  std::map<std::pair<OpKind, int>, Mean> means;  // by stage; adds and updates as stage 0
  for (const FlightRecord& record : records) {
    for (const Slice& slice : SlicesOf(record.events)) {
      if (!slice.ended || slice.track == Track::kWaits) continue;
      Mean& mean = means[{slice.op.kind, Trains(slice.op) ? slice.op.stage.value : 0}];
      mean.nanoseconds += static_cast<double>(slice.end - slice.begin);
      ++mean.count;
    }
  }
  const auto of = [&](OpKind kind, int stage) -> int64_t {
    const Mean& mean = means[{kind, stage}];
    return std::llround(mean.nanoseconds / static_cast<double>(std::max<int64_t>(mean.count, 1)));
  };
  SimulationOptions speed{.add_ticks = of(OpKind::kAdd, 0), .update_ticks = of(OpKind::kUpdate, 0)};
  for (int j = 0; j < stages; ++j) {
    speed.stage_ticks.push_back(
        {.forward = of(OpKind::kForward, j), .backward = of(OpKind::kBackward, j)});
  }
  return speed;
}

std::string ChromeTrace(std::span<const FlightRecord> records, const std::string& note) {
  return Writer(records, note).Write();
}

absl::StatusOr<std::vector<FlightRecord>> PredictedRecords(Plan plan,
                                                           const SimulationOptions& speed) {
  plan.iterations = std::min(plan.iterations, kPredictedIterations);
  std::erase_if(plan.collection.versions, [&](int version) { return version > plan.iterations; });
  RZ_ASSIGN_OR_RETURN(std::vector<std::vector<Event>> events, PredictEvents(plan, speed));
  std::vector<FlightRecord> records;
  for (int w = 0; w < plan.workers; ++w) {
    records.push_back({.worker = WorkerId(w),
                       .workers = plan.workers,
                       .why = "a prediction",
                       .clock = "nanoseconds of the simulation"});
    records.back().events = std::move(events[static_cast<size_t>(w)]);
  }
  return records;
}

absl::StatusOr<std::string> PredictedTrace(const Plan& plan, const SimulationOptions& speed) {
  RZ_ASSIGN_OR_RETURN(const std::vector<FlightRecord> records, PredictedRecords(plan, speed));
  return ChromeTrace(records, absl::StrFormat("predicted, the first %d iterations: no clock ran",
                                              std::min(plan.iterations, kPredictedIterations)));
}

absl::Status WriteTrace(const std::string& path, const std::string& json) {
  if (!absl::EndsWith(path, ".gz")) return WriteWholeFile(path, json);
  RZ_ASSIGN_OR_RETURN(const std::string packed, Gzip(json));
  return WriteWholeFile(path, packed);
}

}  // namespace ringzero
