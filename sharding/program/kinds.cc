// The table of kinds.
#include "sharding/program/kinds.h"

#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

constexpr int kMany = std::numeric_limits<int>::max();

constexpr RoleRule kForwardRoles[] = {{Role::kParameters, "r", 0, kMany},
                                      {Role::kBatchStatistics, "w", 0, 1},
                                      {Role::kNorm, "r", 0, 1},
                                      {Role::kToken, "r", 0, 1},
                                      {Role::kClock, "w", 0, kMany}};
constexpr RoleRule kBackwardRoles[] = {{Role::kParameters, "r", 0, kMany},
                                       {Role::kGradient, "w", 0, 1},
                                       {Role::kToken, "r", 0, 1},
                                       {Role::kClock, "w", 0, kMany}};
constexpr RoleRule kEvaluateRoles[] = {{Role::kParameters, "r", 0, kMany},
                                       {Role::kSnapshot, "r", 0, 1}};
constexpr RoleRule kEndRoles[] = {{Role::kLosses, "w", 0, 1}};
constexpr RoleRule kCollectRoles[] = {
    {Role::kParameters, "r", 0, 1}, {Role::kSnapshot, "r", 0, 1}, {Role::kKept, "r", 0, 1}};
constexpr RoleRule kReceiveRoles[] = {{Role::kTarget, "w", 1, 1}};
constexpr RoleRule kSendRoles[] = {{Role::kSource, "r", 1, 1}};
// What gives a loan back waits for all who use it.
constexpr RoleRule kReturnRoles[] = {{Role::kSource, "w", 1, 1}};
constexpr RoleRule kAddRoles[] = {{Role::kGradient, "r", 1, 1}, {Role::kSum, "wx", 1, 1}};
constexpr RoleRule kUpdateRoles[] = {
    {Role::kSum, "xr", 1, 1},       {Role::kState, "x", 1, 1}, {Role::kStaged, "x", 0, 1},
    {Role::kBefore, "r", 0, 1},     {Role::kMade, "wx", 1, 1}, {Role::kMasters, "wx", 0, 1},
    {Role::kPrediction, "w", 0, 1}, {Role::kNorm, "r", 0, 1},  {Role::kSquares, "r", 0, 1}};
constexpr RoleRule kApplyRoles[] = {{Role::kBatchStatistics, "r", 1, 1},
                                    {Role::kStatistics, "x", 1, 1}};
constexpr RoleRule kSnapshotRoles[] = {{Role::kStatistics, "r", 1, 1},
                                       {Role::kSnapshot, "w", 1, 1}};
constexpr RoleRule kFoldRoles[] = {{Role::kLosses, "r", 1, 1}, {Role::kFold, "wx", 1, 1}};
constexpr RoleRule kReportRoles[] = {{Role::kFold, "r", 1, 1}};
constexpr RoleRule kKeepRoles[] = {{Role::kSum, "r", 0, 1},
                                   {Role::kState, "r", 0, 1},
                                   {Role::kTier, "r", 0, 1},
                                   {Role::kKept, "w", 1, 1}};
constexpr RoleRule kReleaseRoles[] = {{Role::kTarget, "w", 1, 1}};
constexpr RoleRule kSquaresRoles[] = {
    {Role::kSum, "r", 1, 1}, {Role::kSquares, "w", 1, 1}, {Role::kTaken, "w", 0, 1}};
constexpr RoleRule kNormRoles[] = {{Role::kSquares, "r", 0, kMany}, {Role::kNorm, "w", 1, 1}};
constexpr RoleRule kSaveRoles[] = {{Role::kSaved, "r", 1, kMany}, {Role::kReceipt, "wx", 1, 1}};
constexpr RoleRule kCommitRoles[] = {{Role::kReceipt, "r", 1, kMany}, {Role::kNorm, "r", 0, 1}};
constexpr RoleRule kFetchRoles[] = {{Role::kTier, "r", 1, 1}, {Role::kStaged, "w", 1, 1}};
constexpr RoleRule kStoreRoles[] = {{Role::kStaged, "r", 1, 1}, {Role::kTier, "w", 1, 1}};
// "x": the version is there already, and nothing moves; but what reads it waits for its word.
constexpr RoleRule kLoadRoles[] = {{Role::kSource, "r", 1, 1}, {Role::kTarget, "wx", 1, 1}};
constexpr RoleRule kUnloadRoles[] = {{Role::kSource, "r", 1, 1}, {Role::kTarget, "w", 1, 1}};

// In the order of OpKind.
constexpr std::array<Kind, kOpKindCount> kKinds = {{
    {"F", "stlv", "", Track::kCompute, Cost::kForward, kForwardRoles},
    {"B", "stlv", "", Track::kCompute, Cost::kBackward, kBackwardRoles},
    {"E", "stlv", "", Track::kCompute, Cost::kForward, kEvaluateRoles},
    {"End", "tl", "c", Track::kCompute, Cost::kLap, kEndRoles},
    {"Collect", "st", "cv", Track::kCompute, Cost::kNone, kCollectRoles},
    {"Recv", "", "", Track::kCopiesIn, Cost::kNone, kReceiveRoles},  // fields: by channel
    {"Send", "", "", Track::kCopiesOut, Cost::kMessage, kSendRoles},
    {"Add", "stl", "", Track::kSums, Cost::kAdd, kAddRoles},
    {"Update", "stv", "", Track::kUpdates, Cost::kUpdate, kUpdateRoles},
    {"Apply", "stl", "", Track::kSums, Cost::kNone, kApplyRoles},
    {"Snap", "st", "", Track::kSums, Cost::kNone, kSnapshotRoles},
    {"Fold", "tl", "c", Track::kSums, Cost::kNone, kFoldRoles},
    {"Report", "t", "c", Track::kSums, Cost::kNone, kReportRoles},
    {"Keep", "stc", "", Track::kSums, Cost::kNone, kKeepRoles},
    {"Release", "stv", "", Track::kCopiesIn, Cost::kNone, kReleaseRoles},
    {"Squares", "st", "", Track::kSums, Cost::kAdd, kSquaresRoles},  // as much memory as an Add
    {"Norm", "t", "", Track::kSums, Cost::kNone, kNormRoles},
    {"Save", "st", "c", Track::kDisk, Cost::kNone, kSaveRoles},
    {"Commit", "t", "", Track::kDisk, Cost::kNone, kCommitRoles},
    {"Fetch", "st", "", Track::kDisk, Cost::kNone, kFetchRoles},
    {"Store", "st", "", Track::kDisk, Cost::kNone, kStoreRoles},
    {"Load", "stv", "lc", Track::kDisk, Cost::kNone, kLoadRoles},
    {"Unload", "stv", "", Track::kDisk, Cost::kNone, kUnloadRoles},
}};

struct ChannelFields {
  std::string_view fields, optional;
};
// In the order of Channel.
constexpr std::array<ChannelFields, kChannelCount> kChannelFields = {{{"", ""},
                                                                      {"stlvc", ""},  // forward
                                                                      {"stlvc", ""},  // backward
                                                                      {"stlvc", ""},  // inject
                                                                      {"stlvc", ""},  // evaluation
                                                                      {"stl", ""},    // sum
                                                                      {"st", "l"},    // retire
                                                                      {"stl", ""},    // buffers
                                                                      {"st", ""},     // snapshots
                                                                      {"tl", "c"},    // metrics
                                                                      {"t", "c"},     // reports
                                                                      {"stlc", ""},   // token
                                                                      {"stvc", ""},   // collection
                                                                      {"stc", ""},    // states
                                                                      {"st", ""},     // finished
                                                                      {"t", "s"},     // norms
                                                                      {"st", ""},     // return
                                                                      {"stc", "l"},   // return_copy
                                                                      {"t", ""}}};    // receipts

bool Has(std::string_view letters, char letter) {
  return letters.find(letter) != std::string_view::npos;
}

char Letter(How how) { return ToString(how)[0]; }

std::string WrongField(const Op& op) {
  const bool message = IsMessage(op.kind);
  if (message != (op.channel != Channel::kNone) || message != (op.peer != kNoWorker)) {
    return message ? "lacks a channel or a peer" : "has a channel or a peer, but is no message";
  }
  const Kind& kind = KindOf(op.kind);
  const ChannelFields known = message ? kChannelFields[static_cast<size_t>(op.channel)]
                                      : ChannelFields{kind.fields, kind.optional};
  const std::pair<char, bool> fields[] = {{'s', op.stage != kNoStage},
                                          {'t', op.iteration != kNoIteration},
                                          {'l', op.lap != kNoLap},
                                          {'v', op.version != kNoVersion},
                                          {'c', op.copy != Copy::kNone}};
  for (const auto& [letter, there] : fields) {
    if (there && !Has(known.fields, letter) && !Has(known.optional, letter)) {
      return absl::StrCat("has a field ", std::string(1, letter), " that its kind does not have");
    }
    if (!there && Has(known.fields, letter)) {
      return absl::StrCat("lacks the field ", std::string(1, letter));
    }
  }
  return "";
}

std::string WrongOperand(const Instruction& instruction) {
  const bool returns = instruction.kind == OpKind::kSend && BringsBack(instruction.channel);
  const std::span<const RoleRule> roles =
      returns ? std::span<const RoleRule>(kReturnRoles) : KindOf(instruction.kind).roles;
  std::array<int, kRoleCount> counts{};
  for (const Use& use : instruction.uses) {
    const auto rule = std::ranges::find(roles, use.role, &RoleRule::role);
    if (rule == roles.end() || !Has(rule->how, Letter(use.how))) {
      return absl::StrCat("has an operand \"", ToString(use), "\" that its kind does not have");
    }
    ++counts[static_cast<size_t>(use.role)];
  }
  for (const RoleRule& rule : roles) {
    const int count = counts[static_cast<size_t>(rule.role)];
    if (count < rule.least || count > rule.most) {
      return absl::StrCat("has ", count, " operands \"", ToString(rule.role), "\"");
    }
  }
  return "";
}

}  // namespace

const Kind& KindOf(OpKind kind) { return kKinds[static_cast<size_t>(kind)]; }

absl::Status CheckInstruction(const Instruction& instruction) {
  std::string wrong = WrongField(instruction);
  if (wrong.empty()) wrong = WrongOperand(instruction);
  if (wrong.empty()) return absl::OkStatus();
  return FailedPrecondition("\"", ToString(static_cast<const Op&>(instruction)), "\" ", wrong);
}

}  // namespace ringzero
