// A toy model without LibTorch: run on the ring by the engine, and alone by an independent loop.
//
// Stage j has `width` trainable values and one unused parameter (or none). With a_0 = data(m):
// a_{j+1} = 0.9·a_j + θ̂_j[0] + θ̂_j[width-1], gradient_j[i] = 0.1·θ̂_j[i] + a_j / (1 + i), loss =
// a_S. Every stage blends a_j into a running statistic. All in fp32, so that an order of addition
// shows, but for what `precision` says: θ̂ is what travels, gradients are of the computing type, and
// of a loss that is as many times as large as the loss scale says.
#ifndef RINGZERO_TESTS_ZERO_TOY_RING_H_
#define RINGZERO_TESTS_ZERO_TOY_RING_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/io_engine.h"
#include "sharding/memory/block_table.h"
#include "sharding/plan.h"
#include "tests/p2p/transports.h"
#include "zero/engine.h"
#include "zero/flight/flight_record.h"
#include "zero/optimizer/optimizer.h"
#include "zero/precision.h"

namespace ringzero {

// Worker 0 asks for it before it begins this lap.
struct ToyRequest {
  int iteration = 0;
  Request request = Request::kEnd;
  int lap = 0;
  // Only a first lap brings requests.
  Iteration brought_by() const { return Iteration(iteration + (lap > 0 ? 1 : 0)); }
};

struct ToyOptions {
  int workers = 1;
  int stages = 2;
  int zero_stage = 3;
  int laps = 1;
  int iterations = 4;
  int first_iteration = 0;
  // Of the run that made the version with which this one begins; 0: the same as here.
  int workers_before = 0, laps_before = 0;
  int warmup_updates = 0;
  Rule rule = Rule::kCdpV2;
  int slack = 1;
  int pending = 1;
  int window = 0;          // 0: SmallestWindow
  std::vector<int> hosts;  // as in Plan
  bool stagger = false;
  bool predict = false;
  int retain = 0;
  Clipping clipping = Clipping::kOff;  // kExact with cdp_v2: strict, too
  bool strict = false;
  int frozen_prefix = 0;  // stages
  bool tied = false;      // stage 0's values are read by the last stage, too
  EvaluationPlan evaluation;
  CollectionPlan collection;
  CheckpointPlan checkpoint;
  std::vector<ToyRequest> requests;
  SamplePlan samples;
  OptimizerOptions optimizer;
  // Every second stage streams its state, through a ring of so many pieces; 0: none streams.
  int staged_pieces = 0;
  bool saves_take_files = false;  // of the tier
  // Versions lie in files, of two in three stages that may, and are read in so many slots; 0: none.
  int parameter_slots = 0;
  // What the tier's engine becomes; null: nothing else.
  std::function<std::unique_ptr<IoEngine>(std::unique_ptr<IoEngine>)> io;
  Precision precision;  // skip_overflows with cdp_v2: strict, too
  std::vector<OverflowPlace> overflows;
  bool gradient_norms = false;
  int width = 5;
  size_t recorder_events = kFlightEvents;  // of each ring of a worker's flight recorder
  std::string trace_folder;                // where every worker streams its events; empty: nowhere
};

// A version as its owners have saved it.
struct ToySaved {
  struct Stage {
    std::vector<std::byte> masters, state, statistics;
    std::map<Version, std::vector<std::byte>> others;  // by label
  };
  std::map<int, Stage> stages;
  SavedScalars scalars;
  int parts = 0;  // that the receipts tell of
};

struct ToyResult {
  std::vector<double> losses;       // by iteration: the sum over its samples
  std::vector<double> evaluations;  // one entry per evaluated version
  std::vector<float> parameters;    // all stages, final
  std::vector<float> statistics;    // all stages, final
  // Of the averaged gradient before clipping. Of the reference: of all iterations; of the ring,
  // with gradient_norms: of the last three (or all), by worker 0 after Finish.
  std::vector<double> norms;
  std::vector<double> scales;  // of the reference: of the loss, by iteration
  int skipped = 0;             // iterations that overflowed
  // Every collected version, every stage: parameters, statistic, averaged gradient, state. What is
  // not there (of a frozen stage, of a parameter without a gradient) is left out.
  std::vector<float> collected;
  int64_t parameter_bytes_sent = 0;  // whole ring, training copies
  int64_t sum_bytes_sent = 0;
  std::map<int, ToySaved> saving, saved;  // by version; once it was committed
  std::vector<MemoryBytes> memory;        // by worker: what its engine had allocated
  std::vector<int64_t> operations;        // by worker: known at once, at their most
  std::vector<FlightRecord> flights;      // by worker, after Finish
  bool operator==(const ToyResult& other) const {
    return losses == other.losses && evaluations == other.evaluations &&
           parameters == other.parameters && statistics == other.statistics &&
           collected == other.collected;
  }
};

Plan ToyPlan(const ToyOptions& options);
// What the run becomes by its requests: the same run without them.
ToyOptions AsAsked(ToyOptions options);
std::vector<StageLayout> ToyLayouts(const ToyOptions& options);

// What a run has at the beginning of an iteration, by stage.
struct ToyState {
  std::vector<std::vector<float>> theta;              // θ_t
  std::vector<std::vector<float>> before;             // θ_{t-1}, as it travels
  std::vector<std::vector<float>> guess, next_guess;  // of θ_t and θ_{t+1}, as they travel
  std::vector<std::vector<std::byte>> optimizer;      // in StateLayout
  std::vector<float> running;
  double norm = 0;  // of iteration t - 1
  LossScale::History loss_scale;
};

// Fails the test, naming stage and label, unless every version that the plan saves was committed, and is
// what the reference has at the beginning of that iteration.
void ExpectSaved(const ToyOptions& options, const std::map<int, ToySaved>& saved);

// One thread per worker over the given transports. A run that does not begin with iteration 0 begins
// with what the reference has there.
absl::StatusOr<ToyResult> RunToyRing(const ToyOptions& options, const MakeTransports& transports);

// The same training in one loop, micro-batch after micro-batch, always from iteration 0 on. The result
// is of o.first_iteration and later ones; `first` gets what that one begins with.
ToyResult RunToyReference(const ToyOptions& options, ToyState* first = nullptr);

}  // namespace ringzero

#endif  // RINGZERO_TESTS_ZERO_TOY_RING_H_
