// What every worker puts under "agreement/<worker>", and the comparison with worker 0's.
#include "p2p/rendezvous/agreement.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/sha256.h"
#include "base/status.h"
#include "p2p/deadline.h"
#include "p2p/failure.h"

namespace ringzero {
namespace {

constexpr size_t kShownBytes = 16 << 10;    // of one section
constexpr size_t kWrittenBytes = 60 << 10;  // of all
constexpr absl::string_view kAgree = "agree";
constexpr absl::string_view kDisagree = "disagree";

struct Section {
  std::string name;
  std::string digest;
  std::string text;  // the beginning, maybe nothing of it
};

struct Statement {
  absl::Status failed;  // not OK: it disagrees
  std::vector<Section> sections;
};

std::string DigestOf(const std::string& text) {
  Sha256 digest;
  digest.Update(std::as_bytes(std::span(text)));
  return digest.FinishHex();
}

std::string AgreementKey(int worker) { return absl::StrCat("agreement/", worker); }

// "5:hello"
void AppendText(absl::string_view text, std::string& out) {
  absl::StrAppend(&out, text.size(), ":", text);
}

std::optional<std::string> TakeText(absl::string_view& in) {
  const size_t colon = in.find(':');
  size_t size = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(in.substr(0, colon), &size) ||
      size > in.size() - colon - 1) {
    return std::nullopt;
  }
  std::string text(in.substr(colon + 1, size));
  in.remove_prefix(colon + 1 + size);
  return text;
}

std::string Write(const std::vector<AgreementSection>& sections) {
  std::string out;
  AppendText(kAgree, out);
  for (const AgreementSection& section : sections) {
    AppendText(section.name, out);
    AppendText(DigestOf(section.text), out);
    const size_t room = out.size() < kWrittenBytes ? kWrittenBytes - out.size() : 0;
    AppendText(absl::string_view(section.text).substr(0, std::min(kShownBytes, room)), out);
  }
  return out;
}

absl::StatusOr<Statement> Read(const std::string& text, int worker) {
  const auto garbled = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", worker, "'s statement before the run cannot be read"));
  };
  Statement statement;
  absl::string_view in = text;
  const std::optional<std::string> kind = TakeText(in);
  if (kind == kDisagree) {
    const std::optional<std::string> code = TakeText(in);
    const std::optional<std::string> words = TakeText(in);
    int number = 0;
    if (!code.has_value() || !words.has_value() || !absl::SimpleAtoi(*code, &number) ||
        number <= 0 || number > 16) {
      return garbled();
    }
    statement.failed = absl::Status(static_cast<absl::StatusCode>(number), *words);
    return statement;
  }
  if (kind != kAgree) return garbled();
  while (!in.empty()) {
    std::optional<std::string> name = TakeText(in);
    std::optional<std::string> digest = TakeText(in);
    std::optional<std::string> shown = TakeText(in);
    if (!name.has_value() || !digest.has_value() || !shown.has_value()) return garbled();
    statement.sections.push_back({*std::move(name), *std::move(digest), *std::move(shown)});
  }
  return statement;
}

// "cyclic.slack" and "0" of "cyclic.slack = 0".
std::pair<absl::string_view, absl::string_view> Split(absl::string_view line) {
  const size_t at = line.find(" = ");
  if (at == absl::string_view::npos) return {"", line};
  return {line.substr(0, at), line.substr(at + 3)};
}

using Lines = std::vector<absl::string_view>;

const absl::string_view* Find(const Lines& lines, absl::string_view name) {
  const auto found = std::find_if(lines.begin(), lines.end(), [&](absl::string_view line) {
    return !name.empty() && Split(line).first == name;
  });
  return found == lines.end() ? nullptr : &*found;
}

// What differs first, in words; `mine` is worker 0's.
std::string Difference(int worker, const std::string& theirs, const std::string& mine) {
  const Lines their_lines = absl::StrSplit(theirs, '\n', absl::SkipEmpty());
  const Lines my_lines = absl::StrSplit(mine, '\n', absl::SkipEmpty());
  const std::string who = absl::StrCat("worker ", worker);
  for (const absl::string_view line : their_lines) {
    const auto [name, value] = Split(line);
    if (name.empty()) continue;
    const absl::string_view* other = Find(my_lines, name);
    if (other == nullptr) return absl::StrCat(who, " has ", line, ", worker 0 has no such value");
    if (*other != line) {
      return absl::StrCat(who, " has ", line, ", worker 0 has ", Split(*other).second);
    }
  }
  for (const absl::string_view line : my_lines) {
    const absl::string_view name = Split(line).first;
    if (name.empty() || Find(their_lines, name) != nullptr) continue;
    return absl::StrCat(who, " has no ", name, ", worker 0 has ", line);
  }
  for (size_t i = 0; i < std::min(their_lines.size(), my_lines.size()); ++i) {
    if (their_lines[i] == my_lines[i]) continue;
    return absl::StrCat(who, " has in line ", i + 1, " \"", their_lines[i], "\", worker 0 has \"",
                        my_lines[i], "\"");
  }
  return absl::StrCat(who, "'s differs from worker 0's");
}

absl::Status Compare(int worker, const Statement& theirs, const Statement& mine) {
  const auto names = [](const Statement& statement) {
    std::vector<std::string> list;
    for (const Section& section : statement.sections) list.push_back(section.name);
    return list;
  };
  if (names(theirs) != names(mine)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", worker, " compares other things than worker 0: another version of ringzero?"));
  }
  for (size_t i = 0; i < mine.sections.size(); ++i) {
    const Section& section = theirs.sections[i];
    if (section.digest == mine.sections[i].digest) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        Difference(worker, section.text, mine.sections[i].text), " (", section.name, ")"));
  }
  return absl::OkStatus();
}

absl::Status CompareAll(const JobSeat& seat, const std::vector<AgreementSection>& sections) {
  RZ_RETURN_IF_ERROR(seat.rendezvous->Put(AgreementKey(seat.self.value), Write(sections)));
  const Deadline deadline(seat.join_limit);
  std::vector<Statement> statements;
  for (int w = 0; w < seat.workers; ++w) {
    const absl::StatusOr<std::string> text = seat.rendezvous->Get(AgreementKey(w), deadline.Left());
    if (!text.ok()) {
      return WhileWaiting(text.status(), absl::StrCat("worker ", w, " has stated nothing"));
    }
    RZ_ASSIGN_OR_RETURN(Statement statement, Read(*text, w));
    if (!statement.failed.ok()) return ReportedBy(WorkerId(w), statement.failed);
    statements.push_back(std::move(statement));
  }
  for (int w = 1; w < seat.workers; ++w) {
    RZ_RETURN_IF_ERROR(Compare(w, statements[w], statements[0]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Agree(const JobSeat& seat, const std::vector<AgreementSection>& sections) {
  if (seat.workers == 1) return absl::OkStatus();
  absl::Status agreed = CompareAll(seat, sections);
  if (!agreed.ok()) seat.rendezvous->Leave(agreed);  // who is not that far hears the cause
  return agreed;
}

void Disagree(const JobSeat& seat, const absl::Status& why) {
  if (seat.workers == 1 || why.ok()) return;
  std::string out;
  AppendText(kDisagree, out);
  AppendText(absl::StrCat(static_cast<int>(why.code())), out);
  AppendText(why.message().substr(0, kShownBytes), out);
  // Who cannot be told finds out by waiting.
  seat.rendezvous->Put(AgreementKey(seat.self.value), out).IgnoreError();
  seat.rendezvous->Leave(why);
}

}  // namespace ringzero
