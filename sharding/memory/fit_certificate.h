// FitCertificate: every byte that a run will hold, by category, place and worker, and whether that
// fits.
//
//   FitCertificate fit = Certify({.states = forecast, .hosts = {0, 0}, .pass = measured, …});
//   fit.HostPeak(0, MemoryPlace::kHost);
//   RZ_RETURN_IF_ERROR(CheckFit(fit, budgets));      // before anything is allocated
//
// Arithmetic on a plan's forecast and on numbers that others have measured or asked for: no file
// and no clock. docs/memory.md says where each number is from. Pure.
#ifndef RINGZERO_SHARDING_MEMORY_FIT_CERTIFICATE_H_
#define RINGZERO_SHARDING_MEMORY_FIT_CERTIFICATE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sharding/memory/block_table.h"

namespace ringzero {

enum class MemoryPlace { kHost, kDevice, kDisk };
inline constexpr int kMemoryPlaces = 3;
inline constexpr std::array<MemoryPlace, kMemoryPlaces> kAllMemoryPlaces = {
    MemoryPlace::kHost, MemoryPlace::kDevice, MemoryPlace::kDisk};
std::string ToString(MemoryPlace place);  // "host", "device", "disk"

// What one micro-batch takes on a worker's heap, as allocated, each at its most.
struct PassBytes {
  int64_t setup = 0;  // before the first one, while layers are built
  int64_t activations = 0;
  int64_t evaluation = 0;
  int64_t with_waiting_gradients = 0;  // activations, and gradients that wait for their sums
};

// What one micro-batch allocates and frees, in order; and the most that it has at once.
//
//   PassTimeline pass;
//   pass.Allocate(block, bytes);  …  pass.Free(block);  …  pass.EndStage({gradient_block, …});
//   pass.Peak(PassTimeline::Gradients::kNone);   // activations: tensors that are no gradients
//   pass.Peak(PassTimeline::Gradients::kWait, pending);  // and the gradients that may wait
//
// Bytes as allocated: whoever records them (integrations/torch/measurements.h) rounds. A block's
// number may be used again after its Free. Used by one thread.
class PassTimeline {
 public:
  void Allocate(uint64_t block, int64_t bytes);
  // Of a block that was not allocated here: nothing.
  void Free(uint64_t block);
  // A stage's backward is over; these blocks (an address within one will do) are its gradients, and
  // from when they were allocated. They are freed by others, so their Free here does not count.
  void EndStage(const std::vector<uint64_t>& gradients);

  enum class Gradients {
    kNone,     // left out: they go into their sums at once
    kDropped,  // freed at the end of their stage's backward
    kWait,     // those of `pending` stages wait while the next stage's are made
  };
  // Of a pass that has others like it before and after. `pending` counts with kWait alone.
  int64_t Peak(Gradients gradients, int pending = 0) const;

 private:
  enum class Kind { kAllocate, kFree, kEndStage };
  struct Entry {
    Kind kind;
    size_t block = 0;  // its Allocate's entry; kEndStage: of stage_gradients_
  };
  struct Block {
    int64_t bytes = 0;
    bool gradient = false;
    bool freed = false;
  };

  std::vector<Entry> entries_;
  std::vector<Block> blocks_;
  std::vector<int64_t> stage_gradients_;  // bytes, by EndStage
  std::map<uint64_t, size_t> places_;     // the last block at each address
};

// By worker, in bytes.
struct WorkerExtras {
  int64_t statistics = 0;  // running statistics of its modules
  int64_t pools = 0;       // the transport's memory beyond what it holds of states
  int64_t rounding = 0;    // of states, by allocator and pages
  int64_t tier = 0;        // states in its tier file, on the disk
  int64_t versions = 0;    // and versions in theirs
  int64_t staging = 0;     // what checkpoints are written through, and their thread's heap
};

// Where the run keeps what.
struct FitPlaces {
  MemoryPlace parameters = MemoryPlace::kHost;  // masters, versions, sums, pools
  MemoryPlace moments = MemoryPlace::kHost;
  MemoryPlace passes = MemoryPlace::kHost;  // activations, gradients, statistics
};

struct FitInput {
  MemoryForecast states;
  std::vector<int> hosts;  // of each worker, from 0
  std::vector<WorkerExtras> extras;
  PassBytes pass;
  FitPlaces places;
  int64_t process_bytes = 0;       // of a worker's process alone
  int64_t process_once_bytes = 0;  // of all processes of a host together: code, launcher
  bool one_process = false;        // the workers are threads of it
};

struct FitLine {
  std::string name;
  MemoryPlace place = MemoryPlace::kHost;
  std::vector<int64_t> workers;  // each at its most
  int64_t once = 0;              // on every host
};

struct FitCertificate {
  std::vector<FitLine> lines;  // in the order in which they are printed
  std::vector<int> hosts;      // of each worker
  // By worker: activations and gradients that are never there at the same time.
  std::vector<int64_t> apart;
  MemoryPlace apart_place = MemoryPlace::kHost;

  int host_count() const;
  int64_t WorkerPeak(int worker, MemoryPlace place) const;  // without what its host has once
  int64_t HostPeak(int host, MemoryPlace place) const;
  int64_t Bytes(const FitLine& line, int host) const;
  int FullestHost(MemoryPlace place) const;
};

// The vectors of `input` have an entry per worker.
FitCertificate Certify(const FitInput& input);

// What a host may hold in a place; nothing: nobody knows, and nothing is checked.
struct FitBudget {
  std::optional<int64_t> bytes;
  std::string source;  // "cyclic.memory_budget.host", "MemAvailable"
};
using FitBudgets = std::array<FitBudget, kMemoryPlaces>;

// InvalidArgument, one line: the place, wanted and found bytes, the largest category, and what
// would help.
absl::Status CheckFit(const FitCertificate& fit, const FitBudgets& budgets);

// A table: categories of the fullest host by place, their peak, the budget; where workers' memory
// is not shared, the fullest worker's, too. Each number in bytes and, beside it, in MiB.
enum class FitUnit { kHost, kWorker };
std::string DescribeFit(const FitCertificate& fit, const FitBudgets& budgets, FitUnit unit);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_MEMORY_FIT_CERTIFICATE_H_
