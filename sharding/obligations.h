// Obligations: every operation that the workers must do, derived from the definitions alone.
//
//   Obligations must = DeriveObligations(plan);
//   must.computing[2];   // worker 2's F, B, E, End and Collect, in order
//   must.rest[2];        // everything else that worker 2 does, ascending, in no order of time
//
// Verify's second opinion on program.cc, collections.cc and schedule.cc: it shares no code with
// them. Where those write down what a worker does next, this says per micro-batch, update and
// evaluation what has to exist.
#ifndef RINGZERO_SHARDING_OBLIGATIONS_H_
#define RINGZERO_SHARDING_OBLIGATIONS_H_

#include <vector>

#include "sharding/op.h"
#include "sharding/plan.h"

namespace ringzero {

struct Obligations {
  std::vector<std::vector<Op>> computing;  // by worker, in program order
  std::vector<std::vector<Op>> rest;       // by worker, sorted
};

// Of the whole run. The plan must have passed CheckPlan.
Obligations DeriveObligations(const Plan& plan);

// A micro-batch by its number in the run: m = N·(t·K + l) + w.
struct MicroBatchPlace {
  int worker;
  int iteration;
  int lap;
};
MicroBatchPlace PlaceOf(const Plan& plan, int64_t micro_batch);
int64_t NumberOf(const Plan& plan, const MicroBatchPlace& place);

// The label that the update rule gives this micro-batch for stage j.
int RequiredLabel(const Plan& plan, const MicroBatchPlace& place, int j);

// A stagger token: `begins` (F or B, and its stage) of micro-batch m waits for `finished` of
// micro-batch m - 1, or of m - 1 + N.
struct StaggerWait {
  Op finished;
  Op begins;
  bool in_next_lap = false;
};
// In the order of a lap.
std::vector<StaggerWait> StaggerWaits(const Plan& plan);
// Whether micro-batch m has this token: both micro-batches exist, and their worker does nothing
// else between them.
bool HasStaggerToken(const Plan& plan, const StaggerWait& wait, int64_t m);

// The versions that are evaluated, and those that are collected whole, ascending.
std::vector<int> RequiredEvaluations(const Plan& plan);
std::vector<int> RequiredCollections(const Plan& plan);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_OBLIGATIONS_H_
