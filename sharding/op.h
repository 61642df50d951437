// Op: one operation of a worker's program, a plain value that prints and parses back.
//
//   Op op{.kind = OpKind::kForward, .stage = StageId(2), .version = Version(4),
//         .iteration = Iteration(5), .lap = Lap(0)};
//   ToString(op);            // "F2 t5 l0 v4"
//   ParseOp("F2 t5 l0 v4");  // the same value
//
// Messages are pairs of kSend and kReceive on a channel (from, to, Channel), and are named by their
// *receiver's* use: iteration and lap are those in which the receiver needs them.
#ifndef RINGZERO_SHARDING_OP_H_
#define RINGZERO_SHARDING_OP_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"

namespace ringzero {

enum class OpKind : uint8_t {
  kForward,   // F: compute the forward of a stage with a version
  kBackward,  // B: its backward, with the same version
  kEvaluate,  // E: forward of an evaluation micro-batch
  kEnd,       // End: the micro-batch is over; its losses and metrics are known
  kCollect,   // Collect: show a part of a stage to whoever asked (a digest, a dump, a visitor)
  kReceive,   // Recv: take a message
  kSend,      // Send: pass one on
  kAdd,       // Add: local gradient into the sum (the first of an iteration: a copy)
  kUpdate,    // Update: the owner makes version t+1
  kApply,     // Apply: batch statistics into the running ones
  kSnapshot,  // Snap: keep the running statistics that belong to a version
  kFold,      // Fold: losses and metrics into the iteration's
  kReport,    // Report: worker 0 has an iteration's (or evaluation's) folded metrics
  kKeep,      // Keep: the owner copies the sum, the state or the masters that are collected
  kRelease,   // Release: a held copy has been read for the last time (stages 1 and 2 of ZeRO)
  kSquares,   // Squares: of the gradients in a complete sum, by its owner
  kNorm,      // Norm: the squares of all stages into the global norm of an iteration
  kSave,    // Save: write a stage of a version, or running statistics (copy: collection), to files
  kCommit,  // Commit: worker 0 makes what all have written a checkpoint
  kFetch,   // Fetch: the state of a stage from its tier file, for its next update
  kStore,   // Store: and back, as that update has left it
  kLoad,    // Load: a version that lies in a file, for what reads it next; or for its update
  kUnload,  // Unload: and what an update has made of it to its file
};

// Which FIFO between two workers a message takes.
enum class Channel : uint8_t {
  kNone = 0,
  kForwardCopy,   // "forward": parameters for forwards
  kBackwardCopy,  // "backward": parameters for backwards
  kInject,        // "inject": a copy from the owner: the label changes, or a later lap of dp begins
  kEvaluation,    // "evaluation": parameters for evaluation laps
  kSum,           // "sum": the travelling gradient sum
  kRetire,        // "retire": a complete sum to its owner; with a lap: that of the laps so far
  kBuffers,       // "buffers": running statistics
  kSnapshots,     // "snapshots": running statistics of an evaluated version
  kMetrics,       // "metrics": losses and metrics being folded
  kReports,       // "reports": folded ones, to worker 0
  kToken,         // "token": keeps the stagger
  kCollection,    // "collection": parameters for whoever collects
  kStates,        // "states": finished sums and optimizer states for whoever collects
  kFinished,      // "finished": a complete sum on its way to all workers (stage 0 of ZeRO)
  kNorms,         // "norms": a stage's squares to worker 0; without a stage: the norm from there
  kReturn,        // "return": the memory of a sum that was lent comes back; without payload
  kReturnCopy,    // "return_copy": that of a copy
  kReceipts,      // "receipts": what a worker has written of a version, to worker 0
};
inline constexpr int kChannelCount = static_cast<int>(Channel::kReceipts) + 1;
inline constexpr int kOpKindCount = static_cast<int>(OpKind::kUnload) + 1;

// Which traveller a copy of parameters belongs to, what a fold is of, or which part of a stage is
// collected: parameters with running statistics (kCollection; kNone in the Collect itself), the
// finished sum of the update (kGradient), the optimizer's state after it (kState).
enum class Copy : uint8_t {
  kNone,
  kForward,
  kBackward,
  kEvaluation,
  kCollection,
  kGradient,
  kState
};

inline constexpr StageId kNoStage{-1};
inline constexpr WorkerId kNoWorker{-1};
inline constexpr Version kNoVersion{-2};
inline constexpr Lap kNoLap{-1};
inline constexpr Iteration kNoIteration{-1};

// Labels of versions: θ_t, and the prediction of θ_t that stands in for it where it is not there in
// time (Plan::predict). It is a label like any other: different from all θ, read, relayed, injected
// and overwritten by its name.
//
//   Version v = Prediction(4);   // θ_3 + μ(θ_3 - θ_2), made by the update that makes θ_3
//   LabelText(v);                // "p4"; of Version(4): "4"

// Far above any number of updates; a prediction's label is this plus its t.
inline constexpr int kFirstPrediction = 1 << 30;
constexpr Version Prediction(int t) { return Version(kFirstPrediction + t); }
constexpr bool IsPrediction(Version v) { return v.value >= kFirstPrediction; }
// The t of θ_t or of its prediction.
constexpr int LabelNumber(Version v) {
  return IsPrediction(v) ? v.value - kFirstPrediction : v.value;
}
std::string LabelText(Version v);

struct Op {
  OpKind kind = OpKind::kEnd;
  Channel channel = Channel::kNone;  // kSend, kReceive
  Copy copy = Copy::kNone;           // parameters; kEvaluation also marks evaluation's folds
  StageId stage = kNoStage;
  Iteration iteration = kNoIteration;
  Lap lap = kNoLap;
  Version version = kNoVersion;  // the label that is read or, for kUpdate, made
  WorkerId peer = kNoWorker;     // kSend: to; kReceive: from
  auto operator<=>(const Op&) const = default;
};

std::string ToString(OpKind kind);
std::string ToString(Channel channel);
std::string ToString(Copy copy);

// Fields that are "none" are left out; every Op, however odd, parses back to itself.
std::string ToString(const Op& op);
// InvalidArgument that names the word that is wrong.
absl::StatusOr<Op> ParseOp(const std::string& text);

// True for what the computing thread does, in program order: F, B, E, End and Collect.
bool IsCompute(OpKind kind);
// True for the two ends of a message.
constexpr bool IsMessage(OpKind kind) { return kind == OpKind::kSend || kind == OpKind::kReceive; }
// True for channels whose messages are a stage's parameters.
bool CarriesParameters(Channel channel);
// True for those whose messages are the sum of a stage on its way to its owner.
constexpr bool CarriesSums(Channel channel) {
  return channel == Channel::kSum || channel == Channel::kRetire;
}

// True for words that bring back what was lent.
constexpr bool BringsBack(Channel channel) {
  return channel == Channel::kReturn || channel == Channel::kReturnCopy;
}

// True for those whose copies are held where copies are held (Plan::holds_copies).
bool BringsHeldCopies(Channel channel);

// The message's name on its channel: equal at both ends, different for any two messages alive at
// once.
uint64_t MessageTag(const Op& op);
// The other way: the kSend with the fields that a tag has (no version, no peer).
Op MessageOp(Channel channel, uint64_t tag);
// "sum s3 t5 l0".
std::string DescribeMessage(Channel channel, uint64_t tag);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_OP_H_
