// ParameterMemory: where one stage's parameters point: at a version's memory, or at a
// ReleasedRange.
//
//   RZ_ASSIGN_OR_RETURN(auto memory, ParameterMemory::Create("stage 3 (block2)", layout));
//   memory->Bind(0, weight);            // takes over its storage; returns the memory that it had
//   memory->PointAt(copy.data());       // weight now reads the version in that buffer
//   memory->Release();                  // weight now faults; the fault names stage and parameter
//
// Parameter objects stay the same for ever; only their storages move (StorageImpl's
// set_data_ptr_noswap), so tensors that autograd saved move with them. Used by one thread.
#ifndef RINGZERO_INTEGRATIONS_TORCH_PARAMETER_MEMORY_H_
#define RINGZERO_INTEGRATIONS_TORCH_PARAMETER_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "integrations/torch/torch.h"
#include "zero/layout.h"

namespace ringzero {

// Addresses that nothing may touch: touching one ends the process with "ringzero: access to a
// released parameter of stage 3 (block2): block2.weight".
//
// Reserving installs, once per process, a SIGSEGV handler that names the range that was touched and
// then lets the signal take its course; a fault anywhere else goes to the handler that was there
// before. The handler can name up to 4096 ranges at once; further ranges are reserved all the same.
// Thread-safe.
class ReleasedRange {
 public:
  // `parts`: (offset, text), ascending: `text` names what lies from its offset on.
  // ResourceExhausted when there is no address space left.
  static absl::StatusOr<ReleasedRange> Reserve(const std::string& what, size_t bytes,
                                               std::vector<std::pair<size_t, std::string>> parts);
  ReleasedRange(ReleasedRange&&) noexcept;
  ReleasedRange& operator=(ReleasedRange&&) noexcept;
  ~ReleasedRange();

  std::byte* data() const;
  struct Entry;

 private:
  explicit ReleasedRange(std::unique_ptr<Entry> entry);
  std::unique_ptr<Entry> entry_;
};

class ParameterMemory {
 public:
  // `layout` must outlive it. `what` names the stage in faults.
  static absl::StatusOr<std::unique_ptr<ParameterMemory>> Create(const std::string& what,
                                                                 const StageLayout& layout);
  // Afterwards the tensors that were bound have no memory: a user's handle that lives on is empty.
  ~ParameterMemory();

  // Several tensors may be bound to one parameter: tied ones. A parameter with more than one tensor
  // is `shared` below. Returns the memory that the tensor had, as a tensor of its own.
  at::Tensor Bind(int parameter, const at::Tensor& tensor);

  // `version` must stay alive until the next call of one of these four.
  void PointAt(const std::byte* version);
  void PointSharedAt(const std::byte* version);
  void Release();
  void ReleaseUnshared();

  // A hash of a few words spread over the version: equal for equal values. Cheap. Finds a stage
  // whose backward reads other values than its forward did.
  uint64_t Fingerprint(const std::byte* version) const;

 private:
  ParameterMemory(const StageLayout& layout, ReleasedRange released);
  void Point(int parameter, const std::byte* base);

  const StageLayout& layout_;
  ReleasedRange released_;
  std::vector<std::vector<at::Tensor>> bound_;  // by parameter
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_PARAMETER_MEMORY_H_
