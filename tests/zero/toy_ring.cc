// The toy model on the ring and in one loop.
#include "tests/zero/toy_ring.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <iterator>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/check.h"
#include "base/philox.h"
#include "base/status.h"
#include "offload/tier_file.h"
#include "sharding/check/verify.h"
#include "sharding/op.h"
#include "sharding/program/requests.h"
#include "sharding/rules/schedule.h"
#include "tests/offload/io_decorators.h"
#include "tests/sharding/test_plans.h"
#include "tests/zero/update_reference.h"
#include "zero/flight/flight_recorder.h"
#include "zero/gradient_sum.h"
#include "zero/optimizer/kernels.h"
#include "zero/optimizer/optimizer.h"
#include "zero/precision.h"
#include "zero/transport_needs.h"
#include "zero/version_files.h"

namespace ringzero {
namespace {

constexpr uint64_t kSeed = 41;  // of sums' rounding

// a_0 of a micro-batch (evaluations: iteration 1000000 + version).
float Data(int iteration, int micro_batch) {
  const uint32_t x = 2654435761u * static_cast<uint32_t>(iteration * 1000 + micro_batch + 1);
  return static_cast<float>(x >> 8) / 16777216.0f - 0.5f;
}

float InitialValue(int stage, int i) {
  const uint32_t x = 2246822519u * static_cast<uint32_t>(stage * 977 + i + 1);
  return static_cast<float>(x >> 8) / 16777216.0f - 0.5f;
}

bool IsStrict(const ToyOptions& o) {
  const bool needed = o.clipping == Clipping::kExact || o.precision.skip_overflows;
  return o.rule == Rule::kCdpV2 && (o.strict || needed);
}

struct Toy {
  explicit Toy(const ToyOptions& options) : o(options) {}
  bool Trains(int j) const { return j >= o.frozen_prefix; }
  // The computing itself, shared by both sides: plain functions of θ̂ and the activation.
  float Forward(const float* theta, const float* tied, float a) const {
    const float out = 0.9f * a + theta[0] + theta[o.width - 1];
    return tied == nullptr ? out : out + 0.5f * tied[1];
  }
  void Gradient(const float* theta, const float* tied, float a, double scale,
                std::vector<float>* gradient) const {
    gradient->resize(o.width);
    for (int i = 0; i < o.width; ++i) {
      (*gradient)[i] = 0.1f * theta[i] + a / static_cast<float>(1 + i);
      if (tied != nullptr) (*gradient)[i] += 0.01f * tied[i];
      (*gradient)[i] *= static_cast<float>(scale);
    }
  }
  ToyOptions o;
};

// Values of a type, widened.
std::vector<float> Wide(const std::byte* from, ValueType type, int64_t count) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    if (type == ValueType::kFp32) {
      values[i] = reinterpret_cast<const float*>(from)[i];
    } else {
      values[i] = reference::FromWire(type, reinterpret_cast<const uint16_t*>(from)[i]);
    }
  }
  return values;
}

float Rounded(ValueType type, float value) {
  if (type == ValueType::kFp32) return value;
  return reference::FromWire(type, reference::ToWire(type, value));
}

const float* Values(const SharedBuffer& buffer) {
  return reinterpret_cast<const float*>(buffer.data());
}

// One worker's ordinary loop.
class ToyWorker {
 public:
  // `statistics`: of the first version, by stage.
  ToyWorker(const ToyOptions& options, Engine* engine, const std::vector<float>& statistics,
            ToyResult* result)
      : toy_(AsAsked(options)),
        layouts_(ToyLayouts(options)),
        requests_(options.requests),
        engine_(*engine),
        statistics_(statistics),
        result_(*result) {}

  absl::Status Run() {
    while (true) {
      RZ_ASSIGN_OR_RETURN(const LapTask lap, engine_.NextLap());
      switch (lap.kind) {
        case LapTask::Kind::kTrain:
          RZ_RETURN_IF_ERROR(AskFor(lap));
          RZ_RETURN_IF_ERROR(Train(lap));
          if (lap.iteration.value == 0) engine_.MeasureClock();
          break;
        case LapTask::Kind::kEvaluate: RZ_RETURN_IF_ERROR(Evaluate(lap)); break;
        case LapTask::Kind::kCollect: RZ_RETURN_IF_ERROR(Collect(lap)); break;
        case LapTask::Kind::kDone: return engine_.Finish();
      }
    }
  }

 private:
  absl::Status AskFor(const LapTask& lap) {
    for (const ToyRequest& asked : requests_) {
      const bool is_first = lap.micro_batch % toy_.o.workers == 0;
      if (!is_first || lap.lap.value != asked.lap || lap.iteration.value != asked.iteration)
        continue;
      RZ_ASSIGN_OR_RETURN(const Version version, engine_.Ask(asked.request));
      const Version wanted = RequestedVersion(engine_.plan(), asked.brought_by());
      if (version != wanted) return absl::InternalError("a request is about another version");
    }
    return absl::OkStatus();
  }

  absl::Status Train(const LapTask& lap) {
    if (lap.missing()) return engine_.SkipMicroBatch({0, 0});
    const int stages = toy_.o.stages;
    std::vector<float> a = {Data(lap.iteration.value, lap.micro_batch)};
    std::vector<std::vector<float>> seen(stages);
    for (int j = 0; j < stages; ++j) {
      RZ_ASSIGN_OR_RETURN(std::vector<StageCopy> copies, engine_.BeginForward(StageId(j)));
      seen[j] = Read(copies[0]);
      const float* theta = seen[j].data();
      const bool tied = toy_.o.tied && j == stages - 1 && j > 0;
      a.push_back(toy_.Forward(theta, tied ? seen[0].data() : nullptr, a[j]));
      Buffer statistics = MakeHeapBuffer(layouts_[j].statistics_bytes);
      std::memcpy(statistics.data(), &a[j], sizeof(float));
      copies.clear();
      RZ_RETURN_IF_ERROR(engine_.EndForward(StageId(j), std::move(statistics)));
    }
    for (int j = stages - 1; j >= toy_.o.frozen_prefix; --j) {
      RZ_ASSIGN_OR_RETURN(std::vector<StageCopy> copies, engine_.BeginBackward(StageId(j)));
      const bool tied = toy_.o.tied && j == stages - 1 && j > 0;
      if (copies.size() != (tied ? 2u : 1u)) {
        return absl::InternalError("wrong number of copies in a backward");
      }
      for (const StageCopy& copy : copies) {
        // Forward and backward of a micro-batch read one version, bit for bit.
        if (Read(copy) != seen[copy.stage.value]) {
          return absl::InternalError("the backward reads another version than the forward");
        }
      }
      auto gradient = std::make_shared<std::vector<float>>();
      toy_.Gradient(seen[j].data(), tied ? seen[0].data() : nullptr, a[j],
                    engine_.LossScaleOf(lap.iteration), gradient.get());
      copies.clear();
      GradientPart given = Given(gradient);
      StageGradient handed_over;
      // Half of them add to the sum themselves if it is here.
      const bool adds = (lap.iteration.value + lap.micro_batch + j) % 2 == 0;
      std::byte* sum = adds ? engine_.OpenSum(StageId(j)) : nullptr;
      if (sum != nullptr) {
        AddContribution(layouts_[j], 0, {given.data, given.type},
                        {kSeed, lap.iteration.value, lap.micro_batch}, sum);
      } else {
        handed_over.push_back(std::move(given));
      }
      RZ_RETURN_IF_ERROR(engine_.EndBackward(StageId(j), std::move(handed_over)));
    }
    const double samples = static_cast<double>(lap.samples.value_or(1));
    return engine_.EndMicroBatch({samples * double(a.back()), samples});
  }

  std::vector<float> Read(const StageCopy& copy) const {
    return Wide(copy.parameters.data(), toy_.o.precision.wire(), toy_.o.width);
  }

  // In the computing type.
  GradientPart Given(const std::shared_ptr<std::vector<float>>& gradient) const {
    const ValueType type = toy_.o.precision.compute;
    if (type == ValueType::kFp32) return {0, gradient->data(), gradient, type};
    auto narrow = std::make_shared<std::vector<uint16_t>>();
    for (const float value : *gradient) {
      narrow->push_back(reference::ToWire(type, value));
    }
    return {0, narrow->data(), narrow, type};
  }

  absl::Status Evaluate(const LapTask& lap) {
    float a = Data(1000000 + lap.iteration.value, lap.micro_batch);
    std::vector<float> first;
    for (int j = 0; j < toy_.o.stages; ++j) {
      RZ_ASSIGN_OR_RETURN(EvaluationCopy copy, engine_.BeginEvaluation(StageId(j)));
      const std::vector<float> values = Read(copy.copies[0]);
      const float* theta = values.data();
      if (j == 0) first = values;
      const bool tied = toy_.o.tied && j == toy_.o.stages - 1 && j > 0;
      const float running = copy.statistics ? Values(copy.statistics)[0] : statistics_[j];
      a = toy_.Forward(theta, tied ? first.data() : nullptr, a) + running;
      copy = {};
      RZ_RETURN_IF_ERROR(engine_.EndEvaluation(StageId(j)));
    }
    return engine_.EndMicroBatch({double(a), 1.0});
  }

  // One part.
  absl::Status Collect(const LapTask& lap) {
    RZ_ASSIGN_OR_RETURN(CollectedPart part, engine_.Collect());
    const bool whole = IsCollected(ToyPlan(toy_.o), Version(lap.iteration.value)) &&
                       lap.micro_batch % toy_.o.workers == toy_.o.collection.worker.value;
    const bool result = lap.iteration.value == toy_.o.iterations && lap.micro_batch == 0;
    const auto show = [&](std::vector<float>& to, const float* from, int64_t count) {
      to.insert(to.end(), from, from + count);
    };
    if (part.kind == CollectedPart::Kind::kParameters) {
      if (whole) show(result_.collected, Values(part.parameters), toy_.o.width);
      if (whole && part.statistics) show(result_.collected, Values(part.statistics), 1);
      if (result) show(result_.parameters, Values(part.parameters), toy_.o.width);
      if (result && part.statistics) show(result_.statistics, Values(part.statistics), 1);
    } else {
      if (!whole) return absl::InternalError("a closing collection shows parameters only");
      ShowOwned(part);
    }
    part = {};
    return engine_.EndCollect();
  }

  void ShowOwned(const CollectedPart& part) {
    const StageLayout& layout = layouts_[part.stage.value];
    std::vector<float>& to = result_.collected;
    if (part.kind == CollectedPart::Kind::kGradient) {
      for (const ParameterSpec& spec : layout.parameters) {
        if (!HasContribution(layout, part.values, spec.sum_index)) continue;
        const std::vector<float> from =
            Wide(part.values + spec.sum_offset_bytes, layout.sum_type, spec.numel);
        to.insert(to.end(), from.begin(), from.end());
      }
      return;
    }
    for (const StateSpec& spec : StateLayout::Make(toy_.o.optimizer, layout).specs) {
      const std::byte* from = part.values + spec.offset_bytes;
      if (spec.kind == StateSpec::Kind::kStep) {
        to.push_back(static_cast<float>(*reinterpret_cast<const int64_t*>(from)));
      } else {
        const float* values = reinterpret_cast<const float*>(from);
        to.insert(to.end(), values, values + layout.parameters[spec.parameter].numel);
      }
    }
  }

  Toy toy_;
  const std::vector<StageLayout> layouts_;
  const std::vector<ToyRequest> requests_;
  Engine& engine_;
  const std::vector<float>& statistics_;
  ToyResult& result_;
};

}  // namespace

std::vector<StageLayout> ToyLayouts(const ToyOptions& options) {
  std::vector<StageLayout> layouts;
  for (int j = 0; j < options.stages; ++j) {
    const bool trains = j >= options.frozen_prefix;
    const std::string name = "s" + std::to_string(j);
    layouts.push_back(StageLayout::Make(
        {{.name = name + ".used", .shape = {options.width}, .trainable = trains},
         {.name = name + ".unused", .shape = {3}, .trainable = trains}},
        {{.name = name + ".running", .numel = 1, .blend = 0.25}}, options.precision));
  }
  return layouts;
}

Plan ToyPlan(const ToyOptions& options) {
  Plan plan{.workers = options.workers,
            .zero_stage = options.zero_stage,
            .laps = options.laps,
            .rule = options.rule,
            .slack = options.slack,
            .predict = options.predict,
            .pending = options.pending,
            .window = options.window,
            .stagger = options.stagger,
            .retain = options.retain,
            .iterations = options.iterations,
            .first_iteration = options.first_iteration,
            .warmup_updates = options.warmup_updates,
            .strict = IsStrict(options),
            .clipping = options.clipping,
            .skip_overflows = options.precision.skip_overflows,
            .evaluation = options.evaluation,
            .collection = options.collection,
            .checkpoint = options.checkpoint,
            .requests = !options.requests.empty(),
            .samples = options.samples,
            .hosts = options.hosts};
  const bool collects = options.collection.any() && !options.collection.parameters_only;
  const std::vector<StageLayout> layouts = ToyLayouts(options);
  bool streams_masters = false;
  for (int j = 0; j < options.stages; ++j) {
    StagePlan stage{
        .name = "s" + std::to_string(j),
        .first_layer = j,
        .end_layer = j + 1,
        .parameter_bytes = layouts[j].parameter_bytes,
        .master_bytes = layouts[j].master_bytes,
        .sum_bytes = layouts[j].sum_bytes,
        .buffer_bytes = layouts[j].statistics_bytes,
        .state_bytes = collects ? StateLayout::Make(options.optimizer, layouts[j]).bytes : 0,
        .trained_parameters = layouts[j].trainable_count,
        .forward_cost = 1,
        .backward_cost = 2,
        .owner = WorkerId(options.workers - 1 - j * options.workers / options.stages)};
    stage.has_backward = j >= options.frozen_prefix;
    if (!stage.has_backward) stage.backward_cost = 0;
    if (options.tied && j == 0) stage.last_use = StageId(options.stages - 1);
    if (options.staged_pieces > 0 && j % 2 == 0 && stage.sum_bytes > 0) {
      stage.streams_masters = layouts[j].master_bytes > 0 && plan.masters_may_stream();
      stage.streamed_bytes = StreamedBytes(
          layouts[j], StatePieces(options.optimizer, layouts[j], stage.streams_masters, 1));
      streams_masters = streams_masters || stage.streams_masters;
    }
    plan.stages.push_back(stage);
  }
  plan.resident_slots = options.parameter_slots;
  for (int j = 0; j < options.stages && options.parameter_slots > 0; ++j) {
    plan.stages[j].streams_parameters = j % 3 != 2 && plan.parameters_may_stream(StageId(j));
  }
  if (options.staged_pieces == 0) return plan;
  const StatePiece piece = StatePieces(options.optimizer, layouts.back(), streams_masters, 1).at(0);
  plan.staging_bytes = 4096 + options.staged_pieces * piece.states * piece.StateBytes();
  return plan;
}

ToyOptions AsAsked(ToyOptions options) {
  Plan plan = ToyPlan(options);
  for (const ToyRequest& asked : options.requests) {
    NoteRequest({.version = RequestedVersion(plan, asked.brought_by()),
                 .ends = asked.request == Request::kEnd,
                 .evaluates = asked.request == Request::kEvaluation,
                 .collects = asked.request == Request::kCollection,
                 .saves = asked.request == Request::kCheckpoint},
                plan);
  }
  options.iterations = plan.iterations;
  options.evaluation = plan.evaluation;
  options.collection = plan.collection;
  options.checkpoint = plan.checkpoint;
  options.requests.clear();
  return options;
}

namespace {

template <typename T>
absl::Status Fill(const std::vector<T>& from, std::byte* to) {
  std::memcpy(to, from.data(), from.size() * sizeof(T));
  return absl::OkStatus();
}

ToyState FirstState(const ToyOptions& options) {
  ToyState first;
  if (options.first_iteration > 0) {
    RunToyReference(options, &first);
    return first;
  }
  for (int j = 0; j < options.stages; ++j) {
    std::vector<float>& theta = first.theta.emplace_back();
    for (int i = 0; i < options.width; ++i) theta.push_back(InitialValue(j, i));
    first.running.push_back(0);
  }
  return first;
}

// Copies what is saved, a moment later, in a thread of its own: were it overwritten meanwhile, the test
// would see it.
class CopyingSaver : public Saver {
 public:
  CopyingSaver(const ToyOptions& options, std::mutex& mutex, ToyResult& result)
      : options_(options), layouts_(ToyLayouts(options)), mutex_(mutex), result_(result) {}
  ~CopyingSaver() override {
    for (std::thread& thread : threads_) thread.join();
  }

  void Save(const SavedPart& part, std::span<std::byte> receipt, Done done) override {
    Later([this, part, receipt, done = std::move(done)] {
      {
        const std::lock_guard lock(mutex_);
        Copy(part, result_.saving[part.version.value].stages[part.stage.value]);
      }
      receipt[0] = std::byte(static_cast<int>(receipt[0]) + 1);
      done();
    });
  }
  void Commit(Version v, const SavedScalars& scalars,
              const std::vector<std::span<const std::byte>>& receipts, Done done) override {
    Later([this, v, scalars, receipts, done = std::move(done)] {
      {
        const std::lock_guard lock(mutex_);
        ToySaved& saved = result_.saved[v.value] = result_.saving[v.value];
        saved.scalars = scalars;
        for (const auto& receipt : receipts) saved.parts += static_cast<int>(receipt[0]);
      }
      done();
    });
  }

 private:
  void Later(std::function<void()> work) {
    threads_.emplace_back([work = std::move(work), delay = ++calls_ % 3] {
      std::this_thread::sleep_for(std::chrono::microseconds(400 * delay));
      work();
    });
  }
  void Copy(const SavedPart& part, ToySaved::Stage& to) const {
    const StageLayout& layout = layouts_[part.stage.value];
    const auto bytes = [](const std::byte* from, int64_t count) {
      return from == nullptr ? std::vector<std::byte>()
                             : std::vector<std::byte>(from, from + count);
    };
    if (part.statistics != nullptr) {
      to.statistics = bytes(part.statistics, layout.statistics_bytes);
      return;
    }
    to.masters =
        bytes(part.masters, layout.master_bytes > 0 ? layout.master_bytes : layout.parameter_bytes);
    if (part.masters == nullptr) {
      to.masters.resize(static_cast<size_t>(layout.master_bytes));
      CopyMasters(layout, *part.optimizer, to.masters.data());
    }
    for (const auto& [label, values] : part.others) {
      to.others[label] = bytes(values, layout.parameter_bytes);
    }
    if (part.optimizer == nullptr) return;
    if (options_.saves_take_files && part.streams != nullptr) {
      EXPECT_TRUE(part.streams->Leave(part.stage, part.version).ok());
    }
    const StateLayout state = StateLayout::Make(options_.optimizer, layout);
    to.state.resize(static_cast<size_t>(state.bytes));
    CopyState(state, *part.optimizer, to.state.data());
  }

  const ToyOptions& options_;
  const std::vector<StageLayout> layouts_;
  std::mutex& mutex_;
  ToyResult& result_;
  int calls_ = 0;
  std::vector<std::thread> threads_;
};

// What an engine begins with. `first` outlives it.
void SetBeginning(const ToyOptions& options, const ToyState& first, EngineOptions& engine) {
  engine.initialize = [&first](StageId j, std::byte* masters) {
    return Fill(first.theta[j.value], masters);
  };
  engine.initialize_statistics = [&first](StageId j, std::byte* running) {
    std::memcpy(running, &first.running[j.value], sizeof(float));
    return absl::OkStatus();
  };
  if (options.first_iteration == 0) return;
  engine.beginning.state = [&first](StageId j, std::byte* state) {
    return Fill(first.optimizer[j.value], state);
  };
  const ValueType wire = options.precision.wire();
  const int t = options.first_iteration;
  engine.beginning.version = [&first, wire, t](StageId j, Version label, std::byte* values) {
    const auto& from = label == Version(t - 1)  ? first.before[j.value]
                       : label == Prediction(t) ? first.guess[j.value]
                                                : first.next_guess[j.value];
    if (wire == ValueType::kFp32) return Fill(from, values);
    std::vector<uint16_t> narrow;
    for (const float value : from) narrow.push_back(reference::ToWire(wire, value));
    return Fill(narrow, values);
  };
  engine.beginning.norm = first.norm;
  engine.beginning.loss_scale = first.loss_scale;
}

}  // namespace

void ExpectSaved(const ToyOptions& options, const std::map<int, ToySaved>& saved) {
  const Plan plan = ToyPlan(options);
  int wanted = 0;
  for (int v = 1; v <= options.iterations; ++v) wanted += IsSaved(plan, Version(v));
  EXPECT_EQ(static_cast<int>(saved.size()), wanted);
  for (const auto& [v, found] : saved) {
    ToyOptions later = options;
    later.first_iteration = v;
    later.iterations = std::max(options.iterations, v + 1);
    ToyState state;
    RunToyReference(later, &state);
    EngineOptions begins;
    SetBeginning(later, state, begins);
    const auto same = [&](const std::vector<std::byte>& there, size_t bytes, auto fill) {
      std::vector<std::byte> here(std::max(there.size(), bytes));
      EXPECT_TRUE(fill(here.data()).ok());
      return there.size() >= bytes && std::equal(here.begin(), here.begin() + bytes, there.begin());
    };
    const auto width = static_cast<size_t>(options.width);
    const size_t values = width * SizeOf(options.precision.wire());
    for (int j = 0; j < options.stages; ++j) {
      const StageId stage(j);
      const std::string where = absl::StrCat("version ", v, ", stage ", j);
      const ToySaved::Stage& part = found.stages.at(j);
      EXPECT_TRUE(same(part.masters, width * sizeof(float), [&](std::byte* to) {
        return begins.initialize(stage, to);
      })) << where;
      EXPECT_TRUE(same(part.statistics, sizeof(float), [&](std::byte* to) {
        return begins.initialize_statistics(stage, to);
      })) << where;
      const bool trains = plan.stages[j].sum_bytes > 0;
      EXPECT_EQ(part.others.size(), SavedVersions(plan, stage, Version(v)).size() - 1) << where;
      for (const auto& [label, there] : part.others) {
        EXPECT_TRUE(same(there, values,
                         [&, named = label](std::byte* to) {
                           return begins.beginning.version(stage, named, to);
                         }))
            << where << ", " << LabelText(label);
      }
      const size_t state_bytes = trains ? state.optimizer[j].size() : 0;
      EXPECT_TRUE(same(part.state, state_bytes, [&](std::byte* to) {
        return trains ? begins.beginning.state(stage, to) : absl::OkStatus();
      })) << where;
    }
    EXPECT_EQ(found.scalars.norm, plan.has_norm() ? state.norm : 0) << "version " << v;
    const auto scale = plan.skips() ? std::optional(state.loss_scale) : std::nullopt;
    EXPECT_TRUE(found.scalars.loss_scale == scale) << "version " << v;
    EXPECT_EQ(found.parts, 2 * options.stages) << "a receipt for each part of version " << v;
  }
}

absl::StatusOr<ToyResult> RunToyRing(const ToyOptions& options, const MakeTransports& transports) {
  Plan plan = ToyPlan(options);
  if (plan.window == 0 && plan.requests) {  // not the smallest: what is asked for may need more
    RZ_ASSIGN_OR_RETURN(plan.window, ChooseWindow(plan));
  } else if (plan.window == 0) {
    RZ_ASSIGN_OR_RETURN(plan.window, SmallestWindow(plan));
  }
  const std::vector<StageLayout> layouts = ToyLayouts(options);
  std::vector<TransportOptions> needs;
  for (int w = 0; w < options.workers; ++w) {
    RZ_ASSIGN_OR_RETURN(TransportOptions each, TransportNeeds(plan, WorkerId(w), 2));
    needs.push_back(std::move(each));
  }
  RZ_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Transport>> made, transports(needs));
  const ToyState first = FirstState(options);
  ToyResult result;
  result.memory.resize(options.workers);
  result.operations.resize(options.workers);
  result.flights.resize(options.workers);
  std::mutex mutex;
  std::string errors;
  std::vector<std::thread> threads;
  const auto work = [&](int w) -> absl::Status {
    EngineOptions engine_options{.plan = plan,
                                 .self = WorkerId(w),
                                 .transport = std::move(made[w]),
                                 .layouts = layouts,
                                 .optimizer = options.optimizer,
                                 .loss_scale = options.precision.loss_scale,
                                 .seed = kSeed};
    engine_options.overflows = options.overflows;
    engine_options.metrics_count = 2;
    engine_options.gradient_norms = options.gradient_norms;
    engine_options.wait_timeout = std::chrono::seconds(20);
    engine_options.recorder_events = options.recorder_events;
    engine_options.tier = {.file_name = "the toy's tier", .least_values = 1};
    engine_options.tier.io = MakeMemoryEngine();
    const bool looks = options.collection.any() || options.checkpoint.any() ||
                       !options.requests.empty() || options.first_iteration > 0 ||
                       plan.any_streams_masters();
    const bool streams = options.staged_pieces > 0;
    if ((streams && looks) || plan.any_streams_parameters()) {
      const TierLayout states =
          LayOutTier(plan, WorkerId(w), layouts, options.optimizer, /*least_values=*/1);
      const int64_t versions = LayOutVersions(plan, WorkerId(w)).bytes;
      engine_options.tier.folder = testing::TempDir();
      for (const auto& [bytes, file] : {std::pair(states.bytes, &engine_options.tier.file),
                                        std::pair(versions, &engine_options.tier.versions)}) {
        if (bytes == 0) continue;
        RZ_ASSIGN_OR_RETURN(TierFile made_file, TierFile::Create(testing::TempDir(), bytes));
        *file = std::make_shared<const TierFile>(std::move(made_file));
      }
      RZ_ASSIGN_OR_RETURN(ChosenIoEngine io, MakeIoEngine({}));
      engine_options.tier.io = std::move(io.engine);
    }
    if (options.io) engine_options.tier.io = options.io(std::move(engine_options.tier.io));
    SetBeginning(options, first, engine_options);
    if (plan.checkpoint.any()) {
      engine_options.saver = std::make_unique<CopyingSaver>(options, mutex, result);
    }
    engine_options.on_report = [&](Iteration, LapTask::Kind kind, const std::vector<double>& sums) {
      std::lock_guard lock(mutex);
      (kind == LapTask::Kind::kTrain ? result.losses : result.evaluations).push_back(sums[0]);
    };
    RZ_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Create(std::move(engine_options)));
    std::unique_ptr<TraceStream> trace;
    if (!options.trace_folder.empty()) {
      RZ_ASSIGN_OR_RETURN(
          trace, TraceStream::Create({.folder = options.trace_folder,
                                      .head = {.worker = WorkerId(w), .workers = options.workers},
                                      .recorder = &engine->recorder()}));
    }
    const absl::Status ran = ToyWorker(options, engine.get(), first.running, &result).Run();
    if (!ran.ok()) return Annotate(ran, engine->Flight("").now.says);
    if (trace != nullptr) RZ_RETURN_IF_ERROR(trace->Finish());
    const TransportStats stats = engine->stats().transport;
    std::lock_guard lock(mutex);
    result.memory[w] = engine->stats().memory;
    result.skipped = engine->stats().skipped_updates;
    result.operations[w] = engine->stats().operations_known;
    const bool tells = options.gradient_norms && w == 0;
    const int end = AsAsked(options).iterations;
    for (int t = std::max(plan.first_iteration, end - 3); t < end && tells; ++t) {
      result.norms.push_back(std::sqrt(engine->GradientSquares(Iteration(t))));
    }
    result.flights[w] = engine->Flight("the test is over");
    for (const Channel channel :
         {Channel::kForwardCopy, Channel::kBackwardCopy, Channel::kInject}) {
      result.parameter_bytes_sent += stats.bytes_sent[size_t(channel)];
    }
    for (const Channel channel : {Channel::kSum, Channel::kRetire, Channel::kFinished}) {
      result.sum_bytes_sent += stats.bytes_sent[size_t(channel)];
    }
    return absl::OkStatus();
  };
  for (int w = 0; w < options.workers; ++w) {
    threads.emplace_back([&, w] {
      const absl::Status status = work(w);
      std::lock_guard lock(mutex);
      if (!status.ok()) {
        errors = absl::StrCat(errors, "\nworker ", w, ": ", status.ToString());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!errors.empty()) return absl::InternalError(errors);
  return result;
}

namespace {

// In blocks of 65,536 values.
double SquaresOf(const float* values, int count) {
  double squares = 0;
  for (int begin = 0; begin < count; begin += 65536) {
    double lanes[kSquareLanes] = {};
    reference::SquaresPass(values + begin, std::min(count - begin, 65536), lanes);
    squares += std::accumulate(std::begin(lanes), std::end(lanes), 0.0);
  }
  return squares;
}

// By the norm of an averaged gradient.
float ClippedBy(double norm, double max_norm) {
  return norm + 1e-6 > max_norm ? float(max_norm / (norm + 1e-6)) : 1.0f;
}

// By stage, what each gradient is multiplied by; `norms` has those of all iterations up to this.
std::vector<float> ClipFactors(const ToyOptions& o, const std::vector<double>& squares,
                               const std::vector<double>& norms, double scale) {
  std::vector<float> factors(o.stages, 1.0f);
  const double max_norm = o.optimizer.max_norm;
  const double divisor = o.workers * o.laps * scale;
  for (int j = 0; j < o.stages; ++j) {
    switch (o.clipping) {
      case Clipping::kOff: break;
      case Clipping::kExact: factors[j] = ClippedBy(norms.back(), max_norm); break;
      case Clipping::kPerStage:
        factors[j] = ClippedBy(std::sqrt(squares[j]) / divisor, max_norm);
        break;
      case Clipping::kPrevious:
        if (norms.size() > 1) factors[j] = ClippedBy(norms[norms.size() - 2], max_norm);
        break;
    }
  }
  return factors;
}

}  // namespace

ToyResult RunToyReference(const ToyOptions& o, ToyState* first) {
  const Toy toy(o);
  ToyOptions wide = o;  // it keeps everything in fp32, and rounds what would travel
  wide.precision = {};
  const std::vector<StageLayout> layouts = ToyLayouts(wide);
  const Precision& precision = o.precision;
  const auto travels = [&](const Buffer& masters) {
    std::vector<float> values(masters.as<float>().begin(), masters.as<float>().begin() + o.width);
    for (float& value : values) value = Rounded(precision.wire(), value);
    return values;
  };
  const int s = o.stages;
  std::vector<Buffer> now, before, sums;  // θ_t, θ_{t-1}, sums by stage
  // What is guessed of θ_t from θ_{t-1} and θ_{t-2}, and of θ_{t+1} from θ_t and θ_{t-1}.
  std::vector<std::vector<float>> guess(s), next_guess(s);
  std::deque<StageOptimizer> optimizers;  // they do not move
  std::vector<float> running(s, 0.0f);
  for (int j = 0; j < s; ++j) {
    now.push_back(MakeHeapBuffer(layouts[j].parameter_bytes));
    before.push_back(MakeHeapBuffer(layouts[j].parameter_bytes));
    sums.push_back(MakeHeapBuffer(std::max<int64_t>(1, layouts[j].sum_bytes)));
    optimizers.emplace_back(o.optimizer, layouts[j]);
    for (int i = 0; i < o.width; ++i) now[j].as<float>()[i] = InitialValue(j, i);
    std::memcpy(before[j].data(), now[j].data(), now[j].size());
    guess[j] = next_guess[j] = travels(now[j]);
  }
  ToyResult result;
  // Samples, dealt one micro-batch after the other until an epoch has no more.
  const int64_t full = o.samples.micro_batch, epoch = o.samples.per_epoch;
  int64_t left = 0, in_iteration = 0;
  // In dp an iteration knows of all before it, else not of the last one. The recurrence is proven
  // beside DeepSpeed's (tests/zero/config/deepspeed_test.cc).
  LossScale scales(precision.loss_scale,
                   {.lag = o.rule == Rule::kDp ? 1 : 2, .warmup = o.warmup_updates});
  const auto average = [&] { return double(in_iteration) / double(full); };
  const auto evaluate = [&](int version) {
    double sum = 0;
    for (int m = 0; m < o.workers * o.evaluation.laps; ++m) {
      float a = Data(1000000 + version, m);
      for (int j = 0; j < s; ++j) {
        const bool tied = o.tied && j == s - 1 && j > 0;
        a = toy.Forward(travels(now[j]).data(), tied ? travels(now[0]).data() : nullptr, a) +
            running[j];
      }
      sum += double(a);
    }
    result.evaluations.push_back(sum);
  };
  const auto asked_evaluation = [&](int version) {
    return std::ranges::count(o.evaluation.versions, version) > 0;
  };
  const auto collect = [&] {
    std::vector<float>& to = result.collected;
    for (int j = 0; j < s; ++j) {
      const std::span<float> theta = now[j].as<float>();
      to.insert(to.end(), theta.begin(), theta.begin() + o.width);
      to.push_back(running[j]);
      if (!toy.Trains(j) || o.collection.parameters_only) continue;
      for (int i = 0; i < o.width; ++i) {
        const float divisor = static_cast<float>(average() * result.scales.back());
        to.push_back(Rounded(precision.sums, sums[j].as<float>()[i] / divisor));
      }
      for (int parameter = 0; parameter < 2; ++parameter) {
        const StageOptimizer::ParameterState state = optimizers[j].state(parameter);
        to.push_back(static_cast<float>(state.updates));
        to.insert(to.end(), state.first.begin(), state.first.end());
        to.insert(to.end(), state.second.begin(), state.second.end());
      }
    }
  };
  const auto save = [&] {
    *first = {.guess = guess, .next_guess = next_guess, .running = running};
    for (int j = 0; j < s; ++j) {
      const std::span<float> theta = now[j].as<float>();
      first->theta.emplace_back(theta.begin(), theta.begin() + o.width);
      first->before.push_back(travels(before[j]));
      const StateLayout layout = StateLayout::Make(o.optimizer, layouts[j]);
      CopyState(layout, optimizers[j],
                first->optimizer.emplace_back(static_cast<size_t>(layout.bytes)).data());
    }
    if (!result.norms.empty()) first->norm = result.norms.back();
    first->loss_scale = scales.history();
  };
  for (int t = 0; t <= o.iterations; ++t) {
    const bool earlier = t < o.first_iteration && o.workers_before > 0;
    const int n = earlier ? o.workers_before : o.workers;
    const int laps = earlier ? o.laps_before : o.laps;
    if (t == o.first_iteration) {
      if (first != nullptr) save();
      result.losses.clear();
      result.evaluations.clear();
      result.collected.clear();
    }
    if (t == o.iterations) break;
    const bool due = o.evaluation.every > 0 && t > 0 && t % o.evaluation.every == 0;
    if (due || asked_evaluation(t)) evaluate(t);
    const double scale = scales.Of(t);
    result.scales.push_back(scale);
    double loss = 0;
    in_iteration = 0;
    if (left == 0) left = epoch;
    for (int m = 0; m < n * laps; ++m) {
      const int w = m % n;
      const int64_t samples = epoch == 0 ? full : std::min(full, left);
      if (samples == 0) continue;
      in_iteration += samples;
      left -= epoch == 0 ? 0 : samples;
      const float weight = float(samples) / float(full);
      std::vector<std::vector<float>> theta(s);
      for (int j = 0; j < s; ++j) {
        // Costs 1 and 2 a stage (1 if frozen): fresh iff P_j >= (N-1-w)·T/N + min(slack·T/S, T/N).
        const int64_t total = 3 * s - 2 * o.frozen_prefix;
        // Strict: by forwards, of cost 1.
        const int64_t cost_before = IsStrict(o) ? j : 3 * j - 2 * std::min(j, o.frozen_prefix);
        const int64_t slack = std::min<int64_t>(o.slack * total * n, total * s);
        bool fresh = cost_before * n * s >= (n - 1 - w) * total * s + slack;
        const bool of_dp = o.rule == Rule::kDp || t < o.warmup_updates;
        if (of_dp || m >= n || !toy.Trains(j))
          fresh = true;
        else if (o.rule == Rule::kCdpV1)
          fresh = false;
        theta[j] = travels(fresh ? now[j] : before[j]);
        if (!fresh && o.predict) theta[j] = guess[j];
      }
      std::vector<float> a = {Data(t, m)};
      for (int j = 0; j < s; ++j) {
        const bool tied = o.tied && j == s - 1 && j > 0;
        a.push_back(toy.Forward(theta[j].data(), tied ? theta[0].data() : nullptr, a[j]));
        running[j] = float(0.75 * double(running[j]) + 0.25 * double(a[j]));
      }
      for (int j = o.frozen_prefix; j < s; ++j) {
        std::vector<float> gradient;
        toy.Gradient(theta[j].data(), o.tied && j == s - 1 && j > 0 ? theta[0].data() : nullptr,
                     a[j], scale, &gradient);
        float* sum = sums[j].as<float>().data();
        for (float& value : gradient) {
          value = Rounded(precision.compute, value);
          if (samples < full) value *= weight;
        }
        if (precision.sums == ValueType::kBf16) {
          std::vector<uint16_t> narrow(o.width);
          for (int i = 0; i < o.width; ++i) narrow[i] = reference::ToWire(ValueType::kBf16, sum[i]);
          const uint64_t name = HashName("s" + std::to_string(j) + ".used");
          const RoundingKey key{MixKeys({kSeed, HashName("sum"), name}),
                                (uint64_t(t) << 32) + uint64_t(m)};
          reference::AddRoundedPass(key, 0, m == 0 ? nullptr : narrow.data(), gradient.data(),
                                    narrow.data(), o.width);
          reference::WidenPass(ValueType::kBf16, narrow.data(), sum, o.width);
        } else {
          for (int i = 0; i < o.width; ++i) sum[i] = m == 0 ? gradient[i] : sum[i] + gradient[i];
        }
        const OverflowPlace place{Iteration(t), StageId(j), m};
        if (std::count(o.overflows.begin(), o.overflows.end(), place) > 0) sum[0] = INFINITY;
      }
      loss += (epoch == 0 ? 1.0 : double(samples)) * double(a.back());
    }
    result.losses.push_back(loss);
    std::vector<double> squares(s, 0.0);
    for (int j = o.frozen_prefix; j < s; ++j) {
      squares[j] = SquaresOf(sums[j].as<float>().data(), o.width);
    }
    double all = 0;
    for (const double stage : squares) all += stage;
    result.norms.push_back(std::sqrt(all) / (average() * scale));
    const std::vector<float> clip = ClipFactors(o, squares, result.norms, scale);
    const bool skips = precision.skip_overflows && !std::isfinite(all);
    const int updates = t - result.skipped;
    RZ_CHECK(scales.Note(t, skips).ok(), "the loss scale is at its minimum");
    if (skips) ++result.skipped;
    for (int j = o.frozen_prefix; j < s; ++j) {
      sums[j].data()[layouts[j].trailer_offset_bytes] = std::byte{1};  // only the first contributed
      std::memcpy(before[j].data(), now[j].data(), now[j].size());
      std::swap(guess[j], next_guess[j]);
      if (skips) {
        next_guess[j] = travels(now[j]);
        continue;
      }
      optimizers[j].Update({.iteration = updates,
                            .divisor = average(),
                            .loss_scale = scale,
                            .clip = clip[j],
                            .theta = before[j].data(),
                            .sum = sums[j].data()},
                           now[j].data());
      const bool sgd = o.optimizer.type == OptimizerOptions::Type::kSgd;
      const double factor = sgd ? o.optimizer.sgd.momentum : 1;
      for (int i = 0; i < o.width; ++i) {
        const float made = now[j].as<float>()[i];
        const float step = made - before[j].as<float>()[i];
        next_guess[j][i] =
            Rounded(precision.wire(),
                    std::fma(float(o.optimizer.prediction_factor.value_or(factor)), step, made));
      }
    }
    if (IsCollected(ToyPlan(o), Version(t + 1))) collect();
  }
  if (o.evaluation.every > 0 || asked_evaluation(o.iterations)) evaluate(o.iterations);
  for (int j = 0; j < s; ++j) {
    const std::span<float> values = now[j].as<float>();
    result.parameters.insert(result.parameters.end(), values.begin(), values.begin() + o.width);
    result.statistics.push_back(running[j]);
  }
  return result;
}

}  // namespace ringzero
