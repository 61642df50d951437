// Report: what worker 0 prints and writes: header, one line per size, footer; JSON and CSV.
//
//   Report report(options, facts);
//   std::fputs(report.Header(...).c_str(), stdout);   std::fputs(report.Line(row).c_str(), stdout);
//   RZ_RETURN_IF_ERROR(report.WriteFiles());
//
// The table has the 13 columns of nccl-tests' sendrecv_perf, so a program that reads that table
// reads this one. Strings only; WriteFiles alone touches files.
#ifndef RINGZERO_BENCH_RING_REPORT_H_
#define RINGZERO_BENCH_RING_REPORT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/ring/host.h"
#include "bench/ring/options.h"
#include "bench/ring/statistics.h"

namespace ringzero {

using Json = nlohmann::ordered_json;

// What a peer tool reached beside one line.
struct Comparison {
  double peer_us = 0;        // median of its rounds
  double peer_gb_per_s = 0;  // of peer_us, by the same formula as busbw
  double ratio = 0;  // median over rounds of peer time / our time: 1 as fast, 2 twice as fast
  double difference_us = 0;  // median over rounds of our time - peer time
  std::vector<double> rounds_us, peer_rounds_us;
};

// One line of the table.
struct Row {
  int cycle = 0;
  size_t bytes = 0;
  size_t count = 0;  // elements
  ElementType type = ElementType::kFloat;
  double time_us = 0;  // as -a says
  double algbw = 0;    // GB/s
  double busbw = 0;
  std::optional<int64_t> wrong;                // nothing: not checked
  std::vector<std::vector<double>> worker_us;  // by worker, of each iteration
  std::vector<double> iteration_us;            // the slowest worker's time in each iteration
  Statistics statistics;                       // of iteration_us without the first -K
  std::optional<Comparison> comparison;
  std::string timestamp;
};

class Report {
 public:
  Report(const RingOptions& options, const HostFacts& facts) : options_(options), facts_(facts) {}

  // `workers`: an entry of -J's `devices` each.
  std::string Header(std::vector<Json> workers, const std::optional<HostSpeed>& before);
  std::string Line(Row row);
  std::string Footer(const std::optional<HostSpeed>& after);
  // -J and --csv. InvalidArgument naming the file that cannot be written.
  absl::Status WriteFiles() const;

  void set_peer(const std::string& peer) { peer_ = peer; }
  void set_notes(std::vector<std::string> notes) { notes_ = std::move(notes); }
  int64_t wrong() const;

 private:
  struct Cell {  // of a line of the table
    int width;
    std::string name, unit, value;
  };
  double average_busbw() const;
  // Whether a message's payload is copied on its way: by a link, or by its receiver.
  bool copies() const;
  std::vector<Cell> CellsOf(const Row& row) const;
  static std::string Aligned(const std::vector<Cell>& cells, std::string Cell::*text);
  std::string ToJson() const;
  std::string ToCsv() const;

  const RingOptions options_;
  const HostFacts facts_;
  std::string peer_;                // what --compare compares with, in words
  std::vector<std::string> notes_;  // of the plan, of the transport
  std::vector<Json> workers_;
  std::optional<HostSpeed> before_, after_;  // nothing: left out
  std::string started_, ended_;
  std::vector<Row> rows_;
};

// busbw / algbw (docs/ring_perf.md derives them).
double BusFactor(RingMode mode, int workers);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_REPORT_H_
