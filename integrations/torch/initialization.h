// Initial values: keyed by (seed, name), so that every worker, worker count and stage cut has the
// same values.
//
//   RZ_ASSIGN_OR_RETURN(std::shared_ptr<Layer> layer, BuildLayer(factory, seed));
//   RZ_RETURN_IF_ERROR(InitializeParameters(request, buffer));   // a stage, one layer at a time
#ifndef RINGZERO_INTEGRATIONS_TORCH_INITIALIZATION_H_
#define RINGZERO_INTEGRATIONS_TORCH_INITIALIZATION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "integrations/torch/layer.h"
#include "zero/layout.h"

namespace ringzero {

// Seeds torch's default generator of the CPU for a scope and puts its old state back. A process has
// one such generator, so scopes of several threads take turns.
class SeededScope {
 public:
  explicit SeededScope(uint64_t key);
  ~SeededScope();
  SeededScope(const SeededScope&) = delete;
  SeededScope& operator=(const SeededScope&) = delete;

 private:
  const MutexLock lock_;
  at::Generator generator_;
  at::Tensor state_;
};

// The seed of the generator that draws values for `name`.
uint64_t InitializationKey(uint64_t seed, const std::string& name);

// Builds in a SeededScope of (seed, layer name). Errors of the user's code become InvalidArgument
// and name the layer.
absl::StatusOr<std::shared_ptr<Layer>> BuildLayer(const LayerFactory& factory, uint64_t seed);

// Values given from outside: see RingModelOptions::preset.
using Preset =
    std::function<absl::StatusOr<bool>(const std::string& name, std::vector<float>& values)>;

struct InitializationRequest {
  std::span<const LayerFactory> layers;  // of the stage
  const StageLayout& layout;
  uint64_t seed = 0;
  const Preset& preset;                           // may be empty
  const std::map<std::string, at::Tensor>& kept;  // values of ready modules, by full name
};

// Fills a stage's parameters, each in its own strides. Holds one layer at a time.
absl::Status InitializeParameters(const InitializationRequest& request, std::byte* parameters);
// Fills a stage's running statistics with what the built modules hold.
absl::Status InitializeStatistics(const InitializationRequest& request, std::byte* statistics);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_INITIALIZATION_H_
