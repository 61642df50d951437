// Flight records as text and back, as files of a folder, and their clocks.
#include "zero/flight/flight_record.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "base/status.h"
#include "base/texts.h"

namespace ringzero {
namespace {

constexpr char kTitle[] = "ringzero flight 1";
constexpr char kEvents[] = "events";
constexpr char kEnding[] = ".flight";  // of a file
constexpr char kUnknown[] = "unknown";
constexpr size_t kMaxHeadLines = 1 << 20;
constexpr int kMaxWorkers = 65535;
// No clock is so far, and sums of a few such times are numbers still: 36 years of nanoseconds.
constexpr int64_t kMaxTime = int64_t{1} << 60;
constexpr int kMaxIteration = 1 << 30;

std::optional<int64_t> OffsetToWorkerZero(const FlightRecord& record) {
  if (record.worker.value == 0) return 0;
  if (!record.offset.has_value()) return std::nullopt;
  return record.offset->offset_ns;
}

bool IsTime(int64_t time) { return time >= -kMaxTime && time <= kMaxTime; }

// Reads the lines of a head; the first that is wrong is the error.
class HeadReader {
 public:
  explicit HeadReader(FlightRecord& record) : record_(record) {}

  absl::Status Read(absl::string_view line) {
    const auto [key, value] = SplitOnce(line, " ");
    if (key == "worker") return ReadWorker(value);
    if (key == "why") return Text(value, record_.why);
    if (key == "time") return Time(value, record_.time_ns);
    if (key == "clock") return Text(value, record_.clock);
    if (key == "offset") return ReadOffset(value);
    if (key == "error") return ReadError(value);
    if (key == "appended") return Number(value, record_.appended.iteration.value);
    if (key == "appended_laps") return Number(value, record_.appended.lap.value);
    if (key == "lost") return Number(value, record_.lost);
    if (key == "now") {
      record_.has_waits = true;
      return ReadAnswer(value, record_.now);
    }
    if (key == "since") return Time(value, record_.since_ns);
    if (key == "open") return ReadOpen(value);
    if (key == "undelivered") return ReadUndelivered(value);
    return InvalidArgument("\"", key, "\" is no line of a flight record");
  }

  bool has_worker() const { return has_worker_; }

 private:
  template <typename T>
  static absl::Status Number(absl::string_view text, T& number) {
    if (absl::SimpleAtoi(text, &number)) return absl::OkStatus();
    return InvalidArgument("wanted a number, found \"", text, "\"");
  }
  static absl::Status Time(absl::string_view text, int64_t& time) {
    RZ_RETURN_IF_ERROR(Number(text, time));
    if (IsTime(time)) return absl::OkStatus();
    return InvalidArgument("no clock says ", time);
  }
  static absl::Status Text(absl::string_view text, std::string& to) {
    to = std::string(text);
    return absl::OkStatus();
  }

  // Once: what the other lines say of workers is compared with it.
  absl::Status ReadWorker(absl::string_view value) {
    if (has_worker_) return absl::InvalidArgumentError("it has said before whose it is");
    const auto parts = SplitOnce(value, " of ");
    RZ_RETURN_IF_ERROR(Number(parts.first, record_.worker.value));
    RZ_RETURN_IF_ERROR(Number(parts.second, record_.workers));
    has_worker_ = record_.worker.value >= 0 && record_.worker.value < record_.workers &&
                  record_.workers <= kMaxWorkers;
    if (has_worker_) return absl::OkStatus();
    return InvalidArgument("there is no worker ", value);
  }

  // "+17 within 5", or "unknown".
  absl::Status ReadOffset(absl::string_view value) {
    value = absl::StripTrailingAsciiWhitespace(value);
    if (value == kUnknown) return absl::OkStatus();
    const auto parts = SplitOnce(value, " within ");
    ClockOffset offset;
    RZ_RETURN_IF_ERROR(Time(parts.first, offset.offset_ns));
    RZ_RETURN_IF_ERROR(Time(parts.second, offset.within_ns));
    record_.offset = offset;
    return absl::OkStatus();
  }

  absl::Status ReadError(absl::string_view value) {
    const auto parts = SplitOnce(value, " ");
    int code = 0;
    RZ_RETURN_IF_ERROR(Number(parts.first, code));
    if (code <= 0 || code > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
      return InvalidArgument("there is no error ", code);
    }
    record_.error = absl::Status(static_cast<absl::StatusCode>(code), parts.second);
    return absl::OkStatus();
  }

  absl::Status ReadAnswer(absl::string_view value, BlameAnswer& to) const {
    RZ_ASSIGN_OR_RETURN(to, ParseAnswer(std::string(value)));
    if (!to.next.has_value() || to.next->value < record_.workers) return absl::OkStatus();
    return InvalidArgument("there is no worker ", to.next->value);
  }

  // "Send sum s3 t5 l0 w2 | 1 11.17 waits for …"
  absl::Status ReadOpen(absl::string_view value) {
    const auto parts = SplitOnce(value, " | ");
    OpenOperation open;
    RZ_ASSIGN_OR_RETURN(open.op, ParseOp(std::string(parts.first)));
    RZ_RETURN_IF_ERROR(ReadAnswer(parts.second, open.why));
    record_.open.push_back(std::move(open));
    return absl::OkStatus();
  }

  // "3 1.99", as who waits for it would ask.
  absl::Status ReadUndelivered(absl::string_view value) {
    RZ_ASSIGN_OR_RETURN(const BlameQuestion asked, ParseQuestion(std::string(value)));
    if (!asked.message.has_value() || asked.waiter.value >= record_.workers) {
      return InvalidArgument("\"", value, "\" is no message");
    }
    record_.undelivered.push_back({asked.waiter, *asked.message});
    return absl::OkStatus();
  }

  FlightRecord& record_;
  bool has_worker_ = false;
};

absl::Status ReadEvents(absl::string_view bytes, std::vector<Event>& events) {
  if (bytes.size() % sizeof(PackedEvent) != 0) {
    return InvalidArgument("it was cut: its events have ", bytes.size(), " bytes, and one has ",
                           sizeof(PackedEvent));
  }
  events.reserve(bytes.size() / sizeof(PackedEvent));
  for (size_t at = 0; at < bytes.size(); at += sizeof(PackedEvent)) {
    PackedEvent words;
    std::memcpy(words.data(), bytes.data() + at, sizeof(words));
    absl::StatusOr<Event> event = Unpack(words);
    if (!event.ok()) {
      return Annotate(event.status(), absl::StrCat("event ", at / sizeof(PackedEvent)));
    }
    const int iteration = event->op.iteration.value;
    if (!IsTime(event->time) || iteration < -1 || iteration > kMaxIteration) {
      return InvalidArgument("event ", at / sizeof(PackedEvent),
                             ": of no time or iteration of a run");
    }
    events.push_back(*event);
  }
  std::ranges::stable_sort(events, {}, &Event::time);
  return absl::OkStatus();
}

}  // namespace

std::string SteadyClockName() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  return std::getline(file, id) && !id.empty() ? absl::StrCat("boot ", OneLine(id)) : kUnknownClock;
}

std::optional<int64_t> OffsetTo(const FlightRecord& reference, const FlightRecord& record) {
  if (record.worker == reference.worker) return 0;
  if (record.clock == reference.clock && record.clock != kUnknownClock) return 0;
  const std::optional<int64_t> from = OffsetToWorkerZero(record);
  const std::optional<int64_t> to = OffsetToWorkerZero(reference);
  if (!from.has_value() || !to.has_value()) return std::nullopt;
  return *from - *to;
}

std::string FlightHead(const FlightRecord& record) {
  std::string text = absl::StrCat(kTitle, "\n");
  absl::StrAppend(&text, "worker ", record.worker.value, " of ", record.workers, "\n");
  absl::StrAppend(&text, "why ", OneLine(record.why), "\n", "time ", record.time_ns, "\n");
  absl::StrAppend(&text, "clock ", OneLine(record.clock), "\n");
  // These two are of fixed width: a trace's head is written before they are known.
  const std::string offset = !record.offset.has_value()
                                 ? kUnknown
                                 : absl::StrFormat("%+020d within %020d", record.offset->offset_ns,
                                                   record.offset->within_ns);
  absl::StrAppendFormat(&text, "offset %-50s\n", offset);
  if (!record.error.ok()) {
    absl::StrAppend(&text, "error ", static_cast<int>(record.error.code()), " ",
                    OneLine(record.error.message()), "\n");
  }
  absl::StrAppend(&text, "appended ", record.appended.iteration.value, "\n");
  if (record.appended.lap.value > 0) {
    absl::StrAppend(&text, "appended_laps ", record.appended.lap.value, "\n");
  }
  absl::StrAppendFormat(&text, "lost %020d\n", record.lost);
  if (record.has_waits) {
    absl::StrAppend(&text, "now ", OneLine(WriteAnswer(record.now)), "\n");
    absl::StrAppend(&text, "since ", record.since_ns, "\n");
    for (const OpenOperation& open : record.open) {
      absl::StrAppend(&text, "open ", ToString(open.op), " | ", OneLine(WriteAnswer(open.why)),
                      "\n");
    }
    for (const Undelivered& message : record.undelivered) {
      absl::StrAppend(&text, "undelivered ", WriteQuestion({message.to, message.key}), "\n");
    }
  }
  return absl::StrCat(text, kEvents, "\n");
}

std::string FlightToString(const FlightRecord& record) {
  std::string text = FlightHead(record);
  for (const Event& event : record.events) {
    const PackedEvent words = Pack(event);
    text.append(reinterpret_cast<const char*>(words.data()), sizeof(words));
  }
  return text;
}

absl::StatusOr<FlightRecord> ParseFlight(const std::string& text) {
  absl::string_view rest = text;
  FlightRecord record;
  HeadReader head(record);
  for (size_t line = 1; line <= kMaxHeadLines; ++line) {
    const size_t end = rest.find('\n');
    if (end == absl::string_view::npos) break;
    const absl::string_view words = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (line == 1) {
      if (words == kTitle) continue;
      return InvalidArgument("line 1: wanted \"", kTitle, "\", found \"", words.substr(0, 40),
                             "\"");
    }
    if (words == kEvents) {
      if (!head.has_worker()) return absl::InvalidArgumentError("it does not say whose it is");
      RZ_RETURN_IF_ERROR(ReadEvents(rest, record.events));
      return record;
    }
    RZ_RETURN_IF_ERROR(Annotate(head.Read(words), absl::StrCat("line ", line)));
  }
  return absl::InvalidArgumentError("it was cut before its events");
}

std::string FlightPath(const std::string& folder, WorkerId worker) {
  return absl::StrCat(folder, "/worker-", worker.value, kEnding);
}

absl::Status WriteFlightFile(const std::string& folder, const FlightRecord& record) {
  RZ_RETURN_IF_ERROR(MakeFolders(folder));
  // Not synced: a worker that ends is given a fraction of a second for its record.
  return WriteWholeFile(FlightPath(folder, record.worker), FlightToString(record),
                        OutputFile::Sync::kNo);
}

absl::StatusOr<FlightRecord> ReadFlightFile(const std::string& path) {
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  return Annotate(ParseFlight(text), path);
}

absl::StatusOr<std::vector<FlightRecord>> ReadFlightFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  if (error) return absl::NotFoundError(absl::StrCat(folder, ": ", error.message()));
  std::vector<FlightRecord> records;
  for (; entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (!absl::EndsWith(name, kEnding)) continue;
    RZ_ASSIGN_OR_RETURN(FlightRecord record, ReadFlightFile(absl::StrCat(folder, "/", name)));
    records.push_back(std::move(record));
  }
  if (records.empty()) {
    return absl::NotFoundError(
        absl::StrCat(folder, ": no flight record (worker-0", kEnding, ", …) is there"));
  }
  std::ranges::sort(records, {}, &FlightRecord::worker);
  for (size_t i = 1; i < records.size(); ++i) {
    if (records[i].worker == records[i - 1].worker || records[i].workers != records[0].workers) {
      return InvalidArgument(folder, ": holds records of several runs: worker ",
                             records[i - 1].worker.value, " of ", records[i - 1].workers,
                             ", worker ", records[i].worker.value, " of ", records[i].workers);
    }
  }
  return records;
}

}  // namespace ringzero
