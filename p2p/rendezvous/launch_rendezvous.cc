// A map in the parent, questions and answers as records. In a question `code` is its number; in an
// answer `kind` is.
#include "p2p/rendezvous/launch_rendezvous.h"

#include <poll.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/deadline.h"

namespace ringzero {
namespace {

// The launching process answers at once unless it is stopped.
constexpr std::chrono::seconds kPutLimit(60);

Record Answer(int32_t question, const absl::Status& status, std::string text) {
  return {Record::Type::kAnswer, static_cast<int32_t>(status.code()), absl::StrCat(question),
          status.ok() ? std::move(text) : std::string(status.message())};
}

}  // namespace

bool LaunchStore::Takes(const Record& record) {
  return record.type == Record::Type::kPut || record.type == Record::Type::kGet;
}

void LaunchStore::Handle(WorkerId from, const Record& record) {
  const std::string& key = record.kind;
  const auto found = values_.find(key);
  if (record.type == Record::Type::kGet) {
    if (found == values_.end()) {
      waiting_[key].push_back({from, record.code});
    } else {
      answers_[from].push_back(Answer(record.code, absl::OkStatus(), found->second));
    }
    return;
  }
  absl::Status status;
  if (found != values_.end() && found->second != record.text) {
    status =
        absl::AlreadyExistsError(absl::StrCat("rendezvous launcher: '", key, "' was put before"));
  }
  answers_[from].push_back(Answer(record.code, status, ""));
  if (found != values_.end()) return;
  values_[key] = record.text;
  const auto waiting = waiting_.find(key);
  if (waiting == waiting_.end()) return;
  for (const auto& [worker, question] : waiting->second) {
    answers_[worker].push_back(Answer(question, absl::OkStatus(), record.text));
  }
  waiting_.erase(waiting);
}

std::vector<Record> LaunchStore::TakeAnswers(WorkerId to) {
  const auto found = answers_.find(to);
  if (found == answers_.end()) return {};
  std::vector<Record> answers = std::move(found->second);
  answers_.erase(found);
  return answers;
}

absl::Status LaunchRendezvous::Put(const std::string& key, const std::string& value) {
  if (value.size() > kMaxRendezvousValueBytes) {
    return absl::InvalidArgumentError(absl::StrCat("rendezvous launcher: '", key, "' has ",
                                                   value.size(), " bytes; ",
                                                   kMaxRendezvousValueBytes, " are the most"));
  }
  RZ_RETURN_IF_ERROR(ask_({Record::Type::kPut, ++question_, key, value}));
  RZ_ASSIGN_OR_RETURN(const Record answer, AwaitAnswer(kPutLimit));
  return absl::Status(static_cast<absl::StatusCode>(answer.code), answer.text);
}

absl::StatusOr<std::string> LaunchRendezvous::Get(const std::string& key,
                                                  std::chrono::milliseconds limit) {
  RZ_RETURN_IF_ERROR(ask_({Record::Type::kGet, ++question_, key, ""}));
  absl::StatusOr<Record> answer = AwaitAnswer(limit);
  if (answer.ok()) return std::move(answer->text);
  if (answer.status().code() != absl::StatusCode::kDeadlineExceeded) return answer.status();
  return absl::DeadlineExceededError(
      absl::StrCat("rendezvous launcher: nobody put '", key, "' within ", limit.count(), " ms"));
}

absl::StatusOr<Record> LaunchRendezvous::AwaitAnswer(std::chrono::milliseconds limit) {
  const Deadline deadline(limit);
  while (true) {
    const RecordReader::State state = reader_.Read(socket_, arrived_);
    for (Record& record : std::exchange(arrived_, {})) {
      if (record.kind == absl::StrCat(question_)) return std::move(record);
    }
    if (state == RecordReader::State::kClosed) {
      return absl::UnavailableError("rendezvous launcher: the launching process is gone");
    }
    if (deadline.over()) {
      return absl::DeadlineExceededError("rendezvous launcher: the launching process is silent");
    }
    RZ_ASSIGN_OR_RETURN(const bool waits, flush_());
    pollfd file = {socket_, static_cast<short>(waits ? POLLIN | POLLOUT : POLLIN), 0};
    poll(&file, 1, static_cast<int>(deadline.Look().count()));
  }
}

}  // namespace ringzero
