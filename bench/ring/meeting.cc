// One loop waits, whose turns sleep on a condition variable or poll. A text goes as one question
// after the other, each of them answered before the next.
#include "bench/ring/meeting.h"

#include <sched.h>

#include <optional>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

// How often a sleeper looks whether the transport still lives: a transport that ends does not
// notify a thread that expects no message.
constexpr std::chrono::milliseconds kLook(50);
// How long an idle worker that polls sleeps between two polls; peers count it as alive.
constexpr std::chrono::microseconds kNap(500);
constexpr int kTurnsPerCheck = 32;
constexpr int kTurnsPerLook = 4096;  // at the clock

constexpr size_t kPartBytes = kMaxTextBytes - 64;  // leaves room for "number last "

}  // namespace

absl::Status Waiting::Until(const std::string& what, Manner manner,
                            const std::function<bool()>& done) {
  Transport& transport = *options_.transport;
  const bool sleeps = options_.progress == ProgressMode::kThread, idle = manner == Manner::kIdle;
  const std::chrono::milliseconds limit = idle ? kWaitLimit : options_.limit;
  const auto deadline = Clock::now() + limit;
  bool moved = true;
  for (uint64_t turn = 1;; ++turn) {
    // When polling, `done` can change only if something moved, or outside of the transport.
    if (sleeps || moved || turn % kTurnsPerCheck == 0 || idle) {
      std::unique_lock<std::mutex> lock(mutex_);
      if (sleeps ? changed_.wait_for(lock, kLook, done) : done()) return absl::OkStatus();
    }
    if (!sleeps) moved = transport.Poll();
    if (sleeps || turn % kTurnsPerLook == 0 || idle) {
      const absl::Status ended = transport.status();
      if (!ended.ok()) return ended;
      if (Clock::now() >= deadline) {
        return absl::DeadlineExceededError(absl::StrCat(
            "worker ", transport.self().value, " waited ", limit.count(), " ms for ", what));
      }
    }
    if (sleeps || moved) continue;
    if (idle) {
      std::this_thread::sleep_for(kNap);
    } else if (options_.workers_per_core > 1) {
      sched_yield();
    }
  }
}

std::unique_ptr<Control> Control::Create(Waiting* waiting) {
  std::unique_ptr<Control> control(new Control(waiting));
  waiting->transport().AnswerWith(
      [inbox = control->inbox_, waiting](WorkerId from, const std::string& question) {
        const std::vector<std::string> words = absl::StrSplit(question, absl::MaxSplits(' ', 2));
        uint64_t number = 0;
        if (words.size() != 3 || !absl::SimpleAtoi(words[0], &number)) return std::string("what?");
        {
          const std::lock_guard<std::mutex> lock(waiting->mutex());
          Text& text = (*inbox)[{from.value, number}];
          text.so_far += words[2];
          text.complete = words[1] == "last";
        }
        waiting->Notify();
        return std::string("ok");
      });
  return control;
}

absl::Status Control::SendPart(WorkerId to, const std::string& what, const std::string& question) {
  using Answer = absl::StatusOr<std::string>;
  while (true) {
    // Shared: the answer may come after this function has given up.
    auto answer = std::make_shared<std::optional<Answer>>();
    RZ_RETURN_IF_ERROR(
        waiting_->transport().Ask(to, question, [answer, waiting = waiting_](Answer got) {
          {
            const std::lock_guard<std::mutex> lock(waiting->mutex());
            *answer = std::move(got);
          }
          waiting->Notify();
        }));
    RZ_RETURN_IF_ERROR(waiting_->Until(absl::StrCat("worker ", to.value, " to take \"", what, "\""),
                                       Manner::kBusy, [&answer] { return answer->has_value(); }));
    const std::lock_guard<std::mutex> lock(waiting_->mutex());
    // A worker leaves only when it has all that it will be told: so this part has arrived.
    if (absl::IsFailedPrecondition((*answer)->status())) return absl::OkStatus();
    RZ_ASSIGN_OR_RETURN(const std::string got, **answer);
    if (got == "ok") return absl::OkStatus();
    if (!got.empty()) {
      return Internal("worker ", to.value, " does not understand \"", what, "\"");
    }
    // The worker is there but does not answer yet (Transport::AnswerWith): it was just created.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

absl::Status Control::Send(WorkerId to, const std::string& what, const std::string& text) {
  size_t at = 0;
  do {
    const std::string part = text.substr(at, kPartBytes);
    at += part.size();
    RZ_RETURN_IF_ERROR(
        SendPart(to, what, absl::StrCat(number_, at >= text.size() ? " last " : " more ", part)));
  } while (at < text.size());
  return absl::OkStatus();
}

absl::StatusOr<std::string> Control::Receive(WorkerId from, const std::string& what,
                                             Manner manner) {
  const std::pair<int, uint64_t> place(from.value, number_);
  RZ_RETURN_IF_ERROR(waiting_->Until(absl::StrCat("\"", what, "\" of worker ", from.value), manner,
                                     [this, place] { return (*inbox_)[place].complete; }));
  const std::lock_guard<std::mutex> lock(waiting_->mutex());
  return std::move(inbox_->extract(place).mapped().so_far);
}

absl::StatusOr<std::vector<std::string>> Control::Gather(const std::string& what,
                                                         const std::string& text, Manner manner) {
  ++number_;
  if (waiting_->transport().self().value != 0) {
    RZ_RETURN_IF_ERROR(Send(WorkerId(0), what, text));
    return std::vector<std::string>();
  }
  std::vector<std::string> all = {text};
  for (int w = 1; w < waiting_->transport().workers(); ++w) {
    RZ_ASSIGN_OR_RETURN(std::string theirs, Receive(WorkerId(w), what, manner));
    all.push_back(std::move(theirs));
  }
  return all;
}

absl::StatusOr<std::string> Control::Tell(const std::string& what, const std::string& text,
                                          Manner manner) {
  ++number_;
  if (waiting_->transport().self().value != 0) return Receive(WorkerId(0), what, manner);
  for (int w = 1; w < waiting_->transport().workers(); ++w) {
    RZ_RETURN_IF_ERROR(Send(WorkerId(w), what, text));
  }
  return text;
}

absl::Status Control::Meet(const std::string& what, Manner manner) {
  RZ_RETURN_IF_ERROR(Gather(what, "", manner).status());
  return Tell(what, "", manner).status();
}

}  // namespace ringzero
