// Printing of operations, their operands and programs; parsing of operations.
#include "sharding/op.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "sharding/program/block.h"
#include "sharding/program/kinds.h"
#include "sharding/program/program.h"

namespace ringzero {
namespace {

constexpr std::array<const char*, kChannelCount> kChannelNames = {
    "none",     "forward",   "backward", "inject",      "evaluation", "sum",        "retire",
    "buffers",  "snapshots", "metrics",  "reports",     "token",      "collection", "states",
    "finished", "norms",     "return",   "return_copy", "receipts"};
constexpr std::array<const char*, 7> kCopyNames = {"none",    "fwd",  "bwd", "eval",
                                                   "collect", "grad", "opt"};

constexpr std::array<const char*, kBlockKindCount> kBlockNames = {
    "V",  "VF", "MA", "P",  "O",  "OT", "T",  "q", "nr", "K", "B", "S", "Z",  "G",  "bs", "R",
    "SN", "ls", "M",  "RP", "RC", "OS", "VR", "c", "L",  "C", "D", "H", "HP", "tk", "ck"};
constexpr std::array<const char*, 3> kHowNames = {"r", "w", "x"};
constexpr std::array<const char*, kRoleCount> kRoleNames = {
    "parameters", "gradient", "batch",   "statistics", "snapshot", "token", "clock",
    "losses",     "fold",     "sum",     "taken",      "squares",  "norm",  "state",
    "before",     "made",     "masters", "prediction", "kept",     "saved", "receipt",
    "tier",       "staged",   "source",  "target"};

// "F2" and "B2" read better than "F s2": the compute kinds carry their stage in the first word.
bool HasStageSuffix(OpKind kind) {
  return kind == OpKind::kForward || kind == OpKind::kBackward || kind == OpKind::kEvaluate;
}

template <size_t n>
int IndexOf(const std::array<const char*, n>& names, const std::string& word) {
  const auto at = std::find(names.begin(), names.end(), word);
  return at == names.end() ? -1 : static_cast<int>(at - names.begin());
}

int KindNamed(std::string_view word) {
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    if (word == KindOf(static_cast<OpKind>(kind)).name) return kind;
  }
  return -1;
}

bool ParseInt(const std::string& text, int* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

absl::Status ParseHead(const std::string& word, Op* op) {
  int kind = KindNamed(word);
  if (kind < 0 && word.size() > 1 && ParseInt(word.substr(1), &op->stage.value)) {
    kind = KindNamed(word.substr(0, 1));
    if (kind >= 0 && !HasStageSuffix(static_cast<OpKind>(kind))) kind = -1;
  }
  if (kind < 0) return InvalidArgument("\"", word, "\" is no kind of operation");
  op->kind = static_cast<OpKind>(kind);
  return absl::OkStatus();
}

absl::Status ParseField(const std::string& word, Op* op) {
  if (const int channel = IndexOf(kChannelNames, word); channel > 0) {
    op->channel = static_cast<Channel>(channel);
    return absl::OkStatus();
  }
  if (const int copy = IndexOf(kCopyNames, word); copy > 0) {
    op->copy = static_cast<Copy>(copy);
    return absl::OkStatus();
  }
  int value = 0;
  if (word.size() < 2 || !ParseInt(word.substr(1), &value)) {
    return InvalidArgument("\"", word, "\" is no field of an operation");
  }
  switch (word[0]) {
    case 's': op->stage = StageId(value); break;
    case 't': op->iteration = Iteration(value); break;
    case 'l': op->lap = Lap(value); break;
    case 'v': op->version = Version(value); break;
    case 'p':
      if (value < 0) return InvalidArgument("\"", word, "\" is below p0");
      op->version = Prediction(value);
      break;
    case 'w': op->peer = WorkerId(value); break;
    default: return InvalidArgument("\"", word, "\": fields begin with s, t, l, v, p or w");
  }
  return absl::OkStatus();
}

}  // namespace

std::string LabelText(Version v) {
  return absl::StrCat(IsPrediction(v) ? "p" : "", LabelNumber(v));
}

std::string ToString(OpKind kind) { return std::string(KindOf(kind).name); }
std::string ToString(Channel channel) { return kChannelNames[static_cast<size_t>(channel)]; }
std::string ToString(Copy copy) { return kCopyNames[static_cast<size_t>(copy)]; }

std::string ToString(const Op& op) {
  std::string text = ToString(op.kind);
  const bool suffix = HasStageSuffix(op.kind) && op.stage != kNoStage;
  if (suffix) absl::StrAppend(&text, op.stage.value);
  if (op.channel != Channel::kNone) absl::StrAppend(&text, " ", ToString(op.channel));
  if (op.copy != Copy::kNone) absl::StrAppend(&text, " ", ToString(op.copy));
  if (!suffix && op.stage != kNoStage) absl::StrAppend(&text, " s", op.stage.value);
  if (op.iteration != kNoIteration) absl::StrAppend(&text, " t", op.iteration.value);
  if (op.lap != kNoLap) absl::StrAppend(&text, " l", op.lap.value);
  if (op.version != kNoVersion) {
    absl::StrAppend(&text, IsPrediction(op.version) ? " " : " v", LabelText(op.version));
  }
  if (op.peer != kNoWorker) absl::StrAppend(&text, " w", op.peer.value);
  return text;
}

absl::StatusOr<Op> ParseOp(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  if (words.empty()) return absl::InvalidArgumentError("an operation is missing");
  Op op;
  RZ_RETURN_IF_ERROR(ParseHead(words[0], &op));
  for (size_t i = 1; i < words.size(); ++i) RZ_RETURN_IF_ERROR(ParseField(words[i], &op));
  return op;
}

bool IsCompute(OpKind kind) { return KindOf(kind).track == Track::kCompute; }

bool CarriesParameters(Channel channel) {
  return channel == Channel::kForwardCopy || channel == Channel::kBackwardCopy ||
         channel == Channel::kInject || channel == Channel::kEvaluation ||
         channel == Channel::kCollection;
}

bool BringsHeldCopies(Channel channel) {
  return CarriesParameters(channel) && channel != Channel::kCollection;
}

uint64_t MessageTag(const Op& op) {
  // 4 bits of copy, 16 of stage + 1, 16 of lap + 1, 28 of iteration + 1.
  return (uint64_t(op.copy) << 60) | (uint64_t(uint16_t(op.stage.value + 1)) << 44) |
         (uint64_t(uint16_t(op.lap.value + 1)) << 28) |
         (uint64_t(op.iteration.value + 1) & 0xfffffff);
}

Op MessageOp(Channel channel, uint64_t tag) {
  return {.kind = OpKind::kSend,
          .channel = channel,
          .copy = static_cast<Copy>((tag >> 60) % kCopyNames.size()),
          .stage = StageId(static_cast<int>((tag >> 44) & 0xffff) - 1),
          .iteration = Iteration(static_cast<int>(tag & 0xfffffff) - 1),
          .lap = Lap(static_cast<int>((tag >> 28) & 0xffff) - 1)};
}

std::string DescribeMessage(Channel channel, uint64_t tag) {
  return ToString(MessageOp(channel, tag)).substr(ToString(OpKind::kSend).size() + 1);
}

std::string ToString(How how) { return kHowNames[static_cast<size_t>(how)]; }
std::string ToString(Role role) { return kRoleNames[static_cast<size_t>(role)]; }

std::string ToString(const MemoryBlock& block) {
  std::string text = kBlockNames[static_cast<size_t>(block.kind)];
  if (block.channel != Channel::kNone) absl::StrAppend(&text, ".", ToString(block.channel));
  if (block.from != kNoWorker) absl::StrAppend(&text, ".w", block.from.value);
  if (block.copy != Copy::kNone) absl::StrAppend(&text, ".", ToString(block.copy));
  if (block.stage != kNoStage) absl::StrAppend(&text, ".s", block.stage.value);
  return absl::StrCat(text, ".", block.index);
}

std::string ToString(const Use& use) {
  return absl::StrCat(ToString(use.role), " ", ToString(use.how), " ", ToString(use.block));
}

std::string WithOperands(const Instruction& instruction) {
  std::string text = ToString(static_cast<const Op&>(instruction));
  if (instruction.loan) absl::StrAppend(&text, " loan");
  const char* separator = " | ";
  for (const Use& use : instruction.uses) {
    absl::StrAppend(&text, separator, ToString(use));
    separator = ", ";
  }
  return text;
}

std::string ToString(const Program& program) {
  std::string text = absl::StrCat("program worker ", program.worker.value, " iterations ",
                                  program.range.begin.value, " ", program.range.end.value, "\n");
  for (const Op& op : program.ops) absl::StrAppend(&text, ToString(op), "\n");
  return text;
}

}  // namespace ringzero
