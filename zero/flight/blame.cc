// Chains, circles, and the texts of questions and answers.
#include "zero/flight/blame.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/texts.h"

namespace ringzero {
namespace {

constexpr absl::string_view kAnything = "-";
constexpr absl::string_view kNobody = "-";
constexpr size_t kMaxLinks = 64;  // answers are of different moments: a chain might never end

absl::Status Unreadable(absl::string_view text) {
  return InvalidArgument("cannot be read: \"", text, "\"");
}

std::string WriteKey(const std::optional<MessageKey>& key) {
  if (!key.has_value()) return std::string(kAnything);
  return absl::StrCat(static_cast<int>(key->kind), ".", key->tag);
}

absl::StatusOr<std::optional<MessageKey>> ParseKey(absl::string_view text) {
  if (text == kAnything) return std::optional<MessageKey>();
  const auto parts = SplitOnce(text, ".");
  MessageKey key;
  int kind = 0;
  if (!absl::SimpleAtoi(parts.first, &kind) || !absl::SimpleAtoi(parts.second, &key.tag) ||
      kind < 0 || kind >= kMaxMessageKinds) {
    return Unreadable(text);
  }
  key.kind = static_cast<uint8_t>(kind);
  return std::optional<MessageKey>(key);
}

}  // namespace

std::string WriteQuestion(const BlameQuestion& question) {
  return absl::StrCat(question.waiter.value, " ", WriteKey(question.message));
}

absl::StatusOr<BlameQuestion> ParseQuestion(const std::string& text) {
  const auto parts = SplitOnce(text, " ");
  int waiter = 0;
  if (!absl::SimpleAtoi(parts.first, &waiter) || waiter < 0) return Unreadable(text);
  BlameQuestion question{.waiter = WorkerId(waiter)};
  RZ_ASSIGN_OR_RETURN(question.message, ParseKey(parts.second));
  return question;
}

std::string WriteAnswer(const BlameAnswer& answer) {
  const std::string next =
      answer.next.has_value() ? absl::StrCat(answer.next->value) : std::string(kNobody);
  return absl::StrCat(next, " ", WriteKey(answer.message), " ", answer.says);
}

absl::StatusOr<BlameAnswer> ParseAnswer(const std::string& text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits(' ', 2));
  if (parts.size() != 3 || parts[2].empty()) return Unreadable(text);
  BlameAnswer answer{.says = std::string(parts[2])};
  if (parts[0] != kNobody) {
    int worker = 0;
    if (!absl::SimpleAtoi(parts[0], &worker) || worker < 0) return Unreadable(text);
    answer.next = WorkerId(worker);
  }
  RZ_ASSIGN_OR_RETURN(answer.message, ParseKey(parts[1]));
  return answer;
}

std::string SecondsText(std::chrono::steady_clock::duration time) {
  const double seconds = std::chrono::duration<double>(time).count();
  return absl::StrFormat("%.*f s", seconds < 9.95 ? 1 : 0, seconds);
}

void BlameChain::Add(WorkerId worker, BlameAnswer answer) {
  links_.push_back({worker, std::move(answer)});
}

int BlameChain::CircleStart() const {
  if (links_.empty() || !links_.back().answer.next.has_value()) return -1;
  const Link& last = links_.back();
  // An earlier link with the same question: it would lead here again.
  for (size_t i = 0; i + 1 < links_.size(); ++i) {
    const Link& earlier = links_[i];
    if (earlier.worker == last.worker && earlier.answer.next == last.answer.next &&
        earlier.answer.message == last.answer.message) {
      return static_cast<int>(i) + 1;
    }
  }
  return -1;
}

std::optional<BlameStep> BlameChain::next() const {
  if (links_.empty() || links_.size() >= kMaxLinks || CircleStart() >= 0) return std::nullopt;
  const Link& last = links_.back();
  if (!last.answer.next.has_value()) return std::nullopt;
  return BlameStep{*last.answer.next, {last.worker, last.answer.message}};
}

std::string BlameChain::Describe() const {
  std::string text;
  const int circle = CircleStart();
  if (circle >= 0) {
    text = "workers wait in a circle: ";
    for (size_t i = circle; i < links_.size(); ++i) {
      absl::StrAppend(&text, "worker ", links_[i].worker.value, " ", links_[i].answer.says, ", ");
    }
    absl::StrAppend(&text, "which is where it began");
  }
  const size_t end = circle >= 0 ? static_cast<size_t>(circle) : links_.size();
  for (size_t i = end; i-- > 0;) {
    absl::StrAppend(&text, text.empty() ? "" : ", so ", "worker ", links_[i].worker.value, " ",
                    links_[i].answer.says);
  }
  return text;
}

}  // namespace ringzero
