// Writes the events' JSON by hand: a trace has millions of them, and they are all alike.
#include "integrations/sight/chrome_trace.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/files.h"
#include "integrations/sight/slices.h"
#include "zero/flight_clock.h"

namespace ringzero {
namespace {

constexpr int kRowsPerTrack = 16;  // thread numbers apart; what needs more rows shares the last
// Perfetto binds a flow to the slice that it is within: nothing lasts no time.
constexpr double kShortest = 1e-3;

std::string Quoted(const std::string& text) { return nlohmann::json(text).dump(); }

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
  Writer(std::span<const FlightRecord> records, const ChromeTraceOptions& options)
      : records_(records), options_(options) {}

  std::string Write() {
    FindStart();
    text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    for (const FlightRecord& record : records_) WriteWorker(record);
    WriteFlows();
    absl::StrAppend(&text_, "\n],\"otherData\":{\"note\":", Quoted(options_.note));
    uint64_t lost = 0;
    for (const FlightRecord& record : records_) lost += record.lost;
    absl::StrAppend(&text_, ",\"lost_events\":\"", lost, "\",\"clocks\":", Quoted(clocks_), "}}\n");
    return std::move(text_);
  }

 private:
  struct End {
    int worker = 0;
    int thread = 0;
    double time = 0;
  };
  struct Flow {
    bool sent = false, received = false;
    End from, to;
    Op op;
  };

  void FindStart() {
    start_ = std::numeric_limits<int64_t>::max();
    std::vector<std::string> loose;
    int64_t within_ns = 0;
    for (const FlightRecord& record : records_) {
      const std::optional<int64_t> offset = OffsetTo(records_[0], record);
      if (!offset.has_value()) loose.push_back(absl::StrCat("worker ", record.worker.value));
      const bool measured = record.clock != records_[0].clock && record.offset.has_value();
      if (measured) within_ns = std::max(within_ns, record.offset->within_ns);
      if (!record.events.empty())
        start_ = std::min(start_, record.events[0].time + offset.value_or(0));
    }
    clocks_ = loose.empty() ? "aligned" : "not aligned:";
    if (loose.empty() && within_ns > 0) {
      absl::StrAppendFormat(&clocks_, " within %.0f us", static_cast<double>(within_ns) * 1e-3);
    }
    for (const std::string& worker : loose) absl::StrAppend(&clocks_, " ", worker);
  }

  double Time(int64_t time) const {
    return static_cast<double>(time - start_) * options_.microseconds_per_unit;
  }

  void Next() {
    if (!first_) text_ += ",\n";
    first_ = false;
  }

  void Name(const char* what, int worker, int thread, const std::string& value) {
    Next();
    absl::StrAppend(&text_, "{\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", worker,
                    ",\"tid\":", thread, ",\"args\":{", value, "}}");
  }

  void WriteWorker(const FlightRecord& record) {
    const int worker = record.worker.value;
    const std::optional<int64_t> offset = OffsetTo(records_[0], record);
    Name("process_name", worker, 0,
         absl::StrCat("\"name\":\"worker ", worker,
                      offset.has_value() ? "" : " (clock not aligned)", "\""));
    Name("process_sort_index", worker, 0, absl::StrCat("\"sort_index\":", worker));
    std::set<std::pair<int, int>> rows;
    for (const Slice& slice : SlicesOf(record.events, Until(record))) {
      const int row = std::min(slice.row, kRowsPerTrack - 1);
      rows.insert({static_cast<int>(slice.track), row});
      WriteSlice(worker, slice,
                 {.offset = offset.value_or(0),
                  .thread = 1 + static_cast<int>(slice.track) * kRowsPerTrack + row});
    }
    for (const auto& [track, row] : rows) {
      const int thread = 1 + track * kRowsPerTrack + row;
      const std::string number = row == 0 ? "" : absl::StrCat(" ", row + 1);
      Name("thread_name", worker, thread,
           absl::StrCat("\"name\":\"", ToString(static_cast<Track>(track)), number, "\""));
      Name("thread_sort_index", worker, thread, absl::StrCat("\"sort_index\":", thread));
    }
  }

  struct Place {
    int64_t offset = 0;
    int thread = 0;
  };
  void WriteSlice(int worker, const Slice& slice, const Place& place) {
    const double begin = Time(slice.begin + place.offset);
    const double lasted = std::max(kShortest, Time(slice.end + place.offset) - begin);
    Next();
    absl::StrAppendFormat(&text_,
                          "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":"
                          "\"%s\",\"name\":\"%s\",\"args\":{\"op\":\"%s\"",
                          worker, place.thread, begin, lasted, ToString(slice.track), NameOf(slice),
                          ToString(slice.op));
    if (!slice.ended) text_ += ",\"unfinished\":true";
    const Op& op = slice.op;
    const bool sent = slice.track == Track::kCopiesOut, received = slice.track == Track::kCopiesIn;
    if (sent || received) absl::StrAppend(&text_, ",\"message\":", slice.message);
    text_ += "}}";
    if (sent) {
      Flow& flow = flows_[{worker, op.peer.value, op.channel, slice.message}];
      flow.sent = true;
      flow.op = op;
      flow.from = {worker, place.thread, begin};
    } else if (received) {
      Flow& flow = flows_[{op.peer.value, worker, op.channel, slice.message}];
      flow.received = true;
      flow.to = {worker, place.thread, begin};
    }
  }

  void WriteFlows() {
    for (const auto& [name, flow] : flows_) {
      if (!flow.sent || !flow.received) continue;
      const auto& [from, to, channel, number] = name;
      const std::string common =
          absl::StrCat("\"cat\":\"message\",\"name\":\"", ToString(channel), "\",\"id\":\"", from,
                       ".", to, ".", ToString(channel), ".", number, "\"");
      Next();
      absl::StrAppendFormat(&text_, "{\"ph\":\"s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,%s}",
                            flow.from.worker, flow.from.thread, flow.from.time, common);
      Next();
      absl::StrAppendFormat(&text_,
                            "{\"ph\":\"f\",\"bp\":\"e\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,%s}",
                            flow.to.worker, flow.to.thread, flow.to.time, common);
    }
  }

  std::span<const FlightRecord> records_;
  const ChromeTraceOptions& options_;
  int64_t start_ = 0;
  std::string clocks_;
  std::string text_;
  bool first_ = true;
  std::map<std::tuple<int, int, Channel, uint32_t>, Flow> flows_;
};

std::string Gzip(const std::string& plain) {
  z_stream stream{};
  // 15: the largest window; 16: a gzip header and trailer are written.
  const int begun =
      deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  RZ_CHECK(begun == Z_OK, "zlib does not start");
  std::string packed;
  std::vector<Bytef> part(1 << 16);
  size_t taken = 0;
  int result = Z_OK;
  while (result == Z_OK) {  // avail_in has 32 bits
    const size_t left = std::min<size_t>(plain.size() - taken, 1 << 30);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data() + taken));
    stream.avail_in = static_cast<uInt>(left);
    stream.next_out = part.data();
    stream.avail_out = static_cast<uInt>(part.size());
    result = deflate(&stream, taken + left == plain.size() ? Z_FINISH : Z_NO_FLUSH);
    taken += left - stream.avail_in;
    packed.append(reinterpret_cast<const char*>(part.data()), part.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  RZ_CHECK(result == Z_STREAM_END, "zlib does not end");
  return packed;
}

}  // namespace

std::string ChromeTrace(std::span<const FlightRecord> records, const ChromeTraceOptions& options) {
  return Writer(records, options).Write();
}

absl::Status WriteTrace(const std::string& path, const std::string& json) {
  return WriteWholeFile(path, absl::EndsWith(path, ".gz") ? Gzip(json) : json);
}

}  // namespace ringzero
