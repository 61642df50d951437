// A pass replayed, with gradients kept for as long as is asked for; lines, sums, and the refusal.
#include "sharding/memory/fit_certificate.h"

#include <algorithm>
#include <deque>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace ringzero {
namespace {

size_t IndexOf(MemoryPlace place) { return static_cast<size_t>(place); }

// "1.26 GiB (1352663040 bytes)".
std::string Amount(int64_t bytes) {
  constexpr double kMib = 1 << 20;
  const double mib = static_cast<double>(bytes) / kMib;
  return mib >= 1024 ? absl::StrFormat("%.2f GiB (%d bytes)", mib / 1024, bytes)
                     : absl::StrFormat("%.1f MiB (%d bytes)", mib, bytes);
}

// What a person can do about a category.
const char* HelpFor(const std::string& category) {
  if (category == "activations") {
    return "a smaller train_micro_batch_size_per_gpu (with more gradient_accumulation_steps) or "
           "fewer workers on the host";
  }
  if (category == "gradients")
    return "zero_optimization.stage 2 or 3 with more cyclic.stages, or fewer workers";
  if (category == "process" || category == "process, once") return "fewer workers on the host";
  if (category == "versions") return "rule dp, which has one version, or a smaller model";
  if (category == "taken")
    return "cyclic.clipping per_stage or previous, which take no sums, or more workers";
  if (category == "moments") return "an optimizer with smaller states, or a smaller model";
  if (category == "pools") return "a smaller cyclic.window, or shm within a host";
  return "a higher zero_optimization.stage, more hosts or a smaller model";
}

MemoryPlace PlaceOf(const MemoryCategory& category, const FitPlaces& places) {
  if (category.bytes == &MemoryBytes::moments) return places.moments;
  if (category.bytes == &MemoryBytes::gradients) return places.passes;
  return places.parameters;
}

// The heap's most of what comes and goes.
int64_t PassPeak(const PassBytes& pass, const MemoryBytes& states) {
  const int64_t training = states.gradients > 0 ? pass.with_waiting_gradients : pass.activations;
  return std::max({pass.setup, pass.evaluation, training});
}

int64_t Activations(const PassBytes& pass, const MemoryBytes& states) {
  // Building needs no more than this: what gradients take later is free then.
  return std::max({pass.activations, pass.evaluation, pass.setup - states.gradients});
}

}  // namespace

std::string ToString(MemoryPlace place) {
  constexpr std::array<const char*, kMemoryPlaces> kNames = {"host", "device", "disk"};
  return kNames[IndexOf(place)];
}

void PassTimeline::Allocate(uint64_t block, int64_t bytes) {
  places_[block] = blocks_.size();
  entries_.push_back({.kind = Kind::kAllocate, .block = blocks_.size()});
  blocks_.push_back({.bytes = bytes});
}

void PassTimeline::Free(uint64_t block) {
  const auto found = places_.find(block);
  if (found == places_.end() || blocks_[found->second].freed) return;
  blocks_[found->second].freed = true;
  entries_.push_back({.kind = Kind::kFree, .block = found->second});
}

void PassTimeline::EndStage(const std::vector<uint64_t>& gradients) {
  int64_t bytes = 0;
  for (const uint64_t address : gradients) {
    auto found = places_.upper_bound(address);
    if (found == places_.begin()) continue;
    found = std::prev(found);
    Block& block = blocks_[found->second];
    if (address >= found->first + static_cast<uint64_t>(block.bytes)) continue;
    if (!block.gradient) bytes += block.bytes;
    block.gradient = true;
  }
  entries_.push_back({.kind = Kind::kEndStage, .block = stage_gradients_.size()});
  stage_gradients_.push_back(bytes);
}

int64_t PassTimeline::Peak(Gradients gradients, int pending) const {
  const size_t waiting_most =
      gradients == Gradients::kWait ? static_cast<size_t>(std::max(pending, 0)) : 0;
  std::deque<int64_t> waiting;
  int64_t live = 0, peak = 0;
  // Twice: the gradients of the pass before may wait when it begins.
  for (int pass = 0; pass < 2; ++pass) {
    int64_t left = 0;  // what this pass has not freed at its end is freed by others
    for (const Entry& entry : entries_) {
      if (entry.kind == Kind::kEndStage) {
        const int64_t bytes = stage_gradients_[entry.block];
        if (bytes == 0 || gradients == Gradients::kNone) continue;
        waiting.push_back(bytes);
        if (waiting.size() <= waiting_most) continue;
        live -= waiting.front();
        waiting.pop_front();
        continue;
      }
      const Block& block = blocks_[entry.block];
      if (block.gradient && (gradients == Gradients::kNone || entry.kind == Kind::kFree)) continue;
      const int64_t bytes = entry.kind == Kind::kAllocate ? block.bytes : -block.bytes;
      live += bytes;
      if (!block.gradient) left += bytes;
      peak = std::max(peak, live);
    }
    live -= left;
  }
  return peak;
}

FitCertificate Certify(const FitInput& input) {
  const std::vector<MemoryBytes>& workers = input.states.workers;
  const std::vector<WorkerExtras>& extras = input.extras;
  const FitPlaces& places = input.places;
  FitCertificate fit{.hosts = input.hosts, .apart_place = places.passes};
  const auto add = [&](const char* name, MemoryPlace place, const auto& bytes_of) -> FitLine& {
    FitLine& line = fit.lines.emplace_back(FitLine{.name = name, .place = place});
    for (size_t w = 0; w < workers.size(); ++w) line.workers.push_back(bytes_of(w));
    return line;
  };
  // How much more the heap holds at its most than activations and gradients, each at their most.
  const auto together = [&](size_t w) {
    return PassPeak(input.pass, workers[w]) - Activations(input.pass, workers[w]) -
           workers[w].gradients;
  };
  for (size_t w = 0; w < workers.size(); ++w) {
    fit.apart.push_back(std::max<int64_t>(0, -together(w)));
  }
  for (const MemoryCategory& category : MemoryCategories()) {
    add(category.name, PlaceOf(category, places),
        [&](size_t w) { return workers[w].*category.bytes; });
  }
  add("statistics", places.passes, [&](size_t w) { return extras[w].statistics; });
  add("activations", places.passes, [&](size_t w) { return Activations(input.pass, workers[w]); });
  add("pools", places.parameters, [&](size_t w) { return extras[w].pools; });
  add("rounding", places.moments,
      [&](size_t w) { return extras[w].rounding + std::max<int64_t>(0, together(w)); });
  for (const auto& [name, bytes] : {std::pair("tier", &WorkerExtras::tier),
                                    std::pair("versions in files", &WorkerExtras::versions)}) {
    const bool any = std::ranges::any_of(extras, [&](const auto& each) { return each.*bytes > 0; });
    if (any)
      add(name, MemoryPlace::kDisk, [&, bytes = bytes](size_t w) { return extras[w].*bytes; });
  }
  const bool saves =
      std::ranges::any_of(extras, [](const WorkerExtras& each) { return each.staging > 0; });
  if (saves) add("staging", MemoryPlace::kHost, [&](size_t w) { return extras[w].staging; });
  const int64_t process = input.one_process ? 0 : input.process_bytes;
  add("process", MemoryPlace::kHost, [&](size_t) { return process; });
  add("process, once", MemoryPlace::kHost, [](size_t) { return 0; }).once =
      input.process_once_bytes + input.process_bytes - process;
  return fit;
}

int FitCertificate::host_count() const {
  return hosts.empty() ? 0 : *std::max_element(hosts.begin(), hosts.end()) + 1;
}

int64_t FitCertificate::WorkerPeak(int worker, MemoryPlace place) const {
  int64_t bytes = place == apart_place ? -apart[worker] : 0;
  for (const FitLine& line : lines) {
    if (line.place == place) bytes += line.workers[worker];
  }
  return bytes;
}

int64_t FitCertificate::Bytes(const FitLine& line, int host) const {
  int64_t bytes = line.once;
  for (size_t w = 0; w < hosts.size(); ++w) {
    if (hosts[w] == host) bytes += line.workers[w];
  }
  return bytes;
}

int64_t FitCertificate::HostPeak(int host, MemoryPlace place) const {
  int64_t bytes = 0;
  for (const FitLine& line : lines) {
    if (line.place == place) bytes += line.once;
  }
  for (size_t w = 0; w < hosts.size(); ++w) {
    if (hosts[w] == host) bytes += WorkerPeak(static_cast<int>(w), place);
  }
  return bytes;
}

int FitCertificate::FullestHost(MemoryPlace place) const {
  int fullest = 0;
  for (int host = 1; host < host_count(); ++host) {
    if (HostPeak(host, place) > HostPeak(fullest, place)) fullest = host;
  }
  return fullest;
}

absl::Status CheckFit(const FitCertificate& fit, const FitBudgets& budgets) {
  for (const MemoryPlace place : kAllMemoryPlaces) {
    const FitBudget& budget = budgets[IndexOf(place)];
    const int host = fit.FullestHost(place);
    const int64_t wanted = fit.HostPeak(host, place);
    if (!budget.bytes.has_value() || wanted <= *budget.bytes) continue;
    const auto largest = std::ranges::max_element(fit.lines, {}, [&](const FitLine& line) {
      return line.place == place ? fit.Bytes(line, host) : -1;
    });
    const auto moments = std::ranges::find(fit.lines, "moments", &FitLine::name);
    const bool streams = std::ranges::count(fit.lines, "tier", &FitLine::name) > 0;
    const bool by_disk = !streams && moments != fit.lines.end() && moments->place == place &&
                         fit.Bytes(*moments, host) > wanted - *budget.bytes;
    return InvalidArgument(
        "the run does not fit: ", ToString(place), " memory: wanted ", Amount(wanted), ", found ",
        Amount(*budget.bytes), " (", budget.source, "); most of it is ", largest->name, ", ",
        Amount(fit.Bytes(*largest, host)), "; what would help: ", HelpFor(largest->name),
        by_disk ? ", or optimizer states on NVMe (zero_optimization.offload_optimizer)" : "");
  }
  return absl::OkStatus();
}

std::string DescribeFit(const FitCertificate& fit, const FitBudgets& budgets, FitUnit unit) {
  const int host = fit.FullestHost(MemoryPlace::kHost);
  const bool by_worker = unit == FitUnit::kWorker;
  std::string text = absl::StrFormat("\n%-16s", "fit certificate");
  const auto cell = [&](const std::string& bytes, const std::string& mib) {
    absl::StrAppendFormat(&text, " %14s %9s", bytes, mib);
  };
  const auto amount = [&](int64_t bytes) {
    cell(absl::StrCat(bytes), absl::StrFormat("%.1f", static_cast<double>(bytes) / (1 << 20)));
  };
  for (const MemoryPlace place : kAllMemoryPlaces) cell(ToString(place), "MiB");
  if (by_worker) cell("fullest worker", "MiB");
  absl::StrAppend(&text, "\n");
  const auto row = [&](const std::string& name, const std::array<int64_t, kMemoryPlaces>& bytes,
                       int64_t worker) {
    absl::StrAppendFormat(&text, "%-16s", name);
    for (const int64_t each : bytes) amount(each);
    if (by_worker) amount(worker);
    absl::StrAppend(&text, "\n");
  };
  for (const FitLine& line : fit.lines) {
    std::array<int64_t, kMemoryPlaces> bytes{};
    bytes[IndexOf(line.place)] = fit.Bytes(line, host);
    row(line.name, bytes, *std::max_element(line.workers.begin(), line.workers.end()));
  }
  std::array<int64_t, kMemoryPlaces> peaks{}, apart{};
  int64_t worker_peak = 0, worker_apart = 0;
  for (size_t w = 0; w < fit.hosts.size(); ++w) {
    if (fit.hosts[w] == host) apart[IndexOf(fit.apart_place)] -= fit.apart[w];
    const int64_t peak = fit.WorkerPeak(static_cast<int>(w), MemoryPlace::kHost);
    if (peak > worker_peak) worker_apart = -fit.apart[w];
    worker_peak = std::max(worker_peak, peak);
  }
  row("never together", apart, worker_apart);
  for (const MemoryPlace place : kAllMemoryPlaces) {
    peaks[IndexOf(place)] = fit.HostPeak(host, place);
  }
  row("peak", peaks, worker_peak);
  absl::StrAppendFormat(&text, "%-16s", "budget");
  for (const FitBudget& budget : budgets) {
    budget.bytes.has_value() ? amount(*budget.bytes) : cell("unknown", "-");
  }
  absl::StrAppend(&text, "\n");
  for (const MemoryPlace place : kAllMemoryPlaces) {
    const FitBudget& budget = budgets[IndexOf(place)];
    if (budget.source.empty()) continue;
    absl::StrAppend(&text, "budget of the ", ToString(place), ": ", budget.source, "\n");
  }
  return text;
}

}  // namespace ringzero
