// Turns, updates and versions of an optimizer that stands alone.
#include "zero/optimizer/sharded_optimizer.h"

#include <algorithm>
#include <cstring>
#include <latch>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "p2p/transport.h"
#include "zero/gradient_sum.h"
#include "zero/optimizer/optimizer_options.h"

namespace ringzero {
namespace {

absl::Status Check(const ShardedOptimizerOptions& options, const std::vector<float*>& values,
                   const FlatShards& shards) {
  RZ_RETURN_IF_ERROR(CheckOptimizer(options.optimizer));
  RZ_RETURN_IF_ERROR(CheckGroups(options.optimizer, shards.layouts));
  if (values.size() != options.parameters.size()) {
    return InvalidArgument("values of ", values.size(), " parameters, but ",
                           options.parameters.size(), " are described");
  }
  for (const auto& [name, value] :
       {std::pair("micro_batches", options.micro_batches), std::pair("threads", options.threads)}) {
    if (value >= 1 && value < 1 << 15) continue;
    return InvalidArgument(name, " must be 1 to 32767, found ", value);
  }
  return absl::OkStatus();
}

std::vector<AgreementSection> AgreementOf(const ShardedOptimizerOptions& options) {
  std::string parameters;
  for (const ParameterSpec& spec : options.parameters) {
    absl::StrAppend(&parameters, spec.name, " = [", absl::StrJoin(spec.shape, ", "), "] strides [",
                    absl::StrJoin(spec.strides, ", "), "]", spec.trainable ? "" : " frozen", "\n");
  }
  return {{"versions", WireVersions()},
          {"optimizer", absl::StrCat("micro_batches = ", options.micro_batches, "\n",
                                     DescribeOptimizer(options.optimizer))},
          {"parameters", parameters}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardedOptimizer>> ShardedOptimizer::Create(
    ShardedOptimizerOptions options, std::vector<float*> values,
    const std::optional<ShardJob>& job) {
  const int workers = job.has_value() ? job->seat.workers : 1;
  absl::StatusOr<FlatShards> shards = FlatShards::Make(options.parameters, workers);
  const absl::Status good = shards.ok() ? Check(options, values, *shards) : shards.status();
  if (workers == 1) {
    RZ_RETURN_IF_ERROR(good);
    RZ_ASSIGN_OR_RETURN(auto transports,
                        CreateLocalTransports({ShardRing::Needs(*shards, WorkerId(0), true)}));
    return CreateOver(std::move(options), std::move(values), std::move(transports[0]), true);
  }
  if (!good.ok()) {
    Disagree(job->seat, good);
    return good;
  }
  RZ_RETURN_IF_ERROR(Agree(job->seat, AgreementOf(options)));
  RZ_ASSIGN_OR_RETURN(const std::vector<int> share,
                      WorkersThatShare(job->transport, job->seat.hosts, workers));
  const bool lends = share.size() == 1;
  TransportOptions needs = ShardRing::Needs(*shards, job->seat.self, lends);
  needs.peer_timeout = job->peer_timeout;
  RZ_ASSIGN_OR_RETURN(Connection made, Connect(job->seat, {.transport = job->transport,
                                                           .options = std::move(needs),
                                                           .take_endpoint = job->take_endpoint}));
  return CreateOver(std::move(options), std::move(values), std::move(made.transport), lends);
}

absl::StatusOr<std::unique_ptr<ShardedOptimizer>> ShardedOptimizer::CreateOver(
    ShardedOptimizerOptions options, std::vector<float*> values,
    std::unique_ptr<Transport> transport, bool lends) {
  RZ_ASSIGN_OR_RETURN(FlatShards made_shards,
                      FlatShards::Make(options.parameters, transport->workers()));
  RZ_RETURN_IF_ERROR(Check(options, values, made_shards));
  auto shards = std::make_unique<FlatShards>(std::move(made_shards));
  RZ_ASSIGN_OR_RETURN(auto ring,
                      ShardRing::Create(*shards, std::move(transport),
                                        {.lends = lends, .wait_timeout = options.wait_timeout}));
  std::unique_ptr<ShardedOptimizer> made(new ShardedOptimizer(std::move(options), std::move(values),
                                                              std::move(shards), std::move(ring)));
  if (const absl::Status begun = made->BeginStreams(); !begun.ok()) {
    made->Abort(begun);  // the others wait for initial values
    return begun;
  }
  RZ_RETURN_IF_ERROR(made->ShareInitialValues());
  return made;
}

ShardedOptimizer::ShardedOptimizer(ShardedOptimizerOptions options, std::vector<float*> values,
                                   std::unique_ptr<FlatShards> shards,
                                   std::unique_ptr<ShardRing> ring)
    : options_(std::move(options)),
      values_(std::move(values)),
      shards_(std::move(shards)),
      ring_(std::move(ring)),
      streams_(shards_->layouts) {
  for (int i = 0; options_.threads > 1 && i < options_.threads; ++i) {
    pools_.push_back(std::make_unique<WorkerPool>());
  }
}

absl::Status ShardedOptimizer::BeginStreams() {
  TierLayout layout;
  if (options_.tier.has_value()) {
    AddStage(stage(), absl::StrCat("shard ", self().value), mine(), options_.optimizer,
             /*masters=*/false, kUpdateBlockValues, layout);
  }
  if (layout.bytes > 0) {
    RZ_ASSIGN_OR_RETURN(tier_, OpenTier(options_.tier->folder, layout.bytes, 0, options_.tier->io));
    const int64_t staging = std::max(options_.tier->staging_bytes, layout.piece_bytes);
    Buffer memory = MakeHeapBuffer(static_cast<size_t>(staging + kDirectAlignment));
    const std::span<std::byte> bytes = memory.as<std::byte>();
    RZ_RETURN_IF_ERROR(streams_.Begin({.layout = std::move(layout),
                                       .tier = std::move(tier_.options),
                                       .staging = bytes,
                                       .keeper = std::move(memory).Seal(),
                                       // Before the others' own: they would blame this worker.
                                       .wait_timeout = options_.wait_timeout / 2,
                                       .failed = [this](const absl::Status& why) {
                                         const std::lock_guard lock(disk_mutex_);
                                         disk_status_ = why;
                                         disk_.notify_all();
                                       }}));
    streams_.Fetch(stage(), nullptr);
  } else if (options_.tier.has_value()) {
    tier_.notes.push_back(absl::StrCat("no state goes to ", options_.tier->folder,
                                       ": parameters are too small, or this optimizer's states "
                                       "do not stream (docs/offload.md)"));
  }
  optimizer_ = std::make_unique<StageOptimizer>(options_.optimizer, mine(), std::span<std::byte>(),
                                                streams_.PiecesOf(stage()));
  streams_.Show(stage(), *optimizer_);
  if (optimizer_->scratch_bytes() > 0) {
    scratch_ = MakeHeapBuffer(static_cast<size_t>(optimizer_->scratch_bytes()));
  }
  return absl::OkStatus();
}

absl::Status ShardedOptimizer::ShareInitialValues() {
  for (size_t i = 0; i < values_.size(); ++i) {
    const FlatShards::Place place = shards_->places[i];
    if (place.shard != self().value) continue;
    const ParameterSpec& spec = mine().parameters[place.parameter];
    // Both: where nothing is trained, no update writes the second.
    for (const int64_t update : {0, 1}) {
      std::memcpy(ring_->Version(update) + spec.offset_bytes, values_[i],
                  spec.numel * sizeof(float));
    }
  }
  return ring_->Spread(0, [this](int shard, const std::byte* from) { Show(shard, from); });
}

void ShardedOptimizer::Show(int shard, const std::byte* parameters) {
  for (size_t i = 0; i < values_.size(); ++i) {
    const FlatShards::Place place = shards_->places[i];
    if (place.shard != shard) continue;
    const ParameterSpec& spec = shards_->layouts[shard].parameters[place.parameter];
    std::memcpy(values_[i], parameters + spec.offset_bytes, spec.numel * sizeof(float));
  }
}

absl::Status ShardedOptimizer::AddGradients(std::span<const float* const> gradients) {
  if (gradients.size() != values_.size()) {
    return InvalidArgument("gradients of ", gradients.size(), " parameters instead of ",
                           values_.size());
  }
  if (ready()) {
    return FailedPrecondition("all ", options_.micro_batches, " micro-batches of update ", update_,
                              " are added: Step");
  }
  if (std::exchange(visited_, false)) streams_.Forget(stage());
  const ShardRing::Turn turn{.update = update_, .lap = lap_, .laps = options_.micro_batches};
  for (int shard = 0; shard < shards_->count(); ++shard) {
    const StageLayout& layout = shards_->layouts[shard];
    if (layout.sum_bytes == 0) continue;
    RZ_ASSIGN_OR_RETURN(std::byte* const sum, ring_->TakeSum(shard, turn));
    for (size_t i = 0; i < gradients.size(); ++i) {
      const FlatShards::Place place = shards_->places[i];
      const bool adds = place.shard == shard && gradients[i] != nullptr &&
                        layout.parameters[place.parameter].trainable;
      if (adds) AddContribution(layout, place.parameter, {gradients[i]}, {}, sum);
    }
    RZ_RETURN_IF_ERROR(ring_->PassSum(shard, turn));
  }
  ++lap_;
  return absl::OkStatus();
}

absl::Status ShardedOptimizer::Step() {
  if (!ready()) {
    return FailedPrecondition("update ", update_, " has ", lap_, " of ", options_.micro_batches,
                              " micro-batches");
  }
  const double divisor = static_cast<double>(ring_->workers()) * options_.micro_batches;
  const std::byte* sum = nullptr;
  if (mine().sum_bytes > 0) {
    RZ_ASSIGN_OR_RETURN(sum, ring_->TakeCompleteSum(update_));
  }
  if (options_.optimizer.max_norm > 0) {
    RZ_ASSIGN_OR_RETURN(norm_, Norm(sum, divisor));
  }
  if (sum != nullptr) {
    std::byte* const made = ring_->Version(update_ + 1);
    RZ_RETURN_IF_ERROR(RunBlocks({.iteration = update_,
                                  .divisor = divisor,
                                  .clip = ClipFactor(norm_, options_.optimizer.max_norm),
                                  .theta = ring_->Version(update_),
                                  .sum = sum,
                                  .scratch = scratch_ ? scratch_.data() : nullptr},
                                 made));
    Show(self().value, made);
  }
  ++update_;
  lap_ = 0;
  return ring_->Spread(update_, [this](int shard, const std::byte* from) { Show(shard, from); });
}

absl::StatusOr<double> ShardedOptimizer::Norm(const std::byte* sum, double divisor) {
  std::vector<double> mine_squares;
  if (sum != nullptr) {
    SumSquares squares(mine(), sum, nullptr);
    while (squares.Step()) {
    }
    mine_squares = squares.values();
  }
  RZ_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> shards,
                      ring_->SpreadSquares(mine_squares, update_));
  std::vector<double> all;  // in the order of the model, whatever the cut is
  for (const FlatShards::Place place : shards_->places) {
    const ParameterSpec& spec = shards_->layouts[place.shard].parameters[place.parameter];
    if (spec.trainable) all.push_back(shards[place.shard][spec.sum_index]);
  }
  return NormOf({all}, divisor);
}

absl::Status ShardedOptimizer::RunBlocks(const UpdateInput& input, std::byte* out) {
  optimizer_->Begin(input);
  const std::vector<UpdateBlock>& blocks = optimizer_->blocks();
  const size_t threads = pools_.size();
  for (size_t begin = 0, end = 0; begin < blocks.size(); begin = end) {
    while (end < blocks.size() && blocks[end].round == blocks[begin].round) ++end;
    if (threads == 0 || end - begin == 1) {
      RunShare(input, out, {.begin = begin, .end = end});
      continue;
    }
    std::latch done(static_cast<std::ptrdiff_t>(threads));
    for (size_t thread = 0; thread < threads; ++thread) {
      pools_[thread]->Add([&, thread, begin, end] {
        RunShare(input, out, {begin, end, thread, threads});
        done.count_down();
      });
    }
    done.wait();
  }
  return StoreAndFetch();
}

void ShardedOptimizer::RunShare(const UpdateInput& input, std::byte* out, const Share& share) {
  StreamedUpdate update(stage(), *optimizer_, streams_, input, out);
  for (size_t i = share.begin; i < share.end; ++i) {
    const int piece = optimizer_->blocks()[i].piece;
    const size_t turn = piece < 0 ? i : static_cast<size_t>(piece);
    if (turn % share.threads != share.thread) continue;
    const auto came = std::make_shared<bool>(false);
    while (!update.Ready(i, [this, came] { Came(*came); })) {
      if (!AwaitDisk(*came).ok()) return;
    }
    share.updates ? update.Do(i) : update.Skip(i);
  }
}

absl::Status ShardedOptimizer::StoreAndFetch() {
  const std::lock_guard lock(disk_mutex_);
  if (!streams_.any() || !disk_status_.ok()) return disk_status_;
  stored_ = false;
  streams_.Store(stage(), [this] {
    streams_.Fetch(stage(), nullptr);
    Came(stored_);
  });
  return absl::OkStatus();
}

absl::Status ShardedOptimizer::DropFetched() {
  if (!streams_.any()) return absl::OkStatus();
  RZ_RETURN_IF_ERROR(AwaitDisk(stored_));
  RunShare({}, nullptr, {.end = optimizer_->blocks().size(), .updates = false});
  const std::lock_guard lock(disk_mutex_);
  return disk_status_;
}

absl::Status ShardedOptimizer::AwaitDisk(const bool& came) const {
  std::unique_lock lock(disk_mutex_);
  disk_.wait(lock, [&] { return came || !disk_status_.ok(); });
  return disk_status_;
}

void ShardedOptimizer::Came(bool& what) {
  const std::lock_guard lock(disk_mutex_);
  what = true;
  disk_.notify_all();
}

double ShardedOptimizer::rate() const {
  const OptimizerOptions& options = options_.optimizer;
  return RateAt(options.curve, options.learning_rate, update_).rate;
}

absl::Status ShardedOptimizer::VisitStates(
    const std::function<void(const NamedState&)>& visit) const {
  RZ_RETURN_IF_ERROR(AwaitDisk(stored_));
  visited_ = true;
  for (const StateSpec& spec : StateLayout::Make(options_.optimizer, mine()).specs) {
    const StageOptimizer::ParameterState state = optimizer_->state(spec.parameter);
    const auto step = static_cast<float>(state.updates);
    const std::string& name = mine().parameters[spec.parameter].name;
    switch (spec.kind) {
      case StateSpec::Kind::kStep: visit({name, spec.name, {&step, 1}}); break;
      case StateSpec::Kind::kFirst: visit({name, spec.name, state.first}); break;
      case StateSpec::Kind::kSecond: visit({name, spec.name, state.second}); break;
    }
  }
  return absl::OkStatus();
}

absl::Status ShardedOptimizer::LoadStates(
    int64_t updates,
    const std::function<absl::Status(const std::string&, const std::string&, std::span<float>)>&
        fill) {
  if (lap_ > 0) return FailedPrecondition("states are loaded between two updates");
  RZ_RETURN_IF_ERROR(DropFetched());
  absl::Status filled;
  for (const StateSpec& spec : StateLayout::Make(options_.optimizer, mine()).specs) {
    StageOptimizer::ParameterState& state = optimizer_->state(spec.parameter);
    float step = 0;
    const bool steps = spec.kind == StateSpec::Kind::kStep;
    const std::span<float> moment =
        spec.kind == StateSpec::Kind::kFirst ? state.first : state.second;
    filled.Update(fill(mine().parameters[spec.parameter].name, spec.name,
                       steps ? std::span(&step, 1) : moment));
    if (!filled.ok()) break;
    if (steps) state.updates = static_cast<int64_t>(step);
  }
  if (streams_.any()) {
    streams_.Adopt(stage());
    streams_.Fetch(stage(), nullptr);
  }
  RZ_RETURN_IF_ERROR(filled);
  // Versions take turns: what the next update begins with lies where its number says.
  if ((updates - update_) % 2 != 0 && mine().parameter_bytes > 0) {
    std::memcpy(ring_->Version(updates), ring_->Version(update_),
                static_cast<size_t>(mine().parameter_bytes));
  }
  update_ = updates;
  return absl::OkStatus();
}

}  // namespace ringzero
