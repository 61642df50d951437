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
#include "base/status.h"
#include "p2p/launch/limits.h"

namespace ringzero {

struct ReleasedRange::Entry {
  std::byte* begin = nullptr;
  size_t bytes = 0;
  std::string what;
  std::vector<std::pair<size_t, std::string>> parts;
  std::atomic<const Entry*>* slot = nullptr;  // of the table below
};

namespace {

// A signal handler has no context but globals: the table that it reads, and the handler before it.
std::array<std::atomic<const ReleasedRange::Entry*>, 4096> table;
struct sigaction previous;

void Say(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void NameRange(const ReleasedRange::Entry& range, size_t offset) {
  Say("ringzero: access to a released parameter of ");
  Say(range.what);
  const std::string* part = nullptr;
  for (const auto& [begin, text] : range.parts) {
    if (begin <= offset) part = &text;
  }
  if (part != nullptr) {
    Say(": ");
    Say(*part);
  }
  Say(". A stage's parameters may be read only in its own forward and backward.\n");
}

void OnFault(int signal, siginfo_t* info, void* context) {
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  for (const auto& slot : table) {
    const ReleasedRange::Entry* range = slot.load(std::memory_order_acquire);
    if (range == nullptr || address < range->begin || address >= range->begin + range->bytes) {
      continue;
    }
    NameRange(*range, static_cast<size_t>(address - range->begin));
    break;
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

absl::StatusOr<ReleasedRange> ReleasedRange::Reserve(
    const std::string& what, size_t bytes, std::vector<std::pair<size_t, std::string>> parts) {
  auto entry = std::make_unique<Entry>();
  entry->bytes = std::max<size_t>(bytes, 1);
  entry->what = what;
  entry->parts = std::move(parts);
  void* begin =
      mmap(nullptr, entry->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) {
    return OutOfMemory(absl::StrCat("reserving ", bytes, " bytes of addresses for ", what, ": ",
                                    std::strerror(errno)));
  }
  entry->begin = static_cast<std::byte*>(begin);
  InstallHandler();
  for (auto& slot : table) {
    const Entry* free = nullptr;
    if (!slot.compare_exchange_strong(free, entry.get(), std::memory_order_acq_rel)) continue;
    entry->slot = &slot;
    break;
  }
  return ReleasedRange(std::move(entry));
}

ReleasedRange::ReleasedRange(std::unique_ptr<Entry> entry) : entry_(std::move(entry)) {}
ReleasedRange::ReleasedRange(ReleasedRange&&) noexcept = default;
ReleasedRange& ReleasedRange::operator=(ReleasedRange&& other) noexcept {
  std::swap(entry_, other.entry_);
  return *this;
}

ReleasedRange::~ReleasedRange() {
  if (entry_ == nullptr) return;
  if (entry_->slot != nullptr) entry_->slot->store(nullptr);
  munmap(entry_->begin, entry_->bytes);
}

std::byte* ReleasedRange::data() const { return entry_->begin; }

absl::StatusOr<std::unique_ptr<ParameterMemory>> ParameterMemory::Create(
    const std::string& what, const StageLayout& layout) {
  std::vector<std::pair<size_t, std::string>> parts;
  for (const ParameterSpec& spec : layout.parameters) {
    parts.emplace_back(static_cast<size_t>(spec.offset_bytes), spec.name);
  }
  RZ_ASSIGN_OR_RETURN(
      ReleasedRange released,
      ReleasedRange::Reserve(what, static_cast<size_t>(layout.parameter_bytes), std::move(parts)));
  return std::unique_ptr<ParameterMemory>(new ParameterMemory(layout, std::move(released)));
}

ParameterMemory::ParameterMemory(const StageLayout& layout, ReleasedRange released)
    : layout_(layout), released_(std::move(released)), bound_(layout.parameters.size()) {}

ParameterMemory::~ParameterMemory() {
  for (const std::vector<at::Tensor>& tensors : bound_) {
    for (const at::Tensor& tensor : tensors) {
      c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
      storage->set_data_ptr_noswap(at::DataPtr(nullptr, at::Device(at::kCPU)));
      storage->set_nbytes(static_cast<size_t>(0));
    }
  }
}

at::Tensor ParameterMemory::Bind(int parameter, const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const auto had = std::make_shared<at::DataPtr>(
      storage->set_data_ptr(at::DataPtr(nullptr, at::Device(at::kCPU))));
  bound_[parameter].push_back(tensor);
  // Resizing would ask torch's allocator for memory that is not ours.
  storage->set_resizable(false);
  Point(parameter, released_.data());
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

void ParameterMemory::PointAt(const std::byte* version) {
  for (size_t i = 0; i < bound_.size(); ++i) Point(static_cast<int>(i), version);
}

void ParameterMemory::PointSharedAt(const std::byte* version) {
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (bound_[i].size() > 1) Point(static_cast<int>(i), version);
  }
}

void ParameterMemory::Release() { PointAt(released_.data()); }

void ParameterMemory::ReleaseUnshared() {
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (bound_[i].size() == 1) Point(static_cast<int>(i), released_.data());
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
