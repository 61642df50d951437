// Checks tensors and hands their memory to ShardedOptimizer, which computes the update. Runs a
// worker of a loop, in this process alone or in a job.
#include "integrations/torch/run_loop.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "integrations/torch/ring_model.h"
#include "integrations/torch/run_workers.h"
#include "integrations/torch/tcp_rendezvous.h"
#include "p2p/failure.h"
#include "p2p/job/join_job.h"
#include "p2p/job/rendezvous.h"

namespace ringzero {
namespace {

bool IsDenseFloat(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.device().is_cpu() &&
         tensor.scalar_type() == at::kFloat && tensor.is_non_overlapping_and_dense();
}

std::string Describe(const at::Tensor& tensor) {
  std::string text =
      absl::StrCat(c10::toString(tensor.scalar_type()), " on ", tensor.device().str(),
                   " of shape [", absl::StrJoin(tensor.sizes(), ", "), "]");
  if (tensor.layout() != at::kStrided) return absl::StrCat("sparse ", text);
  return absl::StrCat(text, " with strides [", absl::StrJoin(tensor.strides(), ", "), "]");
}

// Does value i of one storage belong to value i of the other? The stride of a dimension of size 1
// does not matter.
bool LaidOutAlike(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  for (int64_t dim = 0; dim < a.dim(); ++dim) {
    if (a.size(dim) > 1 && a.stride(dim) != b.stride(dim)) return false;
  }
  return true;
}

absl::Status Check(const std::vector<NamedTensor>& parameters) {
  for (const auto& [name, tensor] : parameters) {
    if (tensor.defined() && IsDenseFloat(tensor)) continue;
    return InvalidArgument("parameter \"", name,
                           "\": wanted Float on cpu, without gaps or overlap, found ",
                           tensor.defined() ? Describe(tensor) : "nothing");
  }
  const auto begin = [](const NamedTensor& p) { return p.tensor.const_data_ptr<float>(); };
  std::vector<NamedTensor> sorted = parameters;  // by address
  std::ranges::sort(sorted, {}, begin);
  for (size_t i = 1; i < sorted.size(); ++i) {
    const NamedTensor &before = sorted[i - 1], &after = sorted[i];
    if (begin(after) >= begin(before) + before.tensor.numel()) continue;
    return InvalidArgument("parameters \"", before.name, "\" and \"", after.name,
                           "\" have memory in common");
  }
  return absl::OkStatus();
}

using Loop = std::function<absl::Status(LoopWorker&)>;

absl::Status RunWorker(const LoopOptions& options, const Loop& loop, std::optional<ShardJob> job) {
  PrepareTorch(options.threads);
  LoopWorker worker(std::move(job));
  const absl::Status status = Guard([&] { return loop(worker); });
  worker.End(status);
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TorchShardedOptimizer>> TorchShardedOptimizer::Create(
    const std::vector<NamedTensor>& parameters, ShardedOptimizerOptions options,
    const std::optional<ShardJob>& job) {
  std::unique_ptr<TorchShardedOptimizer> made(new TorchShardedOptimizer);
  if (const absl::Status bad = Check(parameters); !bad.ok()) {
    if (job.has_value()) Disagree(job->seat, bad);
    return bad;
  }
  std::vector<float*> values;
  for (const auto& [name, tensor] : parameters) {
    made->parameters_.push_back({name, tensor, tensor.detach(), tensor.requires_grad()});
    options.parameters.push_back({.name = name,
                                  .shape = tensor.sizes().vec(),
                                  .strides = tensor.strides().vec(),
                                  .trainable = tensor.requires_grad()});
    values.push_back(made->parameters_.back().values.data_ptr<float>());
  }
  RZ_ASSIGN_OR_RETURN(made->sharded_,
                      ShardedOptimizer::Create(std::move(options), std::move(values), job));
  return made;
}

absl::StatusOr<const float*> TorchShardedOptimizer::GradientOf(const Parameter& parameter) {
  const at::Tensor& tensor = parameter.tensor;
  if (!tensor.is_same_size(parameter.values) || !tensor.is_alias_of(parameter.values)) {
    return FailedPrecondition(
        "parameter \"", parameter.name,
        "\" has got other memory since the optimizer was made (a conversion of the "
        "model, or set_data): make it afterwards");
  }
  const at::Tensor& gradient = tensor.grad();
  if (!gradient.defined()) return nullptr;
  if (!parameter.trainable) {
    return FailedPrecondition("parameter \"", parameter.name,
                              "\" has a gradient, but required none when the optimizer was made");
  }
  if (!IsDenseFloat(gradient) || !LaidOutAlike(gradient, tensor)) {
    return InvalidArgument("gradient of \"", parameter.name, "\": wanted ", Describe(tensor),
                           ", found ", Describe(gradient));
  }
  return gradient.const_data_ptr<float>();
}

absl::Status TorchShardedOptimizer::Step() {
  std::vector<const float*> gradients;
  for (const Parameter& parameter : parameters_) {
    RZ_ASSIGN_OR_RETURN(const float* const gradient, GradientOf(parameter));
    gradients.push_back(gradient);
  }
  RZ_RETURN_IF_ERROR(sharded_->AddGradients(gradients));
  if (!sharded_->ready()) return absl::OkStatus();
  RZ_RETURN_IF_ERROR(sharded_->Step());
  // As torch's own in-place operations do: a graph from before does not go on with the new values.
  for (const Parameter& parameter : parameters_) {
    if (parameter.trainable) parameter.tensor.unsafeGetTensorImpl()->bump_version();
  }
  return absl::OkStatus();
}

void TorchShardedOptimizer::ZeroGrad() {
  for (const Parameter& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

absl::StatusOr<TorchShardedOptimizer*> LoopWorker::MakeOptimizer(
    const std::vector<NamedTensor>& parameters, const ShardedOptimizerOptions& options) {
  if (std::exchange(asked_, true)) {
    return absl::FailedPreconditionError(
        "a loop has one optimizer: give it the parameters of all models");
  }
  RZ_ASSIGN_OR_RETURN(optimizer_, TorchShardedOptimizer::Create(parameters, options, job_));
  if (workers() > 1 && self().value == 0) {
    std::fprintf(stderr, "optimizer: %s\n", DescribeOwners(optimizer_->sharded().shards()).c_str());
  }
  for (const std::string& note : optimizer_->sharded().notes()) {
    if (self().value == 0) std::fprintf(stderr, "optimizer: %s\n", note.c_str());
  }
  return optimizer_.get();
}

void LoopWorker::End(const absl::Status& status) {
  if (status.ok()) return;
  if (optimizer_ != nullptr) {
    optimizer_->Abort(status);
  } else if (workers() > 1 && !asked_) {
    Disagree(job_->seat, status);  // the others wait for its numbers
  }
}

absl::Status RunLoop(const LoopOptions& options, const Loop& loop) {
  const LaunchOptions& launch = options.launch;
  RZ_ASSIGN_OR_RETURN(const std::optional<Identity> identity,
                      FindIdentity({}, CurrentEnvironment()));
  RZ_ASSIGN_OR_RETURN(
      const std::optional<OutsideJob> outside,
      JoinOutsideJob(identity, {.peer_timeout = launch.peer_timeout, .open_tcp = OpenTcpStore}));
  if (!outside.has_value() && launch.workers == 1) return RunWorker(options, loop, std::nullopt);
  const auto body = [&](WorkerContext& context) -> absl::StatusOr<std::string> {
    RZ_RETURN_IF_ERROR(RunWorker(options, loop,
                                 ShardJob{.seat = context.Seat(),
                                          .transport = options.transport,
                                          .take_endpoint = context.EndpointTaker(),
                                          .peer_timeout = launch.peer_timeout}));
    return std::string();
  };
  JobOptions job{.launch = launch};
  job.launch.tasks = LaunchNeedsOf(TransportChoice::kAuto, launch.workers, options.threads).tasks;
  if (outside.has_value()) job.seat = outside->seat;
  const absl::Status status = RunJob(job, body).status();
  return outside.has_value() ? ReportedBy(outside->seat.self, CauseOf(status)) : status;
}

}  // namespace ringzero
