// Control: what the workers of ring_perf tell each other between measurements: who is ready, and
// the numbers to worker 0.
//
//   RZ_ASSIGN_OR_RETURN(std::vector<std::string> all,
//                       control.Gather("ready", my_text, Manner::kBusy));
//   RZ_ASSIGN_OR_RETURN(std::string word, control.Tell("go", of_worker_0, Manner::kIdle));
//
// Texts go as questions of the transport, so that they take no memory and no channel from what
// is measured, and work over every transport. All workers call the same methods in the
// same order. Used by the calling thread.
#ifndef RINGZERO_BENCH_RING_CONTROL_H_
#define RINGZERO_BENCH_RING_CONTROL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/ring/waiting.h"

namespace ringzero {

class Control {
 public:
  // `waiting` and its transport outlive this. Create makes that transport answer (AnswerWith).
  static std::unique_ptr<Control> Create(Waiting* waiting);

  // The texts of all workers, by worker, at worker 0; empty elsewhere. Worker 0 returns when all
  // have called, any other worker when worker 0 has taken its text.
  absl::StatusOr<std::vector<std::string>> Gather(const std::string& what, const std::string& text,
                                                  Manner manner);
  // Worker 0's text, on every worker.
  absl::StatusOr<std::string> Tell(const std::string& what, const std::string& text, Manner manner);
  // Returns when all have called.
  absl::Status Meet(const std::string& what, Manner manner);

 private:
  struct Text {
    std::string so_far;
    bool complete = false;
  };
  using Inbox = std::map<std::pair<int, uint64_t>, Text>;  // by (from, number)
  explicit Control(Waiting* waiting) : waiting_(waiting), inbox_(std::make_shared<Inbox>()) {}

  absl::Status SendPart(WorkerId to, const std::string& what, const std::string& question);
  absl::Status Send(WorkerId to, const std::string& what, const std::string& text);
  absl::StatusOr<std::string> Receive(WorkerId from, const std::string& what, Manner manner);

  Waiting* waiting_;
  std::shared_ptr<Inbox> inbox_;  // shared with the answerer, which the transport keeps
  uint64_t number_ = 0;           // of the call; the same on all workers
};

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_CONTROL_H_
