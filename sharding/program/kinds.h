// Kinds: what there is to know of each kind of operation, in one table.
//
//   KindOf(OpKind::kAdd).name;                      // "Add"
//   KindOf(OpKind::kAdd).track;                     // Track::kSums
//   RZ_RETURN_IF_ERROR(CheckInstruction(add));      // its fields and operands are those of an Add
//
// The text of operations, the simulation and the trace read this table. A new kind of operation is
// a row here.
#ifndef RINGZERO_SHARDING_PROGRAM_KINDS_H_
#define RINGZERO_SHARDING_PROGRAM_KINDS_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "sharding/op.h"
#include "sharding/program/block.h"

namespace ringzero {

// What goes on at the same time on one worker. A track does one thing after the other; but in a
// prediction sums and updates never wait for a thread.
enum class Track : uint8_t { kCompute, kWaits, kCopiesIn, kCopiesOut, kSums, kUpdates, kDisk };
inline constexpr int kTrackCount = 7;

// What an operation takes by a plan's costs.
enum class Cost : uint8_t { kNone, kForward, kBackward, kAdd, kUpdate, kLap, kMessage };

// An operand: how it is used, "r", "w" or "x", or either of two; and how many there may be.
struct RoleRule {
  Role role;
  std::string_view how;
  int least;
  int most;
};

struct Kind {
  std::string_view name;
  // Letters as in the text of an operation: s, t, l, v; besides c: copy.
  std::string_view fields;    // that it has
  std::string_view optional;  // that it may have
  Track track;
  Cost cost;
  std::span<const RoleRule> roles;
};
const Kind& KindOf(OpKind kind);

// FailedPrecondition, naming the operation, for a field or an operand that its kind does not have,
// or that is missing.
absl::Status CheckInstruction(const Instruction& instruction);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_PROGRAM_KINDS_H_
