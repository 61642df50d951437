// Cuts described layers into stages.
#include "zero/model_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sharding/memory/block_table.h"
#include "sharding/study/disk_verdict.h"
#include "sharding/study/simulate.h"
#include "zero/state_tier.h"
#include "zero/version_files.h"

namespace ringzero {
namespace {

// A layer as numbers, costs of a whole micro-batch.
LayerInfo InfoOf(const LayerDescription& layer, const PlanRequest& request) {
  const int micro_batch = request.micro_batch;
  const StageLayout layout =
      StageLayout::Make(layer.parameters, layer.statistics, request.precision);
  return {.name = layer.name,
          .parameter_bytes = layout.parameter_bytes,
          .sum_bytes = layout.sum_bytes,
          .buffer_bytes = layout.statistics_bytes,
          .forward_cost = layer.cost.forward * micro_batch,
          .backward_cost = layer.cost.backward * micro_batch,
          .last_use = layer.last_use,
          .trainable = layout.trainable_count > 0};
}

StageLayout LayoutOf(const ModelDescription& model, const StagePlan& stage,
                     const Precision& precision) {
  std::vector<ParameterSpec> parameters;
  std::vector<StatisticSpec> statistics;
  for (int i = stage.first_layer; i < stage.end_layer; ++i) {
    const LayerDescription& layer = model.layers[i];
    parameters.insert(parameters.end(), layer.parameters.begin(), layer.parameters.end());
    statistics.insert(statistics.end(), layer.statistics.begin(), layer.statistics.end());
  }
  return StageLayout::Make(std::move(parameters), std::move(statistics), precision);
}

// A frozen stage that a later stage's backward reads (a frozen embedding tied to the head) needs a
// backward copy, so it takes part in the backward, with nothing to add; and so does all after it.
void ExtendBackward(std::vector<StagePlan>& stages) {
  for (size_t i = 0; i < stages.size(); ++i) {
    const int last_use = stages[i].last_use.value;
    if (stages[i].has_backward || last_use < 0 || !stages[last_use].has_backward) continue;
    for (size_t j = i; j < stages.size(); ++j) stages[j].has_backward = true;
  }
}

std::vector<std::string> WarningsOf(const Plan& plan) {
  std::vector<std::string> warnings;
  if (plan.zero_stage == 0) return warnings;  // everybody owns all
  if (plan.stage_count() < plan.workers) {
    warnings.push_back(absl::StrCat("only ", plan.stage_count(), " stages for ", plan.workers,
                                    " workers: ", plan.workers - plan.stage_count(),
                                    " of them own nothing"));
  }
  const OwnerBytes owners = BytesPerOwner(plan);
  if (owners.mean > 0 && static_cast<double>(owners.max) > 1.5 * owners.mean) {
    warnings.push_back(absl::StrCat("the fullest owner holds ",
                                    static_cast<double>(owners.max) / owners.mean,
                                    " times the mean: stages are of very different size"));
  }
  return warnings;
}

absl::Status CheckPrecision(const Precision& precision) {
  if (precision.wire() != precision.compute) {
    return InvalidArgument("parameters travel as ", ToString(precision.wire()),
                           ", but layers compute in ", ToString(precision.compute),
                           ": they compute with a copy where it lies, so both are one");
  }
  if (precision.sums == ValueType::kFp16) {
    return absl::InvalidArgumentError("sums travel as fp32 or bf16, found fp16");
  }
  if (!(precision.loss_scale.initial > 0)) {
    return InvalidArgument("the loss scale must be above 0, found ", precision.loss_scale.initial);
  }
  return absl::OkStatus();
}

// All of the plan but its stages.
Plan WithoutStages(const PlanRequest& request) {
  Plan plan{.workers = request.workers,
            .zero_stage = request.zero_stage,
            .laps = request.laps,
            .rule = request.rule,
            .slack = request.slack,
            .predict = request.predict,
            .pending = request.pending,
            .window = request.window,
            .stagger = request.stagger,
            .retain = request.retain,
            .exchange = request.exchange,
            .iterations = request.iterations,
            .first_iteration = request.first_iteration,
            .warmup_updates = request.warmup_updates,
            .strict = request.strict,
            .clipping = request.clipping,
            .skip_overflows = request.precision.skip_overflows,
            .evaluation = request.evaluation,
            .collection = request.collection,
            .checkpoint = request.checkpoint,
            .requests = request.requests,
            .hosts = request.lends ? request.hosts : std::vector<int>()};
  if (request.epoch_samples != 0) {
    plan.samples = {.per_epoch = request.epoch_samples, .micro_batch = request.micro_batch};
  }
  return plan;
}

// With a window.
absl::StatusOr<PlanProof> Prove(const Plan& plan, const PlanRequest& request) {
  Plan resolved = plan;
  if (request.proof.has_value()) {
    if (plan.window == 0) resolved.window = request.proof->window();
    if (request.proof->Covers(resolved)) return *request.proof;
    resolved.window = plan.window;
  }
  // What is lent takes no slots at all.
  if (request.hosts.size() == 1 && !plan.lends()) {
    RZ_ASSIGN_OR_RETURN(resolved.window, ChooseFreeWindow(plan));
  }
  return ProvePlan(resolved);
}

// A given one.
absl::Status CheckStaging(const PlanRequest& request, const PlannedModel& planned) {
  const Plan& plan = planned.plan;
  int64_t piece = 0;
  for (int w = 0; w < plan.workers; ++w) {
    const TierLayout tier = LayOutTier(plan, WorkerId(w), planned.layouts, request.optimizer);
    piece = std::max(piece, tier.piece_bytes);
  }
  if (plan.staging_bytes >= piece) return absl::OkStatus();
  return InvalidArgument("cyclic.offload.staging: wanted at least ", piece,
                         " bytes, which one piece of these states has, found ", plan.staging_bytes);
}

// By hand; or each owner's last stages, until they have the share of what it can stream. An owner
// updates its last stage first, and has all of a step to fetch its states: it may wait longest.
absl::Status ChooseStreams(const PlanRequest& request, PlannedModel& planned) {
  if (request.streamed_share <= 0) return absl::OkStatus();
  Plan& plan = planned.plan;
  std::vector<int64_t> bytes;
  std::map<WorkerId, int64_t> all, streamed;
  const bool apart = request.precision.wire() != ValueType::kFp32;
  const bool masters = apart && plan.masters_may_stream();
  for (int j = 0; j < plan.stage_count(); ++j) {
    const StageLayout& layout = planned.layouts[j];
    bytes.push_back(StreamedBytes(layout, StatePieces(request.optimizer, layout, masters)));
    all[plan.stages[j].owner] += bytes[j];
  }
  const auto stream = [&](int j) {
    plan.stages[j].streamed_bytes = bytes[j];
    plan.stages[j].streams_masters = masters && bytes[j] > 0;
  };
  for (int j = plan.stage_count(); j-- > 0 && request.streamed_stages.empty();) {
    const WorkerId owner = plan.stages[j].owner;
    const double wanted = request.streamed_share * static_cast<double>(all[owner]);
    if (static_cast<double>(streamed[owner]) >= wanted) continue;
    stream(j);
    streamed[owner] += bytes[j];
  }
  for (const int j : request.streamed_stages) {
    if (j >= plan.stage_count()) {
      return InvalidArgument("cyclic.offload.stages: wanted stages from 0 to ",
                             plan.stage_count() - 1, ", found ", j);
    }
    stream(j);
  }
  if (!plan.any_streams()) {
    planned.warnings.push_back(
        "no optimizer state goes to NVMe: only large parameters have it there, of optimizers that "
        "update in one pass (not Muon, not LAMB)");
    return absl::OkStatus();
  }
  if (apart && !masters) {
    planned.warnings.push_back(
        "fp32 masters stay in memory: versions are collected while the next ones are made");
  }
  if (plan.zero_stage == 0 && plan.checkpoint.any()) {  // decision 60
    planned.warnings.push_back("in stage 0 of ZeRO checkpoints copy the states on NVMe");
  }
  plan.staging_bytes = request.staging_bytes;
  if (plan.staging_bytes > 0) return CheckStaging(request, planned);
  RZ_ASSIGN_OR_RETURN(plan.staging_bytes, ChooseStaging(plan));
  return absl::OkStatus();
}

// An owner's first stages stay in memory, as far as they have room: their versions are made last,
// and read first.
absl::Status ChooseFiles(const PlanRequest& request, PlannedModel& planned) {
  if (!request.parameters_in_memory.has_value()) return absl::OkStatus();
  Plan& plan = planned.plan;
  constexpr char kKey[] = "zero_optimization.offload_param.device: nvme ";
  if (plan.workers > 1 && !(plan.hosts.size() == 1 && plan.lends())) {
    return InvalidArgument(kKey,
                           "wants workers of one host that lend memory (cyclic.transport "
                           "\"local\" or \"shm\", no cyclic.checksums)");
  }
  std::map<WorkerId, int64_t> kept;  // elements
  for (int j = 0; j < plan.stage_count(); ++j) {
    StagePlan& stage = plan.stages[j];
    const int64_t more = stage.parameter_bytes / SizeOf(request.precision.wire());
    const bool fits = kept[stage.owner] + more <= *request.parameters_in_memory;
    stage.streams_parameters = !fits && plan.parameters_may_stream(StageId(j));
    if (!stage.streams_parameters) kept[stage.owner] += more;
  }
  if (!plan.any_streams_parameters()) {
    planned.warnings.push_back(absl::StrCat(
        "no parameters go to NVMe: offload_param.max_in_cpu keeps ", *request.parameters_in_memory,
        " elements of each worker in memory, and stages that are tied, frozen or retained stay "
        "there, too"));
    return absl::OkStatus();
  }
  plan.resident_slots = request.resident_slots;
  int64_t in_files = 0, slots = 0;
  for (int w = 0; w < plan.workers; ++w) {
    in_files += LayOutVersions(plan, WorkerId(w)).bytes;
    for (const OwnBlock& own : StateBlocks(plan, WorkerId(w), {})) {
      if (own.block.kind == BlockKind::kResident) slots += own.bytes;
    }
  }
  if (slots >= in_files) {
    planned.warnings.push_back(absl::StrCat(
        "parameters on NVMe save no memory: their ", in_files, " bytes come through slots of ",
        slots, " (each for the largest stage): more cyclic.stages make slots smaller"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PlannedModel> PlanModel(const ModelDescription& model, const PlanRequest& request) {
  if (request.question.has_value()) return PlanFastest(model, request);
  if (request.workers < 1 || request.micro_batch < 1) {
    return InvalidArgument("workers and micro_batch must be at least 1, found ", request.workers,
                           " and ", request.micro_batch);
  }
  RZ_RETURN_IF_ERROR(CheckPrecision(request.precision));
  std::vector<LayerInfo> infos;
  for (const LayerDescription& layer : model.layers) infos.push_back(InfoOf(layer, request));
  PartitionOptions options{
      .balance = request.balance, .stages = request.stages, .first_layers = request.boundaries};
  if (options.stages == 0) options.stages = DefaultStageCount(infos, request.workers);
  const auto given = std::ssize(request.boundaries);
  if (given > 0 && request.stages != 0 && request.stages != given) {
    return InvalidArgument(request.stages, " stages, but ", given, " boundaries");
  }
  PlannedModel planned{.precision = request.precision};
  planned.plan = WithoutStages(request);
  Plan& plan = planned.plan;
  const bool collects = request.collection.any() && !request.collection.parameters_only;
  RZ_ASSIGN_OR_RETURN(plan.stages, PartitionLayers(infos, options));
  for (StagePlan& stage : plan.stages) {
    const StageLayout& layout =
        planned.layouts.emplace_back(LayoutOf(model, stage, request.precision));
    stage.parameter_bytes = layout.parameter_bytes;
    stage.master_bytes = layout.master_bytes;
    stage.sum_bytes = layout.sum_bytes;
    stage.buffer_bytes = layout.statistics_bytes;
    stage.trained_parameters = layout.trainable_count;
    if (collects) stage.state_bytes = StateLayout::Make(request.optimizer, layout).bytes;
  }
  ExtendBackward(plan.stages);
  AssignOwners(plan);
  RZ_RETURN_IF_ERROR(ChooseFiles(request, planned));
  RZ_RETURN_IF_ERROR(ChooseStreams(request, planned));
  RZ_RETURN_IF_ERROR(CheckPlan(plan));
  RZ_ASSIGN_OR_RETURN(planned.proof, Prove(plan, request));
  plan.window = planned.proof.window();
  for (const std::string& warning : WarningsOf(plan)) planned.warnings.push_back(warning);
  return planned;
}

}  // namespace ringzero
