// Names of blocks and operands.
#include "sharding/program/block.h"

#include <array>

#include "absl/strings/str_cat.h"

namespace ringzero {
namespace {

constexpr std::array<const char*, kBlockKindCount> kBlockNames = {
    "V",  "MA", "P", "O",  "T",  "q", "nr", "K", "B", "S", "Z",  "G",  "bs", "R",
    "SN", "ls", "M", "RP", "RC", "c", "L",  "C", "D", "H", "HP", "tk", "ck"};
constexpr std::array<const char*, 3> kHowNames = {"r", "w", "x"};
constexpr std::array<const char*, kRoleCount> kRoleNames = {
    "parameters", "gradient",   "batch", "statistics", "snapshot", "token",  "clock",  "losses",
    "fold",       "sum",        "taken", "squares",    "norm",     "state",  "before", "made",
    "masters",    "prediction", "kept",  "saved",      "receipt",  "source", "target"};

}  // namespace

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

}  // namespace ringzero
