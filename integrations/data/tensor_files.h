// TensorFiles: safetensors files whose tensors are looked up together.
//
//   RZ_ASSIGN_OR_RETURN(TensorFiles files, TensorFiles::Open("gpt2/model.safetensors.index.json"));
//   RZ_RETURN_IF_ERROR(files.Read("wte.weight", {50257, 768}, values));
//
// Thread-safe once it is made. Copies share the files.
#ifndef RINGZERO_INTEGRATIONS_DATA_TENSOR_FILES_H_
#define RINGZERO_INTEGRATIONS_DATA_TENSOR_FILES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "integrations/data/safetensors.h"

namespace ringzero {

class TensorFiles {
 public:
  struct Place {
    std::shared_ptr<const SafetensorsReader> file;
    const SafetensorsReader::Entry* entry = nullptr;
  };

  // A file; an index of files ("weight_map", as HuggingFace's libraries write it); or a folder with
  // model.safetensors.index.json or model.safetensors. Errors name the file: NotFound; InvalidArgument
  // also where a tensor is not in the file that the index names for it.
  static absl::StatusOr<TensorFiles> Open(const std::string& path);

  // InvalidArgument: it has a tensor whose name another file has.
  absl::Status Add(std::shared_ptr<const SafetensorsReader> file);

  const std::map<std::string, Place>& tensors() const { return tensors_; }  // by name
  // As SafetensorsReader::Read.
  template <typename Value>
  absl::Status Read(const std::string& name, const std::vector<int64_t>& shape,
                    std::span<Value> out) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return Missing(name);
    return found->second.file->Read(name, shape, out);
  }

 private:
  static absl::Status Missing(const std::string& name);
  std::map<std::string, Place> tensors_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_DATA_TENSOR_FILES_H_
