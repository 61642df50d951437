// StageStatistics: the running statistics of a stage's BatchNorms, which belong to the stage and
// not to this worker.
//
//   statistics.BeginForward();                  // training: the buffers will hold this batch's
//   … forward …
//   RZ_ASSIGN_OR_RETURN(Buffer batch, statistics.TakeBatch());
//   statistics.Load(copy.statistics.data());    // evaluation: the buffers hold the running ones
//
// While this lives the modules' momentum is 1 and their buffers start at zero, so that a forward
// leaves exactly the batch's mean and unbiased variance there; the engine blends them with the
// momentum that the module was built with (zero/running_statistics.h). Used by one thread.
#ifndef RINGZERO_INTEGRATIONS_TORCH_STATISTICS_H_
#define RINGZERO_INTEGRATIONS_TORCH_STATISTICS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "integrations/torch/layer.h"
#include "integrations/torch/layer_parts.h"
#include "zero/layout.h"

namespace ringzero {

class StageStatistics {
 public:
  // `layout`: the stage's; must outlive it.
  explicit StageStatistics(const StageLayout& layout) : layout_(layout) {}
  ~StageStatistics();  // the modules get their momentum back

  // The stage's layers in order.
  absl::Status Add(const std::string& layer_name, Layer& layer);

  void BeginForward();
  // In the layout's statistics form; empty if there are none. FailedPrecondition, naming the
  // module, if one was run more or less than once, or if the forward wrote to any other buffer.
  absl::StatusOr<Buffer> TakeBatch();
  void Load(const std::byte* statistics);

 private:
  struct Constant {
    std::string name;
    at::Tensor tensor;
    int64_t version;
  };

  const StageLayout& layout_;
  std::vector<BatchNormPart> norms_;  // their specs stand at 3·i in layout_.statistics
  std::vector<Constant> constants_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_STATISTICS_H_
