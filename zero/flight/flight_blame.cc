// BlameFlights (zero/flight/flight_record.h): chains through files, and what stands at their ends.
#include <algorithm>
#include <chrono>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "p2p/failure.h"
#include "zero/flight/flight_record.h"
#include "zero/message_key.h"

namespace ringzero {
namespace {

using Records = std::span<const FlightRecord>;

const FlightRecord* RecordOf(Records records, WorkerId worker) {
  const auto found = std::ranges::find(records, worker, &FlightRecord::worker);
  return found == records.end() ? nullptr : &*found;
}

// As the engine answers its peers, from what it wrote.
BlameAnswer AnswerTo(Records records, WorkerId worker, const BlameQuestion& question) {
  const FlightRecord* record = RecordOf(records, worker);
  if (record == nullptr) return {.says = "left no record: it died, or could not write one"};
  if (!record->has_waits) return {.says = "left no waits in its record"};
  if (!question.message.has_value()) return record->now;
  const MessageKey key = *question.message;
  const Op named = SendOf(key);
  for (const OpenOperation& open : record->open) {
    const bool is_it = open.op.kind == OpKind::kSend && open.op.peer == question.waiter &&
                       MessageKeyOf(open.op) == key;
    if (is_it) return open.why;
  }
  if (IsFrom(record->appended, named)) return record->now;
  return {.says = "has sent that message, but it did not arrive"};
}

// From the worker of `record` to the end of its waits.
BlameChain ChainFrom(Records records, const FlightRecord& record, WorkerId* end) {
  BlameChain chain;
  chain.Add(record.worker, record.now);
  *end = record.worker;
  while (const std::optional<BlameStep> step = chain.next()) {
    chain.Add(step->worker, AnswerTo(records, step->worker, step->question));
    *end = step->worker;
  }
  return chain;
}

std::string LastEnd(const FlightRecord& record) {
  for (auto event = record.events.rbegin(); event != record.events.rend(); ++event) {
    if (event->kind != EventKind::kEnd) continue;
    const std::chrono::nanoseconds ago(record.time_ns - event->time);
    return absl::StrCat("; the last that ended, ", SecondsText(ago), " before, was \"",
                        ToString(event->op), "\"");
  }
  return "";
}

// A job in which no worker is at one thing for so long has nothing to explain.
constexpr std::chrono::seconds kPatience(5);
// Records that were asked for at once are written within so much.
constexpr std::chrono::seconds kMoment(5);

// Longer than kPatience, and than twice what its computing thread has taken for anything so far.
bool TakesTooLong(const FlightRecord& record) {
  int64_t longest = 0;
  std::optional<int64_t> last;
  for (const Event& event : record.events) {
    if (!IsCompute(event.op.kind)) continue;
    if (event.kind != EventKind::kBegin && event.kind != EventKind::kEnd) continue;
    longest = std::max(longest, event.time - last.value_or(event.time));
    last = event.time;
  }
  return std::chrono::nanoseconds(record.time_ns - record.since_ns) >
         std::max<std::chrono::nanoseconds>(kPatience, std::chrono::nanoseconds(2 * longest));
}

// How long before `other` it was written; nothing: by clocks that were not compared.
std::optional<std::chrono::nanoseconds> WrittenBefore(const FlightRecord& record,
                                                      const FlightRecord& other) {
  const auto offset = OffsetTo(other, record);
  if (!offset.has_value()) return std::nullopt;
  return std::chrono::nanoseconds(other.time_ns - (record.time_ns + *offset));
}

struct Moment {
  bool failed = false;                // it is the end of a run that failed
  std::vector<FlightRecord> records;  // ascending by worker
  std::string left_out;               // lines about the others
};

// Each worker has one record in a folder, and a run writes several times. What belongs together:
// what the end of the run wrote, if it failed, else what was written with the newest.
Moment LastMoment(Records records) {
  Moment moment;
  const FlightRecord* of = &records[0];  // the first that failed, or the newest
  for (const FlightRecord& record : records) {
    const bool failed = !record.error.ok();
    const auto before = WrittenBefore(record, *of).value_or(std::chrono::nanoseconds(0));
    const bool better =
        failed ? !moment.failed || before.count() > 0 : !moment.failed && before.count() < 0;
    if (better) of = &record;
    moment.failed = moment.failed || failed;
  }
  for (const FlightRecord& record : records) {
    const std::optional<std::chrono::nanoseconds> before = WrittenBefore(record, *of);
    const bool older = moment.failed
                           ? record.error.ok() && (!before.has_value() || before->count() > 0)
                           : before.has_value() && *before > kMoment;
    if (!older) {
      moment.records.push_back(record);
    } else {
      absl::StrAppend(&moment.left_out, "left out, of another moment: the record of worker ",
                      record.worker.value, ", written because ", record.why, "\n");
    }
  }
  return moment;
}

struct Failures {
  const FlightRecord* first = nullptr;      // null: none
  std::vector<const FlightRecord*> beside;  // by clocks that cannot be compared with its own
};

// The error that is not another worker's, if there is one: of several the first by time. Where
// clocks cannot be compared, that of the lowest worker, and the others beside it.
Failures FirstToFail(Records records) {
  Failures failures;
  for (const FlightRecord& record : records) {
    const bool own = !record.error.ok() && !IsEcho(record.error) &&
                     record.error.code() != absl::StatusCode::kDeadlineExceeded &&
                     record.error.code() != absl::StatusCode::kCancelled;
    if (!own) continue;
    if (failures.first == nullptr) {
      failures.first = &record;
      continue;
    }
    const auto offset = OffsetTo(*failures.first, record);
    if (!offset.has_value()) {
      failures.beside.push_back(&record);
    } else if (record.time_ns + *offset < failures.first->time_ns) {
      failures.first = &record;
    }
  }
  return failures;
}

std::string Beside(const Failures& failures) {
  std::string text;
  for (const FlightRecord* record : failures.beside) {
    absl::StrAppend(&text, "or, by a clock that was not compared with worker ",
                    failures.first->worker.value,
                    "'s: ", ReportedBy(record->worker, record->error).message(), "\n");
  }
  return text;
}

// A worker without a record whose death ended the run elsewhere: "worker 2 died: …".
const FlightRecord* WhoHeardOfADeath(Records records) {
  for (const FlightRecord& record : records) {
    WorkerId dead{0};
    if (record.error.code() != absl::StatusCode::kUnavailable) continue;
    const absl::Status cause = CauseOf(record.error);
    absl::string_view words = cause.message();
    if (!absl::ConsumePrefix(&words, "worker ")) continue;
    if (!absl::SimpleAtoi(words.substr(0, words.find(' ')), &dead.value)) continue;
    if (RecordOf(records, dead) == nullptr) return &record;
  }
  return nullptr;
}

std::string Missing(Records records) {
  std::vector<std::string> missing;
  for (int w = 0; w < records[0].workers; ++w) {
    if (RecordOf(records, WorkerId(w)) == nullptr) missing.push_back(absl::StrCat("worker ", w));
  }
  if (missing.empty()) return "";
  return absl::StrCat("no record of ", absl::StrJoin(missing, ", "), "\n");
}

}  // namespace

std::string BlameFlights(std::span<const FlightRecord> written) {
  const Moment moment = LastMoment(written);
  const std::vector<FlightRecord>& records = moment.records;
  std::string text;
  for (const FlightRecord& record : records) {
    absl::StrAppend(&text, "worker ", record.worker.value, " ",
                    record.has_waits ? record.now.says : "left no waits", LastEnd(record), "\n");
    absl::StrAppend(&text, "  written because ", record.why, "\n");
  }
  absl::StrAppend(&text, moment.left_out, Missing(records));

  struct End {
    int waiters = 0;
    std::string longest;
  };
  std::map<int, End> ends;
  std::chrono::nanoseconds longest(0);
  for (const FlightRecord& record : records) {
    if (!record.has_waits) continue;
    longest = std::max(longest, std::chrono::nanoseconds(record.time_ns - record.since_ns));
    if (moment.failed ? !record.now.next.has_value() : !TakesTooLong(record)) continue;
    WorkerId last{0};
    std::string words = ChainFrom(records, record, &last).Describe();
    End& end = ends[last.value];
    ++end.waiters;
    if (words.size() > end.longest.size()) end.longest = std::move(words);
  }
  if (const Failures failures = FirstToFail(records); failures.first != nullptr) {
    const FlightRecord& failed = *failures.first;
    absl::StrAppend(&text, "first cause: ", ReportedBy(failed.worker, failed.error).message(), "\n",
                    Beside(failures));
  } else if (const FlightRecord* heard = WhoHeardOfADeath(records)) {
    absl::StrAppend(&text, "first cause: ", CauseOf(heard->error).message(), "\n");
  } else if (ends.empty() && !moment.failed) {
    absl::StrAppend(&text, "nobody waits too long: ", SecondsText(longest), " at most\n");
  } else if (ends.empty()) {
    absl::StrAppend(&text, "nobody waits for another worker\n");
  } else {
    const auto most =
        std::ranges::max_element(ends, {}, [](const auto& end) { return end.second.waiters; });
    absl::StrAppend(&text, "first cause: ", most->second.longest, "\n");
  }
  return text;
}

}  // namespace ringzero
