// ParameterMemory: where one stage's parameters point: at a version's memory, or at addresses that
// nothing may touch.
//
//   RZ_ASSIGN_OR_RETURN(auto memory, ParameterMemory::Create("stage 3 (block2)", layout));
//   memory->Bind(0, weight);            // takes over its storage; returns the memory that it had
//   memory->PointAt(copy.data());       // weight now reads the version in that buffer
//   memory->Release();                  // weight now faults, which ends the process with
//   // "ringzero: access to a released parameter of stage 3 (block2): block2.weight. …"
//
// Parameter objects stay the same for ever; only their storages move (StorageImpl's
// set_data_ptr_noswap), so tensors that autograd saved move with them. Each is used by one thread.
#ifndef RINGZERO_INTEGRATIONS_TORCH_PARAMETER_MEMORY_H_
#define RINGZERO_INTEGRATIONS_TORCH_PARAMETER_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "integrations/torch/torch.h"
#include "zero/layout.h"

namespace ringzero {

// Parameters by how many tensors are bound to each: several, or one.
enum class Bound { kAll, kShared, kUnshared };

// Creating the first one of a process installs a SIGSEGV handler that names the parameter that was
// touched and then lets the signal take its course; a fault anywhere else goes to the handler that
// was there before. The handler can name the parameters of up to 4096 stages at once; those of
// further stages fault all the same.
class ParameterMemory {
 public:
  // `layout` must outlive it. `what` names the stage in faults. ResourceExhausted when there is no
  // address space left.
  static absl::StatusOr<std::unique_ptr<ParameterMemory>> Create(const std::string& what,
                                                                 const StageLayout& layout);
  // Afterwards the tensors that were bound have no memory: a user's handle that lives on is empty.
  ~ParameterMemory();

  // Several tensors may be bound to one parameter: tied ones. A parameter with more than one tensor
  // is shared. Returns the memory that the tensor had, as a tensor of its own.
  at::Tensor Bind(int parameter, const at::Tensor& tensor);

  // `version` must stay alive until the next call of one of these two.
  void PointAt(const std::byte* version, Bound which = Bound::kAll);
  void Release(Bound which = Bound::kAll) { PointAt(released_, which); }

  // A hash of a few words spread over the version: equal for equal values. Cheap. Finds a stage
  // whose backward reads other values than its forward did.
  uint64_t Fingerprint(const std::byte* version) const;

  // For the signal handler, on any thread: if `address` is one that nothing may touch here, says on
  // stderr whose it is.
  bool NameReleased(const std::byte* address) const;

 private:
  ParameterMemory(const std::string& what, const StageLayout& layout, void* released, size_t bytes);
  void Point(int parameter, const std::byte* base);

  const std::string what_;
  const StageLayout& layout_;
  std::byte* const released_;  // addresses that nothing may touch
  const size_t released_bytes_;
  std::vector<std::vector<at::Tensor>> bound_;  // by parameter
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_PARAMETER_MEMORY_H_
