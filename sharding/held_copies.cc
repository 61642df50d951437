// Local checks of the lives of held copies.
#include "sharding/held_copies.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sharding/label.h"

namespace ringzero {
namespace {

class HeldCopyChecker {
 public:
  HeldCopyChecker(const Plan& plan, const LinkedRing& ring) : plan_(plan), ring_(ring) {
    for (int i = 0; i < ring.count(); ++i) {
      const Op& op = ring.op(i);
      if (op.kind != OpKind::kRelease) continue;
      releases_[{ring.worker_of(i), op.stage.value, op.version.value}] = i;
    }
  }

  absl::Status Check() const {
    for (int i = 0; i < ring_.count(); ++i) {
      if (op(i).kind == OpKind::kRelease) RZ_RETURN_IF_ERROR(CheckRelease(i));
      const bool sum = op(i).channel == Channel::kSum || op(i).channel == Channel::kRetire;
      if (op(i).kind == OpKind::kSend && sum) RZ_RETURN_IF_ERROR(CheckLetGo(i));
      if (!IsHolder(i)) continue;
      for (const Read& read : ring_.ops[i].reads) {
        if (!read.owned) RZ_RETURN_IF_ERROR(CheckRead(i, read));
      }
    }
    return absl::OkStatus();
  }

 private:
  const Op& op(int64_t i) const { return ring_.op(static_cast<int>(i)); }
  absl::Status Wrong(int i, const std::string& what) const {
    return FailedPrecondition(ring_.Describe(i), ": ", what);
  }
  template <typename Predicate>
  bool WaitsFor(int i, Predicate predicate) const {
    const std::vector<int64_t>& after = ring_.ops[i].after;
    return std::any_of(after.begin(), after.end(), predicate);
  }

  // Whether operation i reads a copy that stays; a collection has one of its own.
  bool IsHolder(int i) const {
    return op(i).kind != OpKind::kRelease && op(i).kind != OpKind::kCollect &&
           op(i).channel != Channel::kCollection;
  }
  bool Brings(const Read& read) const {
    return read.held && read.op >= 0 && op(read.op).kind == OpKind::kReceive &&
           CarriesParameters(op(read.op).channel) && op(read.op).copy != Copy::kCollection &&
           op(read.op).stage == read.stage && op(read.op).version == read.version;
  }

  // A copy that is here, of the right version, and that is let go of after this use.
  absl::Status CheckRead(int i, const Read& read) const {
    const int worker = ring_.worker_of(i);
    if (!Brings(read) || read.op < ring_.begin[worker] || read.op >= i) {
      return Wrong(i, absl::StrCat("does not read a held copy of stage ", read.stage.value));
    }
    const auto release = releases_.find({worker, read.stage.value, read.version.value});
    if (release == releases_.end()) return Wrong(i, "reads a copy that is never let go of");
    // Computing is in order: who waits for a later one waits for this.
    const bool computes = IsCompute(op(i).kind);
    const auto used = [&](int64_t after) {
      return after == i || (computes && after > i && IsCompute(op(after).kind));
    };
    if (WaitsFor(release->second, used)) return absl::OkStatus();
    return Wrong(release->second, absl::StrCat("does not wait for ", ring_.Describe(i)));
  }

  absl::Status CheckRelease(int i) const {
    const std::vector<Read>& reads = ring_.ops[i].reads;
    const bool right = reads.size() == 1 && Brings(reads[0]) && reads[0].stage == op(i).stage &&
                       reads[0].version == op(i).version;
    return right ? absl::OkStatus() : Wrong(i, "lets go of another copy");
  }

  // Whoever hands its last part of a sum on holds nothing that the update will overwrite.
  absl::Status CheckLetGo(int i) const {
    const bool last_lap = op(i).channel == Channel::kRetire ||
                          (op(i).lap.value == plan_.laps - 1 && op(i).peer.value != 0);
    if (!last_lap) return absl::OkStatus();
    const int t = op(i).iteration.value;
    std::vector<Version> overwritten = {Version(plan_.rule == Rule::kDp ? t : t - 1)};
    if (plan_.predict) overwritten = {Version(t), Prediction(t)};
    for (const Version v : overwritten) {
      const auto release = releases_.find({ring_.worker_of(i), op(i).stage.value, v.value});
      if (release == releases_.end()) continue;
      const auto let_go = [&](int64_t after) { return after == release->second; };
      if (WaitsFor(i, let_go)) continue;
      return Wrong(i, absl::StrCat("hands its sum on while it holds version ", LabelText(v)));
    }
    return absl::OkStatus();
  }

  const Plan& plan_;
  const LinkedRing& ring_;
  std::map<std::tuple<int, int, int>, int> releases_;  // (worker, stage, version)
};

}  // namespace

absl::Status CheckHeldCopies(const Plan& plan, const LinkedRing& ring) {
  if (!plan.holds_copies()) return absl::OkStatus();
  return HeldCopyChecker(plan, ring).Check();
}

}  // namespace ringzero
