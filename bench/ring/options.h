// RingOptions: what one run of ring_perf is asked to do; the flags of nccl-tests, with the same
// meaning and defaults, and a few of our own.
//
//   RZ_ASSIGN_OR_RETURN(RingOptions options, ParseRingOptions(argc, argv));
//   options.min_bytes;      // of -b 64K: 65536
//
// Parsing is strict: an unknown flag is InvalidArgument with the nearest known one. Plain values.
#ifndef RINGZERO_BENCH_RING_OPTIONS_H_
#define RINGZERO_BENCH_RING_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/ring/payload.h"
#include "p2p/job/join_job.h"
#include "p2p/transport.h"

namespace ringzero {

enum class RingMode { kShift, kRelay, kReduce, kPingpong, kStream, kTrain };
// How the workers' times become the `time` column (-a).
enum class Average { kWorker0, kMean, kMin, kMax };

struct RingOptions {
  size_t min_bytes = size_t{32} << 20;
  size_t max_bytes = size_t{32} << 20;
  size_t step_bytes = size_t{1} << 20;
  int64_t step_factor = 1;  // 1: fixed increments
  int iterations = 20;
  int warmup = 1;
  int aggregate = 1;
  int check = 1;
  int cycles = 1;     // 0: for ever
  int timeout_s = 0;  // 0: no limit of the user's
  Average average = Average::kMean;
  std::vector<ElementType> types = {ElementType::kFloat};
  bool timestamps = false;     // -S
  bool per_iteration = false;  // -I
  int per_iteration_skip = 0;  // -K
  std::string json_file;
  std::string csv_file;

  RingMode mode = RingMode::kShift;
  std::string transport = "shm";
  MemoryKind memory = MemoryKind::kHost;
  // Without --workers: 2 for pingpong and stream, the plan's number for train, otherwise 4.
  int workers = 0;
  ProgressMode progress = ProgressMode::kThread;
  bool pin = false;
  bool copy = false;  // receivers copy what arrives
  bool cached = false;
  bool compare = false;
  int rounds = 4;            // of a comparison
  bool inject_flip = false;  // for tests of this program itself: damages one checked message
  bool skip_host = false;
  std::string plan_file;  // train
  // --worker, --workers as given, --rendezvous: where this process is one worker of an outside job.
  IdentityFlags identity;
  int slots = 0;        // to receive into; 0: twice the aggregate, at least 2 (pingpong: 4)
  std::string command;  // the whole command line, for the header
  std::string agreed;   // lines "--iters = 10": the flags as given that all workers must have alike

  // Between all workers, surely.
  bool shares_memory() const { return transport == "shm" || transport == "local"; }
  // The sizes of the table, ascending.
  std::vector<size_t> Sizes() const;
};

// What ParseRingOptions makes of `words`: argv without the program's name.
struct ParsedOptions {
  RingOptions options;
  std::string help;  // asked for: nothing else is set
};
absl::StatusOr<ParsedOptions> ParseRingOptions(const std::vector<std::string>& words);

// InvalidArgument for a number of workers that the mode cannot have.
absl::Status CheckWorkers(const RingOptions& options);

std::string ToString(RingMode mode);
std::string ToString(Average average);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_OPTIONS_H_
