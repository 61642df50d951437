// Chains through files, and what stands at their ends.
#include "zero/flight_blame.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "p2p/failure.h"
#include "zero/flight_clock.h"

namespace ringzero {
namespace {

class Records {
 public:
  explicit Records(std::span<const FlightRecord> records) : records_(records) {}

  const FlightRecord* Find(WorkerId worker) const {
    for (const FlightRecord& record : records_) {
      if (record.worker == worker) return &record;
    }
    return nullptr;
  }

  // As the engine answers its peers, from what it wrote.
  BlameAnswer AnswerTo(WorkerId worker, const BlameQuestion& question) const {
    const FlightRecord* record = Find(worker);
    if (record == nullptr) return {.says = "left no record: it died, or could not write one"};
    if (!record->has_waits) return {.says = "left no waits in its record"};
    if (!question.message.has_value()) return record->now;
    const MessageKey key = *question.message;
    const bool update = key.kind == kUpdateKind;
    const Op named = MessageOp(static_cast<Channel>(key.kind), key.tag);
    for (const OpenOperation& open : record->open) {
      const bool this_update = update && open.op.kind == OpKind::kUpdate &&
                               open.op.stage == named.stage && open.op.iteration == named.iteration;
      const bool this_send =
          !update && open.op.kind == OpKind::kSend && open.op.peer == question.waiter &&
          static_cast<uint8_t>(open.op.channel) == key.kind && MessageTag(open.op) == key.tag;
      if (this_update || this_send) return open.why;
    }
    if (IsFrom(record->appended, named)) return record->now;
    if (update) return {.says = absl::StrCat("has made \"", ToString(UpdateOf(named)), "\"")};
    for (const Undelivered& each : record->undelivered) {
      if (each.to != question.waiter || each.key != key) continue;
      return {.says = "has sent that message, but it waits for a free slot there",
              .next = question.waiter};
    }
    return {.says = "has sent that message, but it did not arrive"};
  }

  // From `worker` to the end of its waits.
  BlameChain ChainFrom(const FlightRecord& record, WorkerId* end) const {
    BlameChain chain;
    chain.Add(record.worker, record.now);
    *end = record.worker;
    while (const std::optional<BlameStep> step = chain.next()) {
      chain.Add(step->worker, AnswerTo(step->worker, step->question));
      *end = step->worker;
    }
    return chain;
  }

 private:
  static Op UpdateOf(const Op& named) {
    return {.kind = OpKind::kUpdate, .stage = named.stage, .iteration = named.iteration};
  }
  std::span<const FlightRecord> records_;
};

std::string LastEnd(const FlightRecord& record) {
  for (auto event = record.events.rbegin(); event != record.events.rend(); ++event) {
    if (event->kind != EventKind::kEnd) continue;
    const std::chrono::nanoseconds ago(record.time_ns - event->time);
    return absl::StrCat("; the last that ended, ", SecondsText(ago), " before, was \"",
                        ToString(event->op), "\"");
  }
  return "";
}

struct Failures {
  const FlightRecord* first = nullptr;      // null: none
  std::vector<const FlightRecord*> beside;  // by clocks that cannot be compared with its own
};

// The error that is not another worker's, if there is one: of several the first by time. Where
// clocks cannot be compared, that of the lowest worker, and the others beside it.
Failures FirstToFail(std::span<const FlightRecord> records) {
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
const FlightRecord* WhoHeardOfADeath(std::span<const FlightRecord> records, WorkerId* dead) {
  const Records all(records);
  for (const FlightRecord& record : records) {
    if (record.error.code() != absl::StatusCode::kUnavailable) continue;
    const absl::Status cause = CauseOf(record.error);
    absl::string_view words = cause.message();
    if (!absl::ConsumePrefix(&words, "worker ")) continue;
    if (!absl::SimpleAtoi(words.substr(0, words.find(' ')), &dead->value)) continue;
    if (all.Find(*dead) == nullptr) return &record;
  }
  return nullptr;
}

std::string Missing(std::span<const FlightRecord> records) {
  std::vector<std::string> missing;
  const Records all(records);
  for (int w = 0; w < records[0].workers; ++w) {
    if (all.Find(WorkerId(w)) == nullptr) missing.push_back(absl::StrCat("worker ", w));
  }
  if (missing.empty()) return "";
  return absl::StrCat("no record of ", absl::StrJoin(missing, ", "), "\n");
}

}  // namespace

FlightBlame BlameFlights(std::span<const FlightRecord> records) {
  const Records all(records);
  FlightBlame blame;
  std::string& text = blame.text;
  for (const FlightRecord& record : records) {
    absl::StrAppend(&text, "worker ", record.worker.value, " ",
                    record.has_waits ? record.now.says : "left no waits", LastEnd(record), "\n");
    absl::StrAppend(&text, "  written because ", record.why, "\n");
  }
  absl::StrAppend(&text, Missing(records));

  struct End {
    int waiters = 0;
    std::string longest;
    bool circle = false;
  };
  std::map<int, End> ends;
  for (const FlightRecord& record : records) {
    if (!record.has_waits || !record.now.next.has_value()) continue;
    WorkerId last{0};
    const BlameChain chain = all.ChainFrom(record, &last);
    End& end = ends[last.value];
    ++end.waiters;
    std::string words = chain.Describe();
    end.circle = end.circle || words.starts_with("workers wait in a circle");
    if (words.size() > end.longest.size()) end.longest = std::move(words);
  }
  if (const Failures failures = FirstToFail(records); failures.first != nullptr) {
    const FlightRecord& failed = *failures.first;
    if (failures.beside.empty()) blame.first_cause = failed.worker;
    absl::StrAppend(&text, "first cause: ", ReportedBy(failed.worker, failed.error).message(), "\n",
                    Beside(failures));
  } else if (WorkerId dead; const FlightRecord* heard = WhoHeardOfADeath(records, &dead)) {
    blame.first_cause = dead;
    absl::StrAppend(&text, "first cause: ", CauseOf(heard->error).message(), "\n");
  } else if (ends.empty()) {
    absl::StrAppend(&text, "nobody waits for another worker\n");
  } else {
    const auto most = std::max_element(ends.begin(), ends.end(), [](const auto& a, const auto& b) {
      return a.second.waiters < b.second.waiters;
    });
    if (!most->second.circle) blame.first_cause = WorkerId(most->first);
    absl::StrAppend(&text, "first cause: ", most->second.longest, "\n");
  }
  return blame;
}

}  // namespace ringzero
