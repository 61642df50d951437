// Trained parameters in files: --init reads safetensors, --dump-parameters writes them, and every
// run ends with a digest.
//
//   RZ_ASSIGN_OR_RETURN(auto init, InitFile::Open("model.safetensors", description));
//   options.preset = init->Preset();                                 // RingModelOptions
//   RZ_ASSIGN_OR_RETURN(auto collector, ParameterCollector::Create("out.safetensors", layouts));
//   ring->Collect([&](const NamedValues& v) { return collector->Add(v); });
//   RZ_ASSIGN_OR_RETURN(std::string digest, collector->Finish());
#ifndef RINGZERO_INTEGRATIONS_CLI_PARAMETER_FILES_H_
#define RINGZERO_INTEGRATIONS_CLI_PARAMETER_FILES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sha256.h"
#include "integrations/data/safetensors.h"
#include "integrations/torch/ring_model.h"
#include "zero/layout.h"
#include "zero/model_plan.h"

namespace ringzero {

// Initial values from a file. Thread-safe after Open.
class InitFile {
 public:
  // InvalidArgument or NotFound, naming file and tensor, unless the file has exactly the model's
  // parameters and running statistics, with their shapes (counts: int64, the rest floating-point).
  static absl::StatusOr<std::unique_ptr<InitFile>> Open(const std::string& path,
                                                        const ModelDescription& model);

  // For RingModelOptions::preset; `this` must outlive it.
  std::function<absl::StatusOr<bool>(const std::string& name, std::vector<float>& values)> Preset();

 private:
  InitFile() = default;
  absl::Status Check(const std::string& path) const;
  absl::StatusOr<bool> Fill(const std::string& name, std::vector<float>& values) const;

  std::map<std::string, TensorSpec> wanted_;
  std::unique_ptr<SafetensorsReader> reader_;
};

// Digest and, with a path, file of the final state. One thread. An unfinished file is removed.
class ParameterCollector {
 public:
  // `path` empty: no file.
  static absl::StatusOr<std::unique_ptr<ParameterCollector>> Create(
      const std::string& path, const std::vector<StageLayout>& layouts);

  // In the order of RingModel::Collect.
  absl::Status Add(const NamedValues& values);
  // Completes the file. SHA-256 of all parameters (not of statistics) in the order added.
  absl::StatusOr<std::string> Finish();

 private:
  ParameterCollector() = default;
  Sha256 digest_;
  std::unique_ptr<SafetensorsWriter> writer_;  // null: none asked for
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_PARAMETER_FILES_H_
