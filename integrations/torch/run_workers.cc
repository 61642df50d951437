// A process for each worker, or one process with a thread for each.
#include "integrations/torch/run_workers.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <malloc.h>
#include <torch/version.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/status.h"
#include "base/system_names.h"
#include "base/texts.h"
#include "integrations/torch/ring_model.h"
#include "integrations/torch/torch.h"
#include "p2p/failure.h"
#include "p2p/transport_decorator.h"
#include "sharding/op.h"
#include "sharding/plan.h"
#include "zero/message_key.h"
#include "zero/transport_needs.h"

namespace ringzero {
namespace {

using Work = std::function<absl::StatusOr<std::string>(WorkerSeat)>;
using Results = std::vector<std::string>;

// A step's gradients and activations are freed and needed again at once: glibc keeps them instead
// of giving them back to the kernel and faulting them in again (10 % of a short step). A program
// with an allocator of its own is not touched by this.
void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that glibc takes
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 16 << 20);
  // What an aligned allocation cuts off goes into a fast bin, where nothing takes it again (until
  // glibc 2.38): 200 bytes an update.
  mallopt(M_MXFAST, 0);
}

// OpenMP's threads are made by the first loop that has work for all, and inherit the name of the
// thread that runs it.
void MakeComputeThreads(int threads) {
  const std::string own = ThreadName();
  NameThread("rz-compute");
  at::ones({threads * at::internal::GRAIN_SIZE});
  NameThread(own);
}

bool NeedsTransport(const Plan& plan) { return plan.workers > 1 && plan.exchange; }

// In a job from outside: worker 0 verifies, and tells the rule and the proof.
absl::StatusOr<PlannedModel> PlanOnce(const JobSeat& seat, const ModelDescription& model,
                                      PlanRequest request) {
  constexpr char kProof[] = "plan proof";
  if (seat.self.value > 0) {
    RZ_ASSIGN_OR_RETURN(const std::string told, seat.rendezvous->Get(kProof, seat.join_limit));
    // Where worker 0 has none, this worker finds the same errors.
    const auto [rule_told, proof_told] = SplitOnce(told, " ");
    const absl::StatusOr<Rule> rule = ParseRule(std::string(rule_told));
    const absl::StatusOr<PlanProof> proof = PlanProof::Parse(std::string(proof_told));
    if (proof.ok()) request.proof = *proof;
    if (rule.ok() && request.question) request = WithRule(std::move(request), *rule);
  }
  absl::StatusOr<PlannedModel> planned = PlanModel(model, request);
  if (seat.self.value == 0) {
    const std::string told =
        planned.ok() ? absl::StrCat(ToString(planned->plan.rule), " ", planned->proof.Write())
                     : "none";
    RZ_RETURN_IF_ERROR(seat.rendezvous->Put(kProof, told));
  }
  return planned;
}

// At the start of each process.
absl::StatusOr<PlannedRun> MakePlan(const RunWorkersOptions& options, const MakeRun& plan,
                                    WorkerId self) {
  if (options.on_start) options.on_start(self);
  KeepFreedMemory();
  PrepareTorch(options.threads);
  const PlanFunction plan_model = [&](const ModelDescription& model, const PlanRequest& request) {
    return options.seat.has_value() ? PlanOnce(*options.seat, model, request)
                                    : PlanModel(model, request);
  };
  RZ_ASSIGN_OR_RETURN(PlannedRun run, Guard([&] { return plan(plan_model); }));
  if (run.planned.plan.workers != options.launch.workers) {
    return InvalidArgument("the plan has ", run.planned.plan.workers, " workers, but ",
                           options.launch.workers, " were asked for");
  }
  return run;
}

absl::StatusOr<TransportOptions> NeedsOf(const RunWorkersOptions& options, const PlannedRun& run,
                                         WorkerId self) {
  RZ_ASSIGN_OR_RETURN(TransportOptions needs,
                      TransportNeeds(run.planned.plan, self, options.metrics_count));
  needs.peer_timeout = options.launch.peer_timeout;
  return options.checksums ? WithChecksumRoom(std::move(needs)) : needs;
}

// Wraps `transport` as `options` say. Null stays null.
std::unique_ptr<Transport> Decorate(std::unique_ptr<Transport> transport,
                                    const RunWorkersOptions& options) {
  if (transport == nullptr) return nullptr;
  if (options.decorate) transport = options.decorate(std::move(transport));
  if (!options.checksums) return transport;
  return MakeChecksummed(std::move(transport), [](MessageKey key) {
    return DescribeMessage(SendOf(key).channel, key.tag);
  });
}

// What the workers of a job from outside must have alike.
absl::StatusOr<std::vector<AgreementSection>> StatementOf(const RunWorkersOptions& options,
                                                          const absl::StatusOr<PlannedRun>& run) {
  RZ_RETURN_IF_ERROR(run.status());
  std::vector<AgreementSection> sections = {
      {"versions", absl::StrCat("ringzero = ", RINGZERO_VERSION, "\ntorch = ", TORCH_VERSION, "\n",
                                WireVersions())}};
  sections.insert(sections.end(), options.agreement.begin(), options.agreement.end());
  sections.push_back({"plan", PlanToString(run->planned.plan)});
  return sections;
}

// The way of a worker in a process of its own from its plan to its seat, which looks into `run`.
absl::StatusOr<WorkerSeat> TakeSeat(const RunWorkersOptions& options,
                                    const absl::StatusOr<PlannedRun>& run, WorkerContext& context) {
  RZ_RETURN_IF_ERROR(context.launched() ? run.status() : context.Agree(StatementOf(options, run)));
  MakeComputeThreads(options.threads);
  const WorkerId self = context.self();
  WorkerSeat seat{.self = self, .run = *run};
  seat.report = [&context](const std::string& kind, const std::string& text) {
    return context.Report(kind, text);
  };
  if (!NeedsTransport(run->planned.plan)) {
    context.StayAlone();
    return seat;
  }
  RZ_ASSIGN_OR_RETURN(TransportOptions needs, NeedsOf(options, *run, self));
  RZ_ASSIGN_OR_RETURN(Connection made, context.Connect({.transport = options.transport,
                                                        .options = std::move(needs)}));
  seat.transport = Decorate(std::move(made.transport), options);
  if (self.value == 0) context.Report("note", absl::StrCat("transport: ", made.why)).IgnoreError();
  return seat;
}

absl::StatusOr<std::string> WorkInThreads(const RunWorkersOptions& options, const MakeRun& plan,
                                          const Work& work, WorkerContext& context) {
  RZ_ASSIGN_OR_RETURN(const PlannedRun run, MakePlan(options, plan, WorkerId(0)));
  const int workers = run.planned.plan.workers;
  for (const LayerFactory& layer : run.layers) {
    if (workers == 1 || !layer.ready) continue;
    return InvalidArgument("layer \"", layer.name,
                           "\" is a ready module, which exists once: workers must be processes");
  }
  std::vector<std::unique_ptr<Transport>> transports(static_cast<size_t>(workers));
  if (NeedsTransport(run.planned.plan)) {
    std::vector<TransportOptions> needs;
    for (int w = 0; w < workers; ++w) {
      RZ_ASSIGN_OR_RETURN(TransportOptions worker_needs, NeedsOf(options, run, WorkerId(w)));
      needs.push_back(std::move(worker_needs));
    }
    RZ_ASSIGN_OR_RETURN(transports, CreateLocalTransports(needs));
  }
  const auto body = [&](WorkerId self) {
    PrepareTorch(options.threads);
    WorkerSeat seat{.self = self,
                    .run = run,
                    .transport = Decorate(std::move(transports[self.value]), options)};
    seat.report = [&context, self](const std::string& kind, const std::string& text) {
      return context.Report(absl::StrCat(self.value, " ", kind), text);
    };
    absl::StatusOr<std::string> result = Guard([&] { return work(std::move(seat)); });
    const absl::Status status = result.status();
    // At once: RunThreads waits for every worker, even one that does not return from computing.
    if (!status.ok() && !IsEcho(status)) context.Fail(ReportedBy(self, status)).IgnoreError();
    return result;
  };
  RZ_ASSIGN_OR_RETURN(const Results results, RunThreads(workers, body));
  return JoinTexts(results);
}

// One process for all workers, which ends as the processes of workers do.
absl::StatusOr<Results> RunOneProcess(const RunWorkersOptions& options, LaunchOptions launch,
                                      const MakeRun& plan, const Work& work) {
  launch.workers = 1;
  launch.alone = "the workers' process";
  if (options.launch.on_report) {
    launch.on_report = [&](WorkerId, const std::string& kind, const std::string& text) {
      const auto [who, what] = SplitOnce(kind, " ");
      int worker = 0;
      RZ_CHECK(absl::SimpleAtoi(who, &worker), kind);
      options.launch.on_report(WorkerId(worker), std::string(what), text);
    };
  }
  const auto body = [&](WorkerContext& context) {
    return WorkInThreads(options, plan, work, context);
  };
  RZ_ASSIGN_OR_RETURN(const Results all, LaunchProcesses(launch, body));
  Results results;
  absl::string_view rest = all.front();
  while (std::optional<std::string> result = TakeText(rest)) results.push_back(*std::move(result));
  return results;
}

}  // namespace

void PrepareTorch(int threads) {
  at::set_num_threads(threads);
  at::globalContext().setFlushDenormal(false);
}

LaunchNeeds LaunchNeedsOf(TransportChoice transport, int workers, int threads) {
  // A worker's own threads: message thread, watch, pool, desk, memory's watch, trace, delays.
  constexpr int kThreads = 7;
  const int tasks = kThreads + threads;
  if (transport == TransportChoice::kLocal) return {.workers = 1, .tasks = 1 + workers * tasks};
  return {.workers = workers, .tasks = tasks};
}

absl::StatusOr<std::vector<std::string>> RunWorkers(const RunWorkersOptions& options,
                                                    const MakeRun& plan, const Work& work) {
  LaunchOptions launch = options.launch;
  launch.tasks = LaunchNeedsOf(options.transport, launch.workers, options.threads).tasks;
  if (options.transport == TransportChoice::kLocal && !options.seat.has_value()) {
    return RunOneProcess(options, std::move(launch), plan, work);
  }
  const auto body = [&](WorkerContext& context) -> absl::StatusOr<std::string> {
    const absl::StatusOr<PlannedRun> run = MakePlan(options, plan, context.self());
    RZ_ASSIGN_OR_RETURN(WorkerSeat seat, TakeSeat(options, run, context));
    return Guard([&] { return work(std::move(seat)); });
  };
  return RunJob({.launch = std::move(launch), .seat = options.seat}, body);
}

OpenWorker::OpenWorker(RunWorkersOptions options)
    : options_(std::move(options)), worker_(*options_.seat, options_.launch) {}

absl::StatusOr<std::unique_ptr<OpenWorker>> OpenWorker::Open(RunWorkersOptions options,
                                                             const MakeRun& plan) {
  if (!options.seat.has_value()) return absl::InvalidArgumentError("OpenWorker without a seat");
  std::unique_ptr<OpenWorker> made(new OpenWorker(std::move(options)));
  WorkerContext& context = made->worker_.context();
  made->run_ = MakePlan(made->options_, plan, context.self());
  absl::StatusOr<WorkerSeat> seat = TakeSeat(made->options_, made->run_, context);
  if (!seat.ok()) return made->Close(seat.status()).status();
  made->seat_.emplace(*std::move(seat));
  return made;
}

}  // namespace ringzero
