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
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "p2p/job/limits.h"

namespace ringzero {

// Addresses that nothing may touch: touching one ends the process with a message.
//
// Reserving installs, once per process, a SIGSEGV handler that names the range that was touched and
// then lets the signal take its course; a fault anywhere else goes to the handler that was there
// before. The handler can name up to 4096 ranges at once; further ranges are reserved all the same.
// Thread-safe.
class ReleasedRange {
 public:
  // `layout` must outlive it.
  static absl::StatusOr<std::unique_ptr<const ReleasedRange>> Reserve(const std::string& what,
                                                                      const StageLayout& layout);
  ReleasedRange(const ReleasedRange&) = delete;
  ReleasedRange& operator=(const ReleasedRange&) = delete;
  ~ReleasedRange();

  std::byte* data() const { return begin_; }
  bool Has(const std::byte* address) const {
    return address >= begin_ && address < begin_ + bytes_;
  }
  // Says that `address`, which it has, was touched. For the signal handler.
  void Name(const std::byte* address) const;

 private:
  ReleasedRange(const std::string& what, const StageLayout& layout, void* begin, size_t bytes);

  const std::string what_;
  const StageLayout& layout_;
  std::byte* const begin_;
  const size_t bytes_;
  std::atomic<const ReleasedRange*>* slot_ = nullptr;  // of the table below
};

namespace {

// A signal handler has no context but globals: the table that it reads, and the handler before it.
std::array<std::atomic<const ReleasedRange*>, 4096> table;
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
    const ReleasedRange* range = slot.load(std::memory_order_acquire);
    if (range == nullptr || !range->Has(address)) continue;
    range->Name(address);
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

absl::StatusOr<std::unique_ptr<const ReleasedRange>> ReleasedRange::Reserve(
    const std::string& what, const StageLayout& layout) {
  const size_t bytes = std::max<size_t>(static_cast<size_t>(layout.parameter_bytes), 1);
  void* begin = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) {
    return OutOfMemory(absl::StrCat("reserving ", layout.parameter_bytes,
                                    " bytes of addresses for ", what, ": ", std::strerror(errno)));
  }
  InstallHandler();
  return std::unique_ptr<const ReleasedRange>(new ReleasedRange(what, layout, begin, bytes));
}

ReleasedRange::ReleasedRange(const std::string& what, const StageLayout& layout, void* begin,
                             size_t bytes)
    : what_(what), layout_(layout), begin_(static_cast<std::byte*>(begin)), bytes_(bytes) {
  for (auto& slot : table) {
    const ReleasedRange* free = nullptr;
    if (!slot.compare_exchange_strong(free, this, std::memory_order_acq_rel)) continue;
    slot_ = &slot;
    break;
  }
}

ReleasedRange::~ReleasedRange() {
  if (slot_ != nullptr) slot_->store(nullptr);
  munmap(begin_, bytes_);
}

void ReleasedRange::Name(const std::byte* address) const {
  Say("ringzero: access to a released parameter of ");
  Say(what_);
  const std::string* parameter = nullptr;  // the last one that begins there or before
  for (const ParameterSpec& spec : layout_.parameters) {
    if (begin_ + spec.offset_bytes <= address) parameter = &spec.name;
  }
  if (parameter != nullptr) {
    Say(": ");
    Say(*parameter);
  }
  Say(". A stage's parameters may be read only in its own forward and backward.\n");
}

absl::StatusOr<std::unique_ptr<ParameterMemory>> ParameterMemory::Create(
    const std::string& what, const StageLayout& layout) {
  RZ_ASSIGN_OR_RETURN(auto released, ReleasedRange::Reserve(what, layout));
  return std::unique_ptr<ParameterMemory>(new ParameterMemory(layout, std::move(released)));
}

ParameterMemory::ParameterMemory(const StageLayout& layout,
                                 std::unique_ptr<const ReleasedRange> released)
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
  Point(parameter, released_->data());
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

void ParameterMemory::Release() { PointAt(released_->data()); }

void ParameterMemory::ReleaseUnshared() {
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (bound_[i].size() == 1) Point(static_cast<int>(i), released_->data());
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
