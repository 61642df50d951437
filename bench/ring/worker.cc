// All sizes one after the other; between them the workers meet, and worker 0 gathers the numbers.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "bench/ring/meeting.h"
#include "bench/ring/needs.h"
#include "bench/ring/payload.h"
#include "bench/ring/peer.h"
#include "bench/ring/report.h"
#include "bench/ring/run.h"
#include "bench/ring/statistics.h"
#include "bench/ring/traffic.h"
#include "bench/ring/train_traffic.h"

namespace ringzero {
namespace {

// What one worker measured for one line of the table; worker 0 gets it as JSON.
struct Measured {
  int64_t wrong = 0;
  std::vector<std::vector<double>> rounds;  // microseconds of each iteration
  std::vector<double> peer;                 // microseconds of each round
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Measured, wrong, rounds, peer)

// Makes one number of the workers' numbers, as -a says.
double Combine(Average average, const std::vector<double>& of_workers) {
  const Statistics s = StatisticsOf(of_workers);
  const double by_average[] = {of_workers.front(), s.mean, s.min, s.max};
  return by_average[static_cast<size_t>(average)];
}

constexpr char kNoLink[] = "not connected";  // Transport::LinkTo

int WorkersPerCore(const RingJob& job) {
  const bool told = job.identity && job.identity->local_workers;
  const int workers = told ? *job.identity->local_workers : job.options.workers;
  const int cores = static_cast<int>(job.facts.cores.size());
  return (workers + cores - 1) / cores;
}

class RingWorker {
 public:
  RingWorker(const RingJob& job, std::unique_ptr<Transport> transport)
      : job_(job),
        options_(job.options),
        report_(job.options, job.facts),
        waiting_({.transport = transport.get(),
                  .progress = job.options.progress,
                  .limit = job.options.timeout_s > 0 ? std::chrono::seconds(job.options.timeout_s)
                                                     : kWaitLimit,
                  .workers_per_core = WorkersPerCore(job)}),
        transport_(std::move(transport)) {}

  absl::StatusOr<std::string> Run() {
    absl::StatusOr<std::string> wrong = RunAll();
    if (!wrong.ok()) transport_->Abort(wrong.status());
    // The transport's callbacks may come until it is gone; they use the other members.
    transport_.reset();
    return wrong;
  }

 private:
  bool first() const { return transport_->self().value == 0; }
  std::optional<HostSpeed> SpeedOfHost() const {
    if (options_.skip_host) return std::nullopt;
    return MeasureHost(job_.facts);
  }
  absl::StatusOr<std::string> RunAll();
  absl::Status Introduce();
  absl::Status Allocate();
  absl::Status RunLine(int cycle, ElementType type, size_t bytes);
  absl::StatusOr<Measured> Measure(Traffic& traffic, const TrafficSetup& setup);
  absl::Status ReportLine(Row row, const std::vector<std::string>& texts);
  void Compare(const std::vector<Measured>& all, Row& row);

  const RingJob& job_;
  const RingOptions& options_;
  Report report_;
  Waiting waiting_;
  std::unique_ptr<Control> control_;
  std::unique_ptr<Payload> payload_;
  std::unique_ptr<Peer> peer_;
  std::unique_ptr<Traffic> traffic_;
  Buffer send_, receive_;  // what all traffic but kTrain's takes turns in
  uint64_t next_tag_ = 0;
  uint64_t repetition_ = 0;
  std::unique_ptr<Transport> transport_;  // destroyed first
};

absl::StatusOr<std::string> RingWorker::RunAll() {
  control_ = Control::Create(&waiting_);
  RZ_ASSIGN_OR_RETURN(PayloadMemory memory, MemoryOfPayload(job_, transport_->self()));
  payload_ = std::make_unique<Payload>(transport_->self(), std::move(memory));
  if (options_.compare) {
    RZ_ASSIGN_OR_RETURN(
        peer_,
        MakePeer(
            {.options = options_, .facts = job_.facts, .area = job_.area, .waiting = &waiting_}));
    report_.set_peer(peer_->name());
  }
  RZ_RETURN_IF_ERROR(Introduce());
  RZ_RETURN_IF_ERROR(Allocate());
  for (int cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle) {
    for (const ElementType type : options_.types) {
      for (const size_t bytes : options_.Sizes()) {
        RZ_RETURN_IF_ERROR(RunLine(cycle, type, bytes));
      }
    }
  }
  if (first()) {
    RZ_RETURN_IF_ERROR(PrintToStdout(report_.Footer(SpeedOfHost())));
    RZ_RETURN_IF_ERROR(report_.WriteFiles());
  }
  RZ_RETURN_IF_ERROR(control_->Gather("the end", "", Manner::kIdle).status());
  RZ_ASSIGN_OR_RETURN(std::string wrong,
                      control_->Tell("the result", absl::StrCat(report_.wrong()), Manner::kIdle));
  traffic_.reset();
  RZ_RETURN_IF_ERROR(transport_->Close());
  return wrong;
}

absl::Status RingWorker::Introduce() {
  const WorkerId self = transport_->self();
  // Links are known once the neighbours have met.
  RZ_RETURN_IF_ERROR(control_->Meet("the start", Manner::kIdle));
  const int workers = transport_->workers();
  const WorkerId right((self.value + 1) % workers);
  const WorkerId left((self.value + workers - 1) % workers);
  RZ_RETURN_IF_ERROR(waiting_.Until("the links to its neighbours", Manner::kIdle, [&] {
    return transport_->LinkTo(right) != kNoLink && transport_->LinkTo(left) != kNoLink;
  }));
  const Json mine = {{"rank", self.value},
                     {"pid", getpid()},
                     {"hostname", job_.facts.name},
                     {"core", !options_.pin ? "any" : absl::StrCat(CoreOf(job_, self))},
                     {"link_right", transport_->LinkTo(right)},
                     {"link_left", transport_->LinkTo(left)}};
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                      control_->Gather("who it is", mine.dump(), Manner::kIdle));
  if (first()) {
    std::vector<Json> facts;
    for (const std::string& text : all) facts.push_back(Json::parse(text));
    report_.set_notes(job_.notes);
    RZ_RETURN_IF_ERROR(PrintToStdout(report_.Header(std::move(facts), SpeedOfHost())));
  }
  return control_->Meet("the header", Manner::kIdle);
}

absl::Status RingWorker::Allocate() {
  if (options_.mode == RingMode::kTrain) return absl::OkStatus();
  const TrafficMemory memory = MemoryOf(job_, transport_->self());
  if (memory.send > 0) {
    RZ_ASSIGN_OR_RETURN(send_, transport_->Allocate(memory.send, SentFrom(options_.mode)));
  }
  if (memory.receive > 0 && !options_.shares_memory()) {
    RZ_ASSIGN_OR_RETURN(receive_, transport_->Allocate(memory.receive, MemoryUse::kParameters));
  }
  return absl::OkStatus();
}

absl::Status RingWorker::RunLine(int cycle, ElementType type, size_t bytes) {
  TrafficSetup setup = SetupOf(job_, type, bytes);
  setup.waiting = &waiting_;
  setup.payload = payload_.get();
  setup.first_tag = next_tag_;
  if (options_.mode == RingMode::kTrain) {
    RZ_ASSIGN_OR_RETURN(traffic_, MakeTrainTraffic({.waiting = &waiting_,
                                                    .payload = payload_.get(),
                                                    .plan = job_.plan,
                                                    .damage = options_.inject_flip}));
  } else {
    if (send_) setup.send = send_.as<std::byte>();
    if (receive_) setup.receive = receive_.as<std::byte>();
    RZ_ASSIGN_OR_RETURN(traffic_, MakeTraffic(setup));
  }
  RZ_ASSIGN_OR_RETURN(const Measured measured, Measure(*traffic_, setup));
  next_tag_ = traffic_->next_tag();
  // No worker reads another's blocks any more when all have come here.
  RZ_ASSIGN_OR_RETURN(
      const std::vector<std::string> texts,
      control_->Gather("the numbers", nlohmann::json(measured).dump(), Manner::kBusy));
  if (first()) {
    RZ_RETURN_IF_ERROR(ReportLine(
        {.cycle = cycle, .bytes = setup.bytes, .count = setup.bytes / SizeOf(type), .type = type},
        texts));
  }
  RZ_RETURN_IF_ERROR(control_->Meet("the end of a line", Manner::kIdle));
  traffic_.reset();
  return absl::OkStatus();
}

absl::StatusOr<Measured> RingWorker::Measure(Traffic& traffic, const TrafficSetup& setup) {
  RZ_RETURN_IF_ERROR(control_->Meet("its buffers", Manner::kBusy));
  if (options_.warmup > 0) RZ_RETURN_IF_ERROR(traffic.Time(options_.warmup).status());
  if (peer_ != nullptr) RZ_RETURN_IF_ERROR(peer_->Prepare(setup));
  const bool evict = !options_.cached && static_cast<size_t>(setup.buffers) * setup.bytes <
                                             2 * job_.facts.last_cache_bytes;
  Measured measured;
  for (int round = 0; round < Rounds(options_); ++round) {
    if (evict) EvictCaches(job_.facts);
    RZ_RETURN_IF_ERROR(control_->Meet("the clock", Manner::kBusy));
    RZ_ASSIGN_OR_RETURN(std::vector<double> seconds, traffic.Time(IterationsOfRound(options_)));
    for (double& value : seconds) value *= 1e6;
    measured.rounds.push_back(std::move(seconds));
    if (peer_ == nullptr) continue;
    if (evict) EvictCaches(job_.facts);
    RZ_RETURN_IF_ERROR(control_->Meet("the peer's clock", Manner::kBusy));
    RZ_ASSIGN_OR_RETURN(const double peer, peer_->Measure(setup, IterationsOfRound(options_)));
    measured.peer.push_back(peer);
    RZ_RETURN_IF_ERROR(control_->Meet("the peer's end", Manner::kIdle));
  }
  for (int i = 0; i < options_.check; ++i) {
    RZ_RETURN_IF_ERROR(control_->Meet("a check", Manner::kBusy));
    RZ_ASSIGN_OR_RETURN(const int64_t wrong, traffic.Check(++repetition_));
    measured.wrong += wrong;
  }
  return measured;
}

absl::Status RingWorker::ReportLine(Row row, const std::vector<std::string>& texts) {
  std::vector<Measured> all;
  std::vector<double> means;
  int64_t wrong = 0;
  for (const std::string& text : texts) {
    Measured one = nlohmann::json::parse(text).get<Measured>();
    std::vector<double> times;
    for (const auto& round : one.rounds) times.insert(times.end(), round.begin(), round.end());
    means.push_back(StatisticsOf(times).mean);
    wrong += one.wrong;
    row.worker_us.push_back(std::move(times));
    all.push_back(std::move(one));
  }
  row.iteration_us = row.worker_us.front();
  for (const auto& times : row.worker_us) {
    for (size_t i = 0; i < times.size() && i < row.iteration_us.size(); ++i) {
      row.iteration_us[i] = std::max(row.iteration_us[i], times[i]);
    }
  }
  row.statistics = StatisticsOf(
      {row.iteration_us.begin() + options_.per_iteration_skip, row.iteration_us.end()});
  row.time_us = Combine(options_.average, means);
  row.algbw = static_cast<double>(row.bytes) / 1e3 / row.time_us;
  row.busbw = row.algbw * BusFactor(options_.mode, transport_->workers());
  if (options_.check > 0) row.wrong = wrong;
  if (peer_ != nullptr) Compare(all, row);
  return PrintToStdout(report_.Line(std::move(row)));
}

void RingWorker::Compare(const std::vector<Measured>& all, Row& row) {
  Comparison comparison;
  std::vector<double> ratios, differences;
  for (size_t round = 0; round < all.front().rounds.size(); ++round) {
    std::vector<double> ours, peers;
    for (const Measured& one : all) {
      const Statistics s = StatisticsOf(one.rounds[round]);
      ours.push_back(peer_->typical() == Peer::Typical::kMedian ? s.median : s.mean);
      // Worker 0 alone runs a peer tool that is outside of the workers; the others have 0.
      if (one.peer[round] > 0) peers.push_back(one.peer[round]);
    }
    const double our = Combine(options_.average, ours);
    const double peer = peers.empty() ? 0 : Combine(options_.average, peers);
    comparison.rounds_us.push_back(our);
    comparison.peer_rounds_us.push_back(peer);
    ratios.push_back(peer / our);
    differences.push_back(our - peer);
  }
  comparison.peer_us = StatisticsOf(comparison.peer_rounds_us).median;
  comparison.ratio = StatisticsOf(ratios).median;
  comparison.difference_us = StatisticsOf(differences).median;
  comparison.peer_gb_per_s = static_cast<double>(row.bytes) / 1e3 / comparison.peer_us *
                             BusFactor(options_.mode, transport_->workers());
  row.comparison = std::move(comparison);
}

}  // namespace

absl::StatusOr<std::string> RunRingWorker(const RingJob& job,
                                          std::unique_ptr<Transport> transport) {
  return RingWorker(job, std::move(transport)).Run();
}

}  // namespace ringzero
