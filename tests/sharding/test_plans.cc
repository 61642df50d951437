// Plans from a few words, pairwise combinations, and the oracle.
#include "tests/sharding/test_plans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "sharding/check/verify.h"
#include "sharding/check/wait_graph.h"
#include "sharding/program/kinds.h"
#include "sharding/program/operands.h"
#include "sharding/rules/partition.h"
#include "sharding/rules/schedule.h"

namespace ringzero {

PlanShape Shape(const std::string& words) {
  PlanShape shape;
  const std::map<std::string, int PlanShape::*> numbers = {
      {"zero", &PlanShape::zero_stage},
      {"laps", &PlanShape::laps},
      {"slack", &PlanShape::slack},
      {"iterations", &PlanShape::iterations},
      {"first_iteration", &PlanShape::first_iteration},
      {"warmup_updates", &PlanShape::warmup_updates},
      {"evaluate", &PlanShape::evaluate_every},
      {"evaluation_laps", &PlanShape::evaluation_laps},
      {"collect", &PlanShape::collect_every},
      {"save", &PlanShape::save_every},
      {"collector", &PlanShape::collector},
      {"retain", &PlanShape::retain},
      {"pending", &PlanShape::pending},
      {"hosts", &PlanShape::hosts}};
  const std::map<std::string, bool PlanShape::*> flags = {
      {"stagger", &PlanShape::stagger},       {"predict", &PlanShape::predict},
      {"statistics", &PlanShape::statistics}, {"tied", &PlanShape::tied},
      {"strict", &PlanShape::strict},         {"skip_overflows", &PlanShape::skip_overflows},
      {"masters", &PlanShape::masters},       {"streams", &PlanShape::streams},
      {"parameters", &PlanShape::parameters}};
  const std::map<std::string, std::function<void()>> choices = {
      {"dp", [&] { shape.rule = Rule::kDp; }},
      {"one_host", [&] { shape.hosts = 1; }},
      {"cdp_v1", [&] { shape.rule = Rule::kCdpV1; }},
      {"cdp_v2", [&] { shape.rule = Rule::kCdpV2; }},
      {"frozen_prefix", [&] { shape.frozen = Frozen::kPrefix; }},
      {"frozen_middle", [&] { shape.frozen = Frozen::kMiddle; }},
      {"random_owners", [&] { shape.owners = Owners::kRandom; }},
      {"owners_last", [&] { shape.owners = Owners::kAllLast; }},
      {"owners_first", [&] { shape.owners = Owners::kAllFirst; }},
      {"backward_twice", [&] { shape.costs = Costs::kBackwardTwice; }},
      {"random_costs", [&] { shape.costs = Costs::kRandom; }},
      {"clip_exact", [&] { shape.clipping = Clipping::kExact; }},
      {"clip_per_stage", [&] { shape.clipping = Clipping::kPerStage; }},
      {"clip_previous", [&] { shape.clipping = Clipping::kPrevious; }}};
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(words, ' '))) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
    const auto& [name, value] = parts;
    int number = 0;
    if (std::sscanf(word.c_str(), "%dx%d", &shape.workers, &shape.stages) == 2) continue;
    if (name == "versions") {
      for (const absl::string_view each : absl::StrSplit(value, ',')) {
        if (absl::SimpleAtoi(each, &number)) shape.collect_versions.push_back(number);
      }
    } else if (numbers.contains(name) && absl::SimpleAtoi(value, &number)) {
      shape.*numbers.at(name) = number;
    } else if (flags.contains(word)) {
      shape.*flags.at(word) = true;
    } else if (choices.contains(word)) {
      choices.at(word)();
    } else {
      ADD_FAILURE() << "no word of a shape: " << word;
    }
  }
  return shape;
}

Plan MakeTestPlan(const PlanShape& shape) {
  std::mt19937_64 random(shape.seed);
  Plan plan;
  plan.workers = shape.workers;
  plan.zero_stage = shape.zero_stage;
  plan.laps = shape.laps;
  plan.hosts.resize(static_cast<size_t>(std::min(shape.hosts, shape.workers)));
  for (int w = 0; w < shape.workers && shape.hosts > 0; ++w) {
    ++plan.hosts[w * plan.hosts.size() / shape.workers];
  }
  plan.rule = shape.rule;
  plan.slack = shape.slack;
  plan.pending = shape.pending;
  plan.stagger = shape.stagger;
  plan.predict = shape.predict;
  plan.retain = std::min(shape.retain, shape.stages);
  plan.iterations = shape.iterations;
  plan.first_iteration = shape.first_iteration;
  if (shape.rule != Rule::kDp)
    plan.warmup_updates = std::min(shape.warmup_updates, shape.iterations);
  plan.clipping = shape.clipping;
  plan.skip_overflows = shape.skip_overflows;
  if (plan.skip_overflows && plan.clipping == Clipping::kPrevious) plan.clipping = Clipping::kExact;
  const bool strict = shape.strict || plan.skip_overflows || shape.clipping == Clipping::kExact;
  plan.strict = strict && shape.rule == Rule::kCdpV2;
  plan.evaluation = {.every = shape.evaluate_every,
                     .laps = shape.evaluation_laps,
                     .versions = shape.evaluate_versions};
  plan.checkpoint = {.every = shape.save_every, .on_request = shape.requests};
  plan.collection = {.every = shape.collect_every,
                     .versions = shape.collect_versions,
                     .worker = WorkerId(shape.collector),
                     .on_request = shape.requests,
                     .parameters_only = shape.parameters_only};
  plan.requests = shape.requests;
  if (shape.streams) plan.staging_bytes = 4096;
  if (shape.parameters) plan.resident_slots = 3 - static_cast<int>(shape.seed % 2);
  const bool collects = plan.collection.any();
  for (int j = 0; j < shape.stages; ++j) {
    StagePlan stage;
    stage.name = absl::StrCat("stage", j);
    stage.first_layer = j;
    stage.end_layer = j + 1;
    stage.parameter_bytes = 64 * (1 + static_cast<int64_t>(random() % 7));
    stage.sum_bytes = stage.parameter_bytes + 64;
    if (shape.masters) stage.master_bytes = 2 * stage.parameter_bytes;
    stage.buffer_bytes = shape.statistics && j > 0 ? 64 : 0;
    // Plain SGD has no state to show in one of the stages.
    stage.state_bytes = collects && j != 1 ? 2 * stage.parameter_bytes : 0;
    if (shape.costs == Costs::kBackwardTwice) stage.backward_cost = 2;
    if (shape.costs == Costs::kRandom) {
      stage.forward_cost = 1 + static_cast<int64_t>(random() % 9);
      stage.backward_cost = 1 + static_cast<int64_t>(random() % 19);
    }
    const bool prefix =
        shape.frozen == Frozen::kPrefix && j <= (shape.stages - 1) / 2 && j + 1 < shape.stages;
    const bool middle = shape.frozen == Frozen::kMiddle && j == shape.stages / 2;
    if (prefix || middle) stage.sum_bytes = 0;
    if (prefix) stage.has_backward = false;
    if (shape.streams && j % 2 == 0) stage.streamed_bytes = 2 * stage.sum_bytes;
    stage.streams_masters = stage.streams() && stage.master_bytes > 0 && plan.masters_may_stream();
    plan.stages.push_back(stage);
  }
  if (shape.tied && shape.stages > 1) plan.stages[0].last_use = StageId(shape.stages - 1);
  AssignOwners(plan);
  for (StagePlan& stage : plan.stages) {
    const int n = shape.workers;
    if (shape.owners == Owners::kRandom) stage.owner = WorkerId(static_cast<int>(random() % n));
    if (shape.owners == Owners::kAllLast) stage.owner = WorkerId(n - 1);
    if (shape.owners == Owners::kAllFirst) stage.owner = WorkerId(0);
  }
  for (int j = 0; j < shape.stages && shape.parameters; ++j) {
    plan.stages[j].streams_parameters = j % 3 != 2 && plan.parameters_may_stream(StageId(j));
  }
  return plan;
}

Plan MakeResolvedPlan(const PlanShape& shape) {
  Plan plan = MakeTestPlan(shape);
  const absl::StatusOr<int> window = ChooseWindow(plan);
  EXPECT_TRUE(window.ok()) << Describe(shape) << ": " << window.status();
  plan.window = window.ok() ? *window : 1;
  return plan;
}

absl::StatusOr<int> SmallestWindow(const Plan& plan) {
  Plan shortened = ShortenedPlan(plan);
  RZ_ASSIGN_OR_RETURN(const int most, LargestUsefulWindow(shortened));
  for (shortened.window = 1;; ++shortened.window) {
    RZ_ASSIGN_OR_RETURN(const LinkedRing ring, LinkedRing::Write(shortened));
    const absl::Status progress = WaitGraph(ring).CheckProgress();
    if (progress.ok()) return shortened.window;
    if (shortened.window >= most) return progress;
  }
}

PlanShape RandomShapes::Next() {
  PlanShape shape;
  shape.workers = Small(1, 8);
  shape.stages = Small(1, 4 * shape.workers);
  shape.zero_stage = Chance(2) ? 3 : Draw(0, 3);
  shape.laps = Small(1, 3);
  shape.rule = static_cast<Rule>(Draw(0, 2));
  shape.slack = Draw(0, 2);
  shape.iterations = Draw(1, 4);
  shape.evaluate_every = Chance(3) ? Draw(1, 3) : 0;
  shape.evaluation_laps = Draw(1, 2);
  shape.collect_every = Chance(4) ? Draw(1, 2) : 0;
  if (Chance(3)) {
    shape.first_iteration = Draw(1, 6);
    shape.iterations += shape.first_iteration;
  }
  if (Chance(6)) shape.collect_versions = {Draw(1, shape.iterations)};
  shape.collector = Draw(0, shape.workers - 1);
  shape.statistics = Chance(3);
  shape.tied = Chance(4);
  shape.retain = shape.zero_stage == 3 && Chance(4) ? Draw(0, shape.stages) : 0;
  shape.pending = Draw(1, 3);
  shape.frozen = Chance(4) ? static_cast<Frozen>(Draw(1, 2)) : Frozen::kNone;
  shape.owners = static_cast<Owners>(Draw(0, 3));
  shape.costs = static_cast<Costs>(Draw(0, 2));
  shape.seed = random_();
  shape.clipping = static_cast<Clipping>(Draw(0, 3));
  shape.strict = shape.rule == Rule::kCdpV2 && Chance(3);
  shape.skip_overflows = Chance(4);
  shape.masters = Chance(3);
  shape.hosts = Chance(3) ? 0 : Draw(1, 4);
  if (shape.rule != Rule::kDp) {
    shape.predict = Chance(4);
    shape.stagger = Chance(3);
    if (Chance(3)) {
      shape.warmup_updates = Draw(1, 4 + shape.first_iteration);
      shape.iterations = std::max(shape.iterations, shape.warmup_updates + Draw(0, 3));
    }
  }
  shape.requests = Chance(4);
  shape.parameters_only = Chance(3);
  if (Chance(3)) shape.save_every = Draw(1, 2);
  if (Chance(6)) shape.evaluate_versions = {Draw(1, shape.iterations)};
  shape.streams = Chance(4);
  shape.parameters = Chance(2);
  return shape;
}

std::string Describe(const PlanShape& shape) { return PlanToString(MakeTestPlan(shape)); }

std::vector<Program> ProgramsOf(const Plan& plan) {
  std::vector<Program> programs;
  for (int w = 0; w < plan.workers; ++w) {
    absl::StatusOr<Program> program = MakeProgram(plan, WorkerId(w), WholeRun(plan));
    EXPECT_TRUE(program.ok()) << program.status();
    if (program.ok()) programs.push_back(*std::move(program));
  }
  return programs;
}

std::function<int64_t(const RingOp& op, int number)> Jitter(int64_t most, uint64_t seed,
                                                            std::vector<int64_t> delays) {
  return [=](const RingOp& op, int number) -> int64_t {
    const Cost cost = KindOf(op.kind).cost;
    const bool computes = cost == Cost::kForward || cost == Cost::kBackward;
    const bool delayed = computes && op.worker < std::ssize(delays);
    const int64_t delay = delayed ? delays[op.worker] : 0;
    const bool adds = cost == Cost::kAdd || cost == Cost::kUpdate;
    const bool moves = op.kind == OpKind::kLoad || op.kind == OpKind::kUnload;
    if (!computes && !adds && !moves && op.kind != OpKind::kReceive) return 0;
    // splitmix64
    uint64_t x = seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(number) + 1;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return delay + static_cast<int64_t>((x ^ (x >> 31)) % static_cast<uint64_t>(most + 1));
  };
}

LinkedRing RingOf(const Plan& plan) {
  absl::StatusOr<LinkedRing> ring = LinkedRing::Write(plan);
  EXPECT_TRUE(ring.ok()) << ring.status();
  return ring.ok() ? *std::move(ring) : LinkedRing();
}

namespace {

// Any two values of any two factors occur together: sizes[i] values of factor i, each row one case.
std::vector<std::vector<int>> PairwiseCases(const std::vector<int>& sizes) {
  using Pair = std::tuple<size_t, int, size_t, int>;
  std::set<Pair> open;
  for (size_t a = 0; a < sizes.size(); ++a) {
    for (size_t b = a + 1; b < sizes.size(); ++b) {
      for (int i = 0; i < sizes[a]; ++i) {
        for (int j = 0; j < sizes[b]; ++j) open.insert({a, i, b, j});
      }
    }
  }
  std::mt19937 random(7);
  const auto closes = [&](const std::vector<int>& row) {
    std::vector<Pair> pairs;
    for (size_t a = 0; a < row.size(); ++a) {
      for (size_t b = a + 1; b < row.size(); ++b) {
        const Pair pair{a, row[a], b, row[b]};
        if (open.count(pair) > 0) pairs.push_back(pair);
      }
    }
    return pairs;
  };
  std::vector<std::vector<int>> rows;
  while (!open.empty()) {
    const auto [a, i, b, j] = *open.begin();
    std::vector<int> best;
    size_t most = 0;
    for (int attempt = 0; attempt < 40; ++attempt) {
      std::vector<int> row;
      for (const int size : sizes) row.push_back(static_cast<int>(random() % size));
      row[a] = i;
      row[b] = j;
      const size_t count = closes(row).size();
      if (count > most) {
        most = count;
        best = row;
      }
    }
    for (const Pair& pair : closes(best)) open.erase(pair);
    rows.push_back(best);
  }
  return rows;
}

}  // namespace

const std::vector<RuleShape>& AllRules() {
  static const auto* const all =
      new std::vector<RuleShape>{{Rule::kDp, 0, false},          {Rule::kCdpV1, 0, false},
                                 {Rule::kCdpV1, 0, true},        {Rule::kCdpV2, 0, false},
                                 {Rule::kCdpV2, 1, false},       {Rule::kCdpV2, 2, false},
                                 {Rule::kCdpV2, 0, true},        {Rule::kCdpV2, 1, true},
                                 {Rule::kCdpV2, 2, true},        {Rule::kCdpV1, 0, false, true},
                                 {Rule::kCdpV2, 0, false, true}, {Rule::kCdpV2, 1, false, true},
                                 {Rule::kCdpV1, 0, true, true},  {Rule::kCdpV2, 1, true, true}};
  return *all;
}

PlanShape WithRule(PlanShape shape, const RuleShape& rule) {
  shape.rule = rule.rule;
  shape.slack = rule.slack;
  shape.stagger = rule.stagger;
  shape.predict = rule.predict;
  return shape;
}

std::vector<PlanShape> PairwiseShapes() {
  std::vector<PlanShape> shapes;
  const int rules = static_cast<int>(AllRules().size());
  for (const std::vector<int>& c :
       PairwiseCases({6, 5, 3, rules, 4, 3, 4, 2, 2, 3, 3, 2, 4, 3, 4, 7, 4, 5})) {
    const int n = 1 + c[0];
    const int stages[] = {std::max(1, n - 1), n, n + 1, 2 * n, 2 * n + 1};
    PlanShape shape = WithRule({.workers = n, .stages = stages[c[1]]}, AllRules()[c[3]]);
    shape.zero_stage = c[14];
    shape.laps = 1 + c[2];
    shape.owners = static_cast<Owners>(c[4]);
    shape.costs = static_cast<Costs>(c[5]);
    shape.evaluate_every = c[6] == 3 ? 2 : c[6];
    shape.evaluation_laps = c[6] == 3 ? 3 : 1;
    shape.statistics = shape.strict = c[7] == 1;
    shape.tied = c[8] == 1;
    shape.retain = c[9];
    shape.frozen = static_cast<Frozen>(c[10]);
    shape.pending = 1 + c[11] * 2;
    shape.masters = c[11] == 1;
    shape.collect_every = c[12] % 3;
    if (c[12] == 3) shape.collect_versions = {2, 3};
    shape.collector = c[13] == 0 ? 0 : c[13] == 1 ? n - 1 : n / 2;
    shape.clipping = static_cast<Clipping>(c[15] % 4);
    shape.skip_overflows = c[15] >= 4;
    shape.hosts = c[16];
    shape.warmup_updates = c[17];
    shape.streams = c[13] == 1 && c[9] > 0;
    shape.parameters = c[12] % 2 == 1;
    shape.seed = shapes.size() + 1;
    shapes.push_back(shape);
  }
  for (size_t i = 0, pairs = shapes.size(); i < pairs; i += 3) {
    PlanShape& shape = shapes.emplace_back(shapes[i]);
    shape.zero_stage = 3;
    shape.hosts = 1;
    shape.predict = false;
    shape.parameters = true;
  }
  return shapes;
}

bool FullTier() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;
#else
  return std::getenv("RINGZERO_TEST_FULL") != nullptr;
#endif
}

namespace {

class Oracle {
 public:
  Oracle(const Plan& plan, const LinkedRing& ring, const Timeline& times)
      : plan_(plan), ring_(ring), times_(times) {
    for (const auto& blocks : ring.blocks) blocks_.emplace_back(blocks.size());
    for (int w = 0; w < plan.workers; ++w) BeginFiles(w);
    for (int i = 0; i < ring.count(); ++i) {
      const Op& op = ring.op(i);
      if (op.kind == OpKind::kUpdate) {
        updates_[{MemoryOf(i), op.stage.value, op.version.value}] = i;
        updates_of_[{op.stage.value, op.iteration.value}].push_back(i);
      }
      if (op.kind == OpKind::kSquares) squares_of_[op.iteration.value].push_back(i);
      if (op.kind == OpKind::kCollect && op.copy != Copy::kNone) {
        collects_[{op.copy, op.stage.value, op.iteration.value}] = i;
      }
    }
  }

  absl::Status Check() {
    for (int i = 0; i < ring_.count(); ++i) {
      RZ_RETURN_IF_ERROR(CheckReads(i));
      RZ_RETURN_IF_ERROR(CheckKept(i));
      RZ_RETURN_IF_ERROR(CheckSumMemory(i));
      RZ_RETURN_IF_ERROR(CheckClipped(i));
      RZ_RETURN_IF_ERROR(CheckScale(i));
    }
    RZ_RETURN_IF_ERROR(CheckContents());
    return CheckFileTimes();
  }

 private:
  absl::Status Wrong(int i, const std::string& what) const {
    return absl::FailedPreconditionError(absl::StrCat(ring_.Describe(i), ": ", what));
  }

  // Whose masters operation i reads, itself or by what was sent: its own, if it has a replica; -1:
  // the only ones.
  int MemoryOf(int i) const { return plan_.zero_stage == 0 ? ring_.worker_of(i) : -1; }

  // When the version is made and when its memory is written again; the run begins with the first.
  int64_t Made(int i, int j, int version) const {
    if (IsPrediction(Version(version))) version = LabelNumber(Version(version)) - 1;
    const auto found = updates_.find({MemoryOf(i), j, version});
    return version <= plan_.first_iteration ? 0
           : found == updates_.end()        ? INT64_MAX
                                            : times_.end[found->second];
  }
  int64_t Overwritten(int i, int j, int version) const {
    int by = plan_.rule == Rule::kDp ? version + 1 : std::max(version, 0) + 2;
    // θ is one buffer, and predictions take turns in two; the first two are both θ_0.
    if (plan_.predict) by = version + 1;
    if (IsPrediction(Version(version))) by = std::max(LabelNumber(Version(version)), 1) + 1;
    const auto found = updates_.find({MemoryOf(i), j, by});
    return found == updates_.end() ? INT64_MAX : times_.start[found->second];
  }

  absl::Status CheckReads(int i) const {
    for (const RingRead& read : ring_.ops[i].reads) {
      const int j = read.stage.value, version = read.version.value;
      if (times_.start[i] < Made(i, j, version))
        return Wrong(i, "reads a version before it is made");
      if (times_.end[i] > Overwritten(i, j, version)) return Wrong(i, "reads memory being written");
    }
    return absl::OkStatus();
  }

  // A sum is copied before the update takes it, a state between the update that made it and the
  // next one; when that of version v is kept, that of v-2 has been shown.
  absl::Status CheckKept(int i) const {
    const Op& op = ring_.op(i);
    if (op.kind != OpKind::kKeep) return absl::OkStatus();
    const int j = op.stage.value, version = op.iteration.value;
    const bool sum = op.copy == Copy::kGradient;
    if (!sum && times_.start[i] < Made(i, j, version)) return Wrong(i, "keeps a state too early");
    const auto next = updates_.find({MemoryOf(i), j, sum ? version : version + 1});
    if (next != updates_.end() && times_.end[i] > times_.start[next->second]) {
      return Wrong(i, "keeps what is being changed");
    }
    const auto before = collects_.find({op.copy, j, version - 2});
    if (before == collects_.end() || times_.end[before->second] <= times_.start[i]) {
      return absl::OkStatus();
    }
    return Wrong(i, "is the third of its kind that is kept");
  }

  // The last message from a block has been delivered before the next sum begins in it. Where sums stay,
  // a stage has the memory of one: all who update from it have, before the next begins in it.
  absl::Status CheckSumMemory(int i) const {
    const RingOp& op = ring_.ops[i];
    if (op.kind != OpKind::kAdd || op.uses[1].how != How::kWrite) return absl::OkStatus();
    const MemoryBlock& sum = ring_.blocks[op.worker][op.uses[1].block];
    if (sum.kind == BlockKind::kBegun) {
      for (int before = i - 1; before >= ring_.begin[op.worker]; --before) {
        const RingOp& send = ring_.ops[before];
        if (send.kind != OpKind::kSend || send.uses[0].block != op.uses[1].block) continue;
        if (times_.end[ring_.partner[before]] <= times_.start[i]) return absl::OkStatus();
        return Wrong(i, "begins a sum in one that has not left");
      }
      return absl::OkStatus();
    }
    const int before = op.iteration.value - 1;
    std::vector<int> readers;
    if (plan_.hosts.size() > 1) {
      // The last worker of the host sends it on.
      const int last = plan_.hosts[0] - 1;
      for (int at = ring_.begin[last]; at < ring_.begin[last + 1]; ++at) {
        const RingOp& send = ring_.ops[at];
        const bool is_sum = send.kind == OpKind::kSend && send.channel == Channel::kSum;
        if (!is_sum || send.stage != op.stage || send.iteration.value != before) continue;
        readers.push_back(ring_.partner[at]);
      }
    } else if (!TakesSums()) {
      const auto found = updates_of_.find({op.stage.value, before});
      if (found != updates_of_.end()) readers = found->second;
    } else if (const auto found = squares_of_.find(before); found != squares_of_.end()) {
      std::copy_if(found->second.begin(), found->second.end(), std::back_inserter(readers),
                   [&](int squares) { return ring_.op(squares).stage == op.stage; });
    }
    for (const int update : readers) {
      if (times_.end[update] > times_.start[i]) return Wrong(i, "begins a sum in one that is read");
    }
    return absl::OkStatus();
  }

  // Of complete sums, for the norm.
  bool TakesSums() const { return plan_.clipping == Clipping::kExact || plan_.skip_overflows; }

  // When an iteration begins, it is known which of those have overflowed that its loss scale
  // follows from: all but the last in the cdp rules.
  absl::Status CheckScale(int i) const {
    const Op& op = ring_.op(i);
    const bool begins = op.kind == OpKind::kForward && op.stage.value == 0 && op.lap.value == 0;
    const int last = op.iteration.value - (plan_.rule == Rule::kDp ? 1 : 2);
    if (!plan_.skip_overflows || !begins || last < 0) return absl::OkStatus();
    const auto counted = squares_of_.find(last);
    if (counted == squares_of_.end()) return absl::OkStatus();  // nothing is trained
    for (const int squares : counted->second) {
      const bool here = plan_.zero_stage > 0 || ring_.worker_of(squares) == ring_.worker_of(i);
      if (here && times_.end[squares] > times_.start[i]) {
        return Wrong(i, "begins before its loss scale is known");
      }
    }
    return absl::OkStatus();
  }

  // When an update begins, the squares are counted that it is clipped by, or by which it is known
  // whether there is one; and an owner has one sum of a stage at most.
  absl::Status CheckClipped(int i) const {
    const Op& op = ring_.op(i);
    if (TakesSums() && op.kind == OpKind::kSquares) {
      const auto read = updates_.find({MemoryOf(i), op.stage.value, op.iteration.value});
      const bool free = read == updates_.end() || times_.end[read->second] <= times_.start[i];
      return free ? absl::OkStatus() : Wrong(i, "takes a sum over one that is still read");
    }
    const bool skips = plan_.skip_overflows;
    const bool counts = skips || plan_.clipping != Clipping::kOff;
    if (op.kind != OpKind::kUpdate || !counts) return absl::OkStatus();
    const bool previous = plan_.clipping == Clipping::kPrevious;
    const auto found = squares_of_.find(op.iteration.value - (previous ? 1 : 0));
    if (found == squares_of_.end()) {
      const bool none = previous && op.iteration.value == plan_.first_iteration;
      return none ? absl::OkStatus() : Wrong(i, "has no squares to be clipped by");
    }
    const bool per_stage = plan_.clipping == Clipping::kPerStage && !skips;
    int stages = 0;
    for (const int squares : found->second) {
      const bool own = ring_.op(squares).stage == op.stage;
      if (per_stage && !own) continue;
      if (plan_.zero_stage == 0 && ring_.worker_of(squares) != ring_.worker_of(i)) continue;
      if (times_.end[squares] > times_.start[i]) return Wrong(i, "is before its norm is known");
      ++stages;
    }
    const int trained =
        static_cast<int>(std::count_if(plan_.stages.begin(), plan_.stages.end(),
                                       [](const StagePlan& stage) { return stage.sum_bytes > 0; }));
    const int wanted = per_stage ? 1 : trained;
    return stages == wanted ? absl::OkStatus() : Wrong(i, "is clipped by some stages' squares");
  }

  // Follows sums, statistics and metrics in the order of time: each is the list of its
  // micro-batches.
  absl::Status CheckContents() {
    std::vector<int> order(ring_.count());
    std::iota(order.begin(), order.end(), 0);
    // At one tick operations without duration follow each other: repeat until nothing changes.
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return times_.end[a] < times_.end[b]; });
    std::vector<bool> done(ring_.count(), false);
    size_t left = order.size();
    while (left > 0) {
      const size_t before = left;
      for (const int i : order) {
        if (done[i] || !Ready(i, done)) continue;
        done[i] = true;
        --left;
        RZ_RETURN_IF_ERROR(Follow(i));
      }
      if (left == before) return absl::InternalError("contents depend on themselves");
    }
    return absl::OkStatus();
  }
  bool Ready(int i, const std::vector<bool>& done) const {
    const auto& after = ring_.ops[i].after;
    const bool links = std::all_of(after.begin(), after.end(), [&](int64_t a) { return done[a]; });
    const bool receive = ring_.op(i).kind == OpKind::kReceive;
    return links && (!receive || done[ring_.partner[i]]);
  }

  std::vector<int> Wanted(int laps) const {
    std::vector<int> all(plan_.workers * laps);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  // The micro-batches of iteration t by their numbers in the run.
  std::vector<int> WantedSum(int t) const {
    std::vector<int> numbers(plan_.workers * plan_.laps);
    std::iota(numbers.begin(), numbers.end(), t * plan_.workers * plan_.laps);
    return numbers;
  }

  // What a worker's name for a block stands for: its own block, or one that was lent to it.
  using Place = std::pair<int, int>;  // worker, number of the block
  Place PlaceOf(int i, int block) const {
    const int worker = ring_.worker_of(i);
    return blocks_[worker][block].lent.value_or(Place{worker, block});
  }
  const NumberedUse* Find(int i, Role role) const {
    for (const NumberedUse& use : ring_.ops[i].uses) {
      if (use.role == role) return &use;
    }
    return nullptr;
  }
  std::vector<int>& ContentsOf(const Place& place) {
    return blocks_[place.first][place.second].contents;
  }
  std::vector<int>& At(int i, Role role) { return ContentsOf(PlaceOf(i, Find(i, role)->block)); }
  // What operation i writes from nothing.
  std::vector<int>& Begin(int i, Role role) {
    const NumberedUse& use = *Find(i, role);
    if (use.how != How::kWrite) return At(i, role);
    blocks_[ring_.worker_of(i)][use.block].lent.reset();
    At(i, role).clear();
    return At(i, role);
  }

  void Deliver(int receive) {
    const RingOp& op = ring_.ops[receive];
    const auto& [from, contents] = under_way_.at(ring_.partner[receive]);
    if (BringsBack(op.channel)) return;
    const Place own{op.worker, op.uses[0].block};
    Block& block = blocks_[own.first][own.second];
    block.lent.reset();
    if (!op.loan) {
      block.contents = contents;
    } else if (from != own) {
      block.lent = from;
    }
  }

  // θ_{-1} is θ_0.
  static std::vector<int> VersionOf(StageId j, int label) { return {j.value, std::max(label, 0)}; }
  // What the run begins with lies in files of worker w.
  void BeginFiles(int w) {
    for (size_t n = 0; n < blocks_[w].size(); ++n) {
      const MemoryBlock& block = ring_.blocks[w][n];
      if (!LiesInFile(plan_, block) || plan_.owner(block.stage).value != w) continue;
      const int first = plan_.first_iteration;
      for (const Version label :
           {Version(first - 1), Version(first), Prediction(first), Prediction(first + 1)}) {
        if (VersionBlock(plan_, block.stage, label) != block) continue;
        blocks_[w][n].contents = VersionOf(block.stage, label.value);
      }
    }
  }
  // What is loaded, unloaded, computed with or updated is the version that the operation names.
  absl::Status FollowFiles(int i) {
    const RingOp& op = ring_.ops[i];
    const auto is_slot = [&](const NumberedUse& use) {
      return ring_.blocks[op.worker][use.block].kind == BlockKind::kResident;
    };
    const bool loads = op.kind == OpKind::kLoad, shows = op.kind == OpKind::kCollect;
    for (const NumberedUse& use : op.uses) {
      const Place place = PlaceOf(i, use.block);
      if (!is_slot(use) && !LiesInFile(plan_, ring_.blocks[place.first][place.second])) continue;
      const bool moves = !loads || use.how == How::kWrite;
      file_uses_[place].push_back({i, use.how != How::kRead && moves});
    }
    if (op.stage == kNoStage || !plan_.stage(op.stage).streams_parameters) return absl::OkStatus();
    const int label = shows ? op.iteration.value : op.version.value;
    const std::vector<int> version = VersionOf(op.stage, label);
    const auto holds = [&](Role role, bool slot, const std::vector<int>& wanted) {
      const NumberedUse* const use = Find(i, role);
      if (use == nullptr) return true;
      return is_slot(*use) == slot && (use->how == How::kWrite || At(i, role) == wanted);
    };
    const bool masters = shows && plan_.stage(op.stage).master_bytes > 0;
    const bool right = (masters || holds(Role::kParameters, true, version)) &&
                       holds(Role::kMade, true, VersionOf(op.stage, label - 1)) &&
                       holds(Role::kSource, !loads, version) &&
                       holds(Role::kTarget, loads, version);
    for (const Role role : {Role::kMade, Role::kTarget}) {
      if (Find(i, role) != nullptr) Begin(i, role) = version;
    }
    if (Find(i, Role::kPrediction) != nullptr) {
      Begin(i, Role::kPrediction) = VersionOf(op.stage, Prediction(op.iteration.value + 2).value);
    }
    return right ? absl::OkStatus() : Wrong(i, "uses another version, or one that is elsewhere");
  }
  // Nobody uses a slot that is being filled, or a file that is being written.
  absl::Status CheckFileTimes() {
    for (auto& [place, uses] : file_uses_) {
      std::ranges::stable_sort(uses, {}, [&](const FileUse& use) {
        return std::pair(times_.start[use.op], times_.end[use.op]);
      });
      int64_t used = 0, written = 0;  // until then
      for (const FileUse& use : uses) {
        if (times_.start[use.op] < (use.writes ? used : written))
          return Wrong(use.op, "uses a file or a slot while another does");
        used = std::max(used, times_.end[use.op]);
        if (use.writes) written = std::max(written, times_.end[use.op]);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Follow(int i) {
    const RingOp& op = ring_.ops[i];
    if (!IsMessage(op.kind)) RZ_RETURN_IF_ERROR(FollowFiles(i));
    const int t = op.iteration.value;
    const int in_iteration = op.lap.value * plan_.workers + op.worker;
    const int number = t * plan_.workers * plan_.laps + in_iteration;
    const auto wrong = [&](bool is, const char* what) {
      return is ? Wrong(i, what) : absl::OkStatus();
    };
    switch (op.kind) {
      case OpKind::kSend: {
        const Place from = PlaceOf(i, op.uses[0].block);
        under_way_[i] = {from, ContentsOf(from)};
        break;
      }
      case OpKind::kReceive: Deliver(i); break;
      case OpKind::kAdd: Begin(i, Role::kSum).push_back(number); break;
      case OpKind::kApply: At(i, Role::kStatistics).push_back(number); break;
      case OpKind::kFold: Begin(i, Role::kFold).push_back(in_iteration); break;
      case OpKind::kSquares:
        if (Find(i, Role::kTaken) != nullptr) Begin(i, Role::kTaken) = At(i, Role::kSum);
        break;
      case OpKind::kUpdate: return wrong(At(i, Role::kSum) != WantedSum(t), kIncomplete);
      case OpKind::kReport: {
        const bool evaluation = op.copy == Copy::kEvaluation;
        const int laps = evaluation ? plan_.evaluation.laps : plan_.laps;
        return wrong(At(i, Role::kFold) != Wanted(laps), kIncomplete);
      }
      case OpKind::kSnapshot: {
        std::vector<int> applied;
        for (int before = plan_.first_iteration; before < t; ++before) {
          const std::vector<int> more = WantedSum(before);
          applied.insert(applied.end(), more.begin(), more.end());
        }
        return wrong(At(i, Role::kStatistics) != applied,
                     "keeps statistics of other micro-batches");
      }
      case OpKind::kKeep: {  // what is kept says of which version it is
        std::vector<int> kept;
        if (op.copy == Copy::kGradient) kept = At(i, Role::kSum);
        kept.push_back(-t);
        if (op.copy == Copy::kCollection) kept.push_back(op.stage.value);
        Begin(i, Role::kKept) = kept;
        break;
      }
      case OpKind::kCollect: {
        if (op.copy == Copy::kNone) {
          if (!plan_.stage(op.stage).streams_masters) break;
          const std::vector<int> masters = {-t, op.stage.value};
          return wrong(At(i, Role::kParameters) != masters, "shows other masters");
        }
        std::vector<int> wanted;
        if (op.copy == Copy::kGradient) wanted = WantedSum(t - 1);
        wanted.push_back(-t);
        return wrong(At(i, Role::kKept) != wanted, "shows another version's sum or state");
      }
      default: break;
    }
    return absl::OkStatus();
  }

  static constexpr char kIncomplete[] = "does not hold every micro-batch once and in order";

  const Plan& plan_;
  const LinkedRing& ring_;
  const Timeline& times_;
  std::map<std::tuple<int, int, int>, int> updates_;            // (memory, stage, version it makes)
  std::map<std::pair<int, int>, std::vector<int>> updates_of_;  // (stage, iteration)
  std::map<int, std::vector<int>> squares_of_;                  // iteration
  std::map<std::tuple<Copy, int, int>, int> collects_;          // (part, stage, version)
  // By block, in the order of time; and of messages that are under way.
  struct Block {
    std::vector<int> contents;
    std::optional<Place> lent;
  };
  std::vector<std::vector<Block>> blocks_;                       // by worker and number
  std::map<int, std::pair<Place, std::vector<int>>> under_way_;  // by their sends
  struct FileUse {
    int op;
    bool writes;
  };
  std::map<Place, std::vector<FileUse>> file_uses_;  // of files and slots
};

}  // namespace

absl::Status CheckRun(const Plan& plan, const LinkedRing& ring, const Timeline& times) {
  return Oracle(plan, ring, times).Check();
}

}  // namespace ringzero
