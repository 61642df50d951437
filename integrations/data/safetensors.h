// Safetensors: a file of named tensors; a head, and all values behind it.
//
//   RZ_ASSIGN_OR_RETURN(std::string head, SafetensorsHead(
//       {{.name = "in.weight", .type = TensorType::kF32, .shape = {256, 784}}, …}, {}));
//   … write the head, and then each tensor's values in the order of the list …
//
//   RZ_ASSIGN_OR_RETURN(auto files, TensorFiles::Open("m.safetensors"));
//   RZ_RETURN_IF_ERROR(files.Read("in.weight", {256, 784}, values));
//
// Format: eight bytes little-endian, the header's length; the header, JSON: {"name": {"dtype",
// "shape", "data_offsets": [begin, end]}, …}; the values, row-major, little-endian, without gaps.
// No whole model is ever in memory. Every error names the file, and the tensor if there is one.
#ifndef RINGZERO_INTEGRATIONS_DATA_SAFETENSORS_H_
#define RINGZERO_INTEGRATIONS_DATA_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "zero/layout.h"

namespace ringzero {

// The types that are read, kF16 and kBF16 as fp32. Other types may be in a file: they are kOther.
enum class TensorType { kF32, kF16, kBF16, kI64, kOther };

struct TensorSpec {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;
};
// How parameters and running statistics stand in a file: fp32, counts int64.
TensorSpec SpecOf(const ParameterSpec& parameter);
TensorSpec SpecOf(const StatisticSpec& statistic);

size_t WidthOf(TensorType type);                     // bytes of a value
int64_t NumelOf(const std::vector<int64_t>& shape);  // values

// What a file of these tensors begins with, up to the first value: a multiple of so many bytes.
// InvalidArgument: a name twice, a type that cannot be written.
absl::StatusOr<std::string> SafetensorsHead(const std::vector<TensorSpec>& tensors,
                                            const std::map<std::string, std::string>& metadata,
                                            size_t multiple = 8);

// The file is mapped, so opening a large one is cheap; it must not be changed meanwhile.
// Thread-safe.
class SafetensorsReader {
 public:
  struct Entry {
    TensorSpec spec;
    std::string type_name;  // as in the file: "F32"
    uint64_t begin = 0;     // bytes, from the start of the values
    uint64_t end = 0;
  };

  // NotFound or InvalidArgument: missing, truncated, a header that is too large or is not as the
  // format wants it, values that overlap, leave gaps or do not have the size of their shape.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(const std::string& path);
  ~SafetensorsReader();
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  const std::vector<Entry>& entries() const { return entries_; }  // in the order of their values
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // The file in two parts: up to the first value, and all values.
  std::span<const std::byte> head() const { return file_.first(file_.size() - values_.size()); }
  std::span<const std::byte> values() const { return values_; }

  // Fills `out`, NumelOf(shape) values, from an entry of this file. InvalidArgument: another shape,
  // or another type than F32, F16 or BF16 (into float), I64 (into int64_t).
  absl::Status Read(const Entry& entry, const std::vector<int64_t>& shape,
                    std::span<float> out) const;
  absl::Status Read(const Entry& entry, const std::vector<int64_t>& shape,
                    std::span<int64_t> out) const;

 private:
  SafetensorsReader(std::string path, std::span<const std::byte> file)
      : path_(std::move(path)), file_(file) {}
  absl::Status Parse();  // errors name the tensor, not the file
  absl::Status Check(const Entry& entry, const std::vector<int64_t>& shape, size_t values) const;

  std::string path_;
  std::span<const std::byte> file_;    // mapped
  std::span<const std::byte> values_;  // its part after the header
  std::map<std::string, std::string> metadata_;
  std::vector<Entry> entries_;
};

// Files whose tensors are looked up together. Thread-safe once it is made. Copies share the files.
class TensorFiles {
 public:
  struct Place {
    std::shared_ptr<const SafetensorsReader> file;
    const SafetensorsReader::Entry* entry = nullptr;
    std::span<const std::byte> values() const {
      return file->values().subspan(entry->begin, entry->end - entry->begin);
    }
  };

  // A file; an index of files ("weight_map", as HuggingFace's libraries write it); or a folder with
  // model.safetensors.index.json or model.safetensors. Errors as SafetensorsReader's;
  // InvalidArgument also where a tensor is not in the file that the index names for it.
  static absl::StatusOr<TensorFiles> Open(const std::string& path);

  // InvalidArgument: it has a tensor whose name another file has.
  absl::Status Add(const std::shared_ptr<const SafetensorsReader>& file);

  const std::map<std::string, Place>& tensors() const { return tensors_; }  // by name
  // As SafetensorsReader::Read. NotFound: no such tensor.
  template <typename Value>
  absl::Status Read(const std::string& name, const std::vector<int64_t>& shape,
                    std::span<Value> out) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return absl::NotFoundError("there is no tensor '" + name + "'");
    return found->second.file->Read(*found->second.entry, shape, out);
  }

 private:
  std::map<std::string, Place> tensors_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_DATA_SAFETENSORS_H_
