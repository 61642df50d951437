// --init reads safetensors, --dump-parameters writes them, and every run ends with a digest.
//
//   RZ_ASSIGN_OR_RETURN(options.preset, OpenInitFile("model.safetensors", description));
//   RZ_ASSIGN_OR_RETURN(auto collector, ParameterCollector::Create("out.safetensors", layouts));
//   ring->Collect([&](const NamedValues& v) { return collector->Add(v); });
//   RZ_ASSIGN_OR_RETURN(std::string digest, collector->Finish());
#ifndef RINGZERO_INTEGRATIONS_CLI_PARAMETER_FILES_H_
#define RINGZERO_INTEGRATIONS_CLI_PARAMETER_FILES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/crypto.h"
#include "base/files.h"
#include "integrations/data/safetensors.h"
#include "integrations/torch/ring_model.h"
#include "zero/layout.h"
#include "zero/model_plan.h"

namespace ringzero {

// RingModelOptions::preset from files (TensorFiles::Open). Thread-safe. InvalidArgument or
// NotFound, naming file and tensor, unless they have exactly the model's parameters and running
// statistics, with their shapes (counts: int64, the rest floating-point). With `strays` names may
// be missing or unexpected: it gets a line for each.
absl::StatusOr<Preset> OpenInitFile(const std::string& path, const ModelDescription& model,
                                    std::vector<std::string>* strays = nullptr);
// The same from files that are open. `path` names them in errors.
absl::StatusOr<Preset> PresetOf(const std::string& path, TensorFiles files,
                                const ModelDescription& model,
                                std::vector<std::string>* strays = nullptr);

// Bytes of all values in ParameterCollector's file, without its header.
uint64_t DumpBytes(const std::vector<StageLayout>& layouts);

// The digest and, with a path, the file of the final state. One thread. An unfinished file is
// removed. A file that cannot be written at `path` goes to MakeSparePath (base/files.h).
class ParameterCollector {
 public:
  ~ParameterCollector();
  // `path` empty: no file.
  static absl::StatusOr<std::unique_ptr<ParameterCollector>> Create(
      const std::string& path, const std::vector<StageLayout>& layouts);

  // In the order of RingModel::Collect.
  absl::Status Add(const NamedValues& values);
  // Completes the file. Returns the SHA-256 of all parameters (not of statistics), as added.
  absl::StatusOr<std::string> Finish();
  // After Finish: why there is no file at `path`, and where it is instead; empty if it is there.
  std::string trouble() const;

 private:
  explicit ParameterCollector(std::string path) : path_(std::move(path)) {}
  // Calls `write` and, where the file cannot be written, goes on in a spare one and calls it again.
  absl::Status OrElsewhere(const std::function<absl::Status()>& write);
  // The file is at `path` from here on, with what is written so far.
  absl::Status GoOnIn(const std::string& path);
  absl::Status Write(absl::string_view bytes);

  const std::string path_;
  std::vector<TensorSpec> tensors_;
  size_t next_ = 0;  // in tensors_
  Sha256 digest_;
  std::unique_ptr<OutputFile> file_;  // null: no file asked for, or it cannot be written
  uint64_t written_ = 0;              // bytes of the head and of the tensors so far
  std::string spare_;                 // where the file is written instead; empty: at path_
  std::vector<std::string> why_;      // the file is not at path_, and then why nowhere
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_PARAMETER_FILES_H_
