// Moves storages; PROT_NONE mappings, and the signal handler that names them.
#include "integrations/torch/parameter_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "p2p/job/limits.h"

namespace ringzero {
namespace {

// A signal handler has no context but globals: the table that it reads, and the handler before it.
std::array<std::atomic<const ParameterMemory*>, 4096> table;
struct sigaction previous;

void Say(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void OnFault(int signal, siginfo_t* info, void* context) {
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  for (const auto& slot : table) {
    const ParameterMemory* memory = slot.load(std::memory_order_acquire);
    if (memory != nullptr && memory->NameReleased(address)) break;
  }
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    ::signal(SIGSEGV, SIG_DFL);  // the faulting instruction runs again and ends the process
  }
}

void InstallHandler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = OnFault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &previous);
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterMemory>> ParameterMemory::Create(
    const std::string& what, const StageLayout& layout) {
  const size_t bytes = std::max<size_t>(static_cast<size_t>(layout.parameter_bytes), 1);
  void* begin = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) {
    return OutOfMemory(absl::StrCat("reserving ", layout.parameter_bytes,
                                    " bytes of addresses for ", what, ": ", std::strerror(errno)));
  }
  InstallHandler();
  return std::unique_ptr<ParameterMemory>(new ParameterMemory(what, layout, begin, bytes));
}

ParameterMemory::ParameterMemory(const std::string& what, const StageLayout& layout, void* released,
                                 size_t bytes)
    : what_(what),
      layout_(layout),
      released_(static_cast<std::byte*>(released)),
      released_bytes_(bytes),
      bound_(layout.parameters.size()) {
  for (auto& slot : table) {
    const ParameterMemory* free = nullptr;
    if (slot.compare_exchange_strong(free, this, std::memory_order_acq_rel)) break;
  }
}

ParameterMemory::~ParameterMemory() {
  for (const std::vector<at::Tensor>& tensors : bound_) {
    for (const at::Tensor& tensor : tensors) {
      c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
      storage->set_data_ptr_noswap(at::DataPtr(nullptr, at::Device(at::kCPU)));
      storage->set_nbytes(static_cast<size_t>(0));
    }
  }
  for (auto& slot : table) {
    const ParameterMemory* mine = this;
    if (slot.compare_exchange_strong(mine, nullptr)) break;
  }
  munmap(released_, released_bytes_);
}

bool ParameterMemory::NameReleased(const std::byte* address) const {
  if (address < released_ || address >= released_ + released_bytes_) return false;
  Say("ringzero: access to a released parameter of ");
  Say(what_);
  const std::string* parameter = nullptr;  // the last one that begins there or before
  for (const ParameterSpec& spec : layout_.parameters) {
    if (released_ + spec.offset_bytes <= address) parameter = &spec.name;
  }
  if (parameter != nullptr) {
    Say(": ");
    Say(*parameter);
  }
  Say(". A stage's parameters may be read only in its own forward and backward.\n");
  return true;
}

at::Tensor ParameterMemory::Bind(int parameter, const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const auto had = std::make_shared<at::DataPtr>(
      storage->set_data_ptr(at::DataPtr(nullptr, at::Device(at::kCPU))));
  bound_[parameter].push_back(tensor);
  // Resizing would ask torch's allocator for memory that is not ours.
  storage->set_resizable(false);
  Point(parameter, released_);
  return at::from_blob(
      had->get(), tensor.sizes(), tensor.strides(), [had](void*) {},
      at::TensorOptions(tensor.scalar_type()));
}

void ParameterMemory::Point(int parameter, const std::byte* base) {
  std::byte* data = const_cast<std::byte*>(base) + layout_.parameters[parameter].offset_bytes;
  for (const at::Tensor& tensor : bound_[parameter]) {
    // No deleter: the version belongs to the engine.
    tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
        at::DataPtr(data, at::Device(at::kCPU)));
  }
}

void ParameterMemory::PointAt(const std::byte* version, Bound which) {
  for (size_t i = 0; i < bound_.size(); ++i) {
    const Bound is = bound_[i].size() > 1 ? Bound::kShared : Bound::kUnshared;
    if (which == Bound::kAll || which == is) Point(static_cast<int>(i), version);
  }
}

uint64_t ParameterMemory::Fingerprint(const std::byte* version) const {
  constexpr int64_t kWords = 64;
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const ParameterSpec& spec : layout_.parameters) {
    const std::byte* values = version + spec.offset_bytes;
    const int64_t bytes = spec.numel * SizeOf(layout_.parameter_type), words = (bytes + 3) / 4;
    const int64_t stride = std::max<int64_t>(1, words / kWords);
    for (int64_t i = 0; i < words; i += stride) {
      uint32_t word = 0;
      std::memcpy(&word, values + i * 4, static_cast<size_t>(std::min<int64_t>(4, bytes - i * 4)));
      hash = (hash ^ word) * 0x100000001b3ULL;
    }
  }
  return hash;
}

}  // namespace ringzero
