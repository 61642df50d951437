// Launches processes, or one process with a thread per worker; or takes a seat.
#include "integrations/torch/run_workers.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <malloc.h>
#include <signal.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/status.h"
#include "base/system_names.h"
#include "integrations/torch/ring_model.h"
#include "integrations/torch/torch.h"
#include "p2p/checksummed_transport.h"
#include "p2p/failure.h"
#include "p2p/local_transport.h"
#include "p2p/rendezvous/share_results.h"
#include "sharding/op.h"
#include "sharding/plan.h"
#include "zero/transport_needs.h"

namespace ringzero {
namespace {

using Plans = std::function<absl::StatusOr<PlannedRun>()>;
using Work = std::function<absl::StatusOr<std::string>(WorkerSeat)>;
using Results = std::vector<std::string>;

// A step's gradients and activations are freed and needed again at once: glibc keeps them instead
// of giving them back to the kernel and faulting them in again (10 % of a short step). A program
// with an allocator of its own is not touched by this.
void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that glibc takes
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 16 << 20);
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

// Guard for a function with a value.
template <typename T>
absl::StatusOr<T> Guarded(const std::function<absl::StatusOr<T>()>& body) {
  absl::StatusOr<T> result = absl::UnknownError("not run");
  absl::Status status = Guard([&]() -> absl::Status {
    result = body();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return result;
}

// At the start of each process.
absl::StatusOr<PlannedRun> MakePlan(const RunWorkersOptions& options, const Plans& plan,
                                    WorkerId self) {
  if (options.on_start) options.on_start(self);
  KeepFreedMemory();
  PrepareTorch(options.threads);
  RZ_ASSIGN_OR_RETURN(PlannedRun run, Guarded<PlannedRun>(plan));
  if (run.planned.plan.workers != options.workers) {
    return absl::InvalidArgumentError(absl::StrCat("the plan has ", run.planned.plan.workers,
                                                   " workers, but ", options.workers,
                                                   " were asked for"));
  }
  return run;
}

absl::StatusOr<TransportOptions> NeedsOf(const RunWorkersOptions& options, const PlannedRun& run,
                                         WorkerId self) {
  RZ_ASSIGN_OR_RETURN(TransportOptions needs, TransportNeeds(run.planned.plan, run.planned.layouts,
                                                             self, options.metrics_count));
  needs.peer_timeout = options.peer_timeout;
  return options.checksums ? WithChecksumRoom(std::move(needs)) : needs;
}

// As `options` want it. None stays none.
std::unique_ptr<Transport> Decorate(std::unique_ptr<Transport> transport,
                                    const RunWorkersOptions& options) {
  if (transport == nullptr) return nullptr;
  if (options.decorate) transport = options.decorate(std::move(transport));
  if (!options.checksums) return transport;
  return MakeChecksummed(std::move(transport), {.describe = [](MessageKey key) {
                           return DescribeMessage(static_cast<Channel>(key.kind), key.tag);
                         }});
}

// One worker's way from its plan to its result, in a process of its own.
struct Process {
  JobSeat job;
  std::function<ShmEndpoint()> take_endpoint;  // null: there is none
  std::function<absl::Status(const std::string& kind, const std::string& text)> report;
};

absl::StatusOr<std::string> WorkInProcess(const RunWorkersOptions& options, const PlannedRun& run,
                                          const Work& work, Process process) {
  const WorkerId self = process.job.self;
  MakeComputeThreads(options.threads);
  WorkerSeat seat{.self = self, .run = run};
  if (NeedsTransport(run.planned.plan)) {
    RZ_ASSIGN_OR_RETURN(TransportOptions needs, NeedsOf(options, run, self));
    RZ_ASSIGN_OR_RETURN(Connection made,
                        Connect(process.job, {.transport = options.transport,
                                              .options = std::move(needs),
                                              .take_endpoint = std::move(process.take_endpoint)}));
    seat.transport = Decorate(std::move(made.transport), options);
    if (self.value == 0) {
      process.report("note", absl::StrCat("transport: ", made.why)).IgnoreError();
    }
  } else {
    process.job.rendezvous->Leave(absl::OkStatus());  // there is nobody to be connected with
  }
  seat.report = std::move(process.report);
  return Guarded<std::string>([&] { return work(std::move(seat)); });
}

absl::StatusOr<Results> RunProcesses(const RunWorkersOptions& options, const Plans& plan,
                                     const Work& work) {
  const auto body = [&](WorkerContext& context) -> absl::StatusOr<std::string> {
    RZ_ASSIGN_OR_RETURN(const PlannedRun run, MakePlan(options, plan, context.self()));
    Process process{.job = context.Seat()};
    process.take_endpoint = [&context] { return context.TakeEndpoint(); };
    process.report = [&context](const std::string& kind, const std::string& text) {
      return context.Report(kind, text);
    };
    return WorkInProcess(options, run, work, std::move(process));
  };
  return LaunchProcesses(
      {.workers = options.workers,
       .tasks = LaunchNeedsOf(options.as, options.workers, options.threads).tasks,
       .on_report = options.on_report,
       .peer_timeout = options.peer_timeout,
       .pass_on = options.pass_on,
       .interrupt = options.interrupt},
      body);
}

std::vector<AgreementSection> AgreementOf(const RunWorkersOptions& options, const PlannedRun& run) {
  std::vector<AgreementSection> sections = {
      {"versions", absl::StrCat("ringzero = ", RINGZERO_VERSION, "\ntorch = ", TORCH_VERSION, "\n",
                                WireVersions())}};
  sections.insert(sections.end(), options.agreement.begin(), options.agreement.end());
  sections.push_back({"plan", PlanToString(run.planned.plan)});
  return sections;
}

// SIGINT, SIGTERM and SIGHUP of a worker in a seat, while it lives. The first asks the worker by
// `ask` to end early, as our own launcher asks its workers. A second one ends the process; within a
// second of the first it counts as the same, as a terminal and torchrun both send theirs. What was
// ignored before (nohup) stays ignored.
class SeatSignals {
 public:
  explicit SeatSignals(const LaunchOptions::Interrupt& interrupt) : by_(interrupt.by) {
    if (interrupt.signal == 0) return;
    ask_ = interrupt.signal;
    first_ = 0;
    first_ms_ = 0;
    struct sigaction action {};
    action.sa_handler = &Hear;
    action.sa_flags = SA_RESTART;
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      sigaction(kSignals[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
    }
  }
  ~SeatSignals() {
    if (ask_ == 0) return;
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
    if (by_ != nullptr) *by_ = first_;
    ask_ = 0;
  }

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

  static int64_t NowMs() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{1000} * now.tv_sec + now.tv_nsec / 1000000;
  }

  // Only what a signal's handler may do.
  static void Hear(int signal) {
    const int64_t now = NowMs();
    int64_t earlier = 0;
    if (first_ms_.compare_exchange_strong(earlier, now)) {
      first_ = signal;
      kill(getpid(), ask_);
    } else if (now - earlier > 1000) {
      std::signal(signal, SIG_DFL);
      raise(signal);  // comes when this handler has returned
    }
  }

  static inline std::atomic<int> ask_ = 0, first_ = 0;
  static inline std::atomic<int64_t> first_ms_ = 0;  // when first_ came; 0: none has come
  int* const by_;
  struct sigaction before_[std::size(kSignals)] = {};
};

// This process is one worker; its peers do the same elsewhere.
absl::StatusOr<Results> RunInSeat(const RunWorkersOptions& options, const Plans& plan,
                                  const Work& work) {
  const JobSeat& job = *options.seat;
  const absl::StatusOr<PlannedRun> run = MakePlan(options, plan, job.self);
  if (!run.ok()) {
    Disagree(job, run.status());
    return run.status();
  }
  RZ_RETURN_IF_ERROR(Agree(job, AgreementOf(options, *run)));
  Process process{.job = job};
  process.report = [&](const std::string& kind, const std::string& text) {
    if (options.on_report) options.on_report(job.self, kind, text);
    return absl::OkStatus();
  };
  const Work interruptible = [&](WorkerSeat seat) {
    const SeatSignals signals(options.interrupt);
    return work(std::move(seat));
  };
  const absl::StatusOr<std::string> mine =
      WorkInProcess(options, *run, interruptible, std::move(process));
  const auto limit =
      std::max<std::chrono::milliseconds>(2 * options.peer_timeout, std::chrono::seconds(10));
  absl::StatusOr<Results> all = ShareResults(job, mine, limit);
  if (all.ok()) return all;
  absl::Status cause = CauseOf(all.status());
  // It lives: what lies between the two is broken.
  if (SilentWorker(cause) != job.self) return cause;
  return Annotate(cause, "another worker heard nothing of this one, though it lives");
}

// Several strings as one, for the way out of the process of all workers; and who reported.
std::string Join(const Results& results) {
  std::string text;
  for (const std::string& result : results) absl::StrAppend(&text, result.size(), ":", result);
  return text;
}

Results Split(absl::string_view text) {
  Results results;
  while (!text.empty()) {
    const size_t colon = text.find(':');
    size_t size = 0;
    RZ_CHECK(colon != absl::string_view::npos && absl::SimpleAtoi(text.substr(0, colon), &size) &&
                 size <= text.size() - colon - 1,
             "results of workers");
    results.emplace_back(text.substr(colon + 1, size));
    text.remove_prefix(colon + 1 + size);
  }
  return results;
}

// Who failed first is told from those who only heard of it.
absl::StatusOr<Results> RootCauseOr(std::vector<absl::StatusOr<std::string>> results) {
  Results values;
  absl::Status echo;
  for (size_t w = 0; w < results.size(); ++w) {
    if (results[w].ok()) {
      values.push_back(*std::move(results[w]));
    } else if (!IsEcho(results[w].status())) {
      return ReportedBy(WorkerId(static_cast<int>(w)), results[w].status());
    } else if (echo.ok()) {
      echo = CauseOf(results[w].status());
    }
  }
  if (!echo.ok()) return echo;
  return values;
}

absl::StatusOr<Results> WorkInThreads(const RunWorkersOptions& options, const PlannedRun& run,
                                      const Work& work, WorkerContext& context) {
  const Plan& plan = run.planned.plan;
  std::vector<std::unique_ptr<Transport>> transports(static_cast<size_t>(plan.workers));
  if (NeedsTransport(plan)) {
    std::vector<TransportOptions> needs;
    for (int w = 0; w < plan.workers; ++w) {
      RZ_ASSIGN_OR_RETURN(TransportOptions worker_needs, NeedsOf(options, run, WorkerId(w)));
      needs.push_back(std::move(worker_needs));
    }
    RZ_ASSIGN_OR_RETURN(transports, CreateLocalTransports(needs));
  }
  std::vector<absl::StatusOr<std::string>> results(transports.size(),
                                                   absl::UnknownError("not run"));
  std::vector<std::thread> threads;
  for (size_t w = 0; w < transports.size(); ++w) {
    threads.push_back(NamedThread(absl::StrCat("rz-compute ", w), [&, w] {
      PrepareTorch(options.threads);
      const WorkerId self(static_cast<int>(w));
      WorkerSeat seat{
          .self = self, .run = run, .transport = Decorate(std::move(transports[w]), options)};
      seat.report = [&context, w](const std::string& kind, const std::string& text) {
        return context.Report(Join({absl::StrCat(w), kind}), text);
      };
      results[w] = Guarded<std::string>([&] { return work(std::move(seat)); });
      const absl::Status status = results[w].status();
      // At once: a worker that does not come back from its computing would hold up the end.
      if (!status.ok() && !IsEcho(status)) context.Fail(ReportedBy(self, status)).IgnoreError();
    }));
  }
  for (std::thread& thread : threads) thread.join();
  return RootCauseOr(std::move(results));
}

absl::StatusOr<Results> RunThreads(const RunWorkersOptions& options, const Plans& plan,
                                   const Work& work) {
  LaunchOptions launch{.workers = 1,
                       .tasks = LaunchNeedsOf(options.as, options.workers, options.threads).tasks,
                       .peer_timeout = options.peer_timeout,
                       .pass_on = options.pass_on,
                       .interrupt = options.interrupt};
  if (options.on_report) {
    launch.on_report = [&](WorkerId, const std::string& kind, const std::string& text) {
      const Results who = Split(kind);
      int worker = 0;
      RZ_CHECK(who.size() == 2 && absl::SimpleAtoi(who[0], &worker), kind);
      options.on_report(WorkerId(worker), who[1], text);
    };
  }
  const auto body = [&](WorkerContext& context) -> absl::StatusOr<std::string> {
    RZ_ASSIGN_OR_RETURN(const PlannedRun run, MakePlan(options, plan, WorkerId(0)));
    RZ_ASSIGN_OR_RETURN(const Results results, WorkInThreads(options, run, work, context));
    return Join(results);
  };
  absl::StatusOr<Results> results = LaunchProcesses(launch, body);
  if (!results.ok()) return WithoutProcess(results.status(), "the workers' process");
  return Split((*results)[0]);
}

}  // namespace

void PrepareTorch(int threads) {
  at::set_num_threads(threads);
  at::globalContext().setFlushDenormal(false);
}

LaunchNeeds LaunchNeedsOf(RunWorkersOptions::As as, int workers, int threads) {
  // Of a worker besides torch's: message thread, watch, pool, desk, memory's watch, trace, delays.
  constexpr int kThreads = 7;
  const int tasks = kThreads + threads;
  if (as == RunWorkersOptions::As::kThreads) return {.workers = 1, .tasks = 1 + workers * tasks};
  return {.workers = workers, .tasks = tasks};
}

absl::Status WithoutProcess(const absl::Status& status, absl::string_view name) {
  absl::string_view message = status.message();
  if (absl::ConsumePrefix(&message, "worker 0: ")) return absl::Status(status.code(), message);
  // What a worker says of itself or others does not begin so: it never "was" or "exited".
  for (const absl::string_view verb : {" was ", " exited "}) {
    absl::string_view rest = message;
    if (absl::ConsumePrefix(&rest, absl::StrCat("worker 0", verb))) {
      return absl::Status(status.code(), absl::StrCat(name, verb, rest));
    }
  }
  return status;
}

absl::StatusOr<std::vector<std::string>> RunWorkers(const RunWorkersOptions& options,
                                                    const Plans& plan, const Work& work) {
  if (options.seat.has_value()) return RunInSeat(options, plan, work);
  if (options.as == RunWorkersOptions::As::kThreads) return RunThreads(options, plan, work);
  return RunProcesses(options, plan, work);
}

}  // namespace ringzero
