// PROT_NONE mappings and the signal handler that names them.
#include "integrations/torch/released_range.h"

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
#include "p2p/launch/limits.h"

namespace ringzero {

struct ReleasedRange::Entry {
  std::byte* begin = nullptr;
  size_t bytes = 0;
  std::string what;
  std::vector<std::pair<size_t, std::string>> parts;
  int slot = -1;
};

namespace {

struct Named {
  std::atomic<const std::byte*> begin{nullptr};
  size_t bytes = 0;
  const std::string* what = nullptr;
  const std::vector<std::pair<size_t, std::string>>* parts = nullptr;
};

// A signal handler has no context but globals: the table that it reads, and the handler before it.
constexpr int kSlots = 4096;
std::array<Named, kSlots> table;
std::mutex table_mutex;  // writers; the handler takes nothing
struct sigaction previous;

void Say(const char* text, size_t size) {
  while (size > 0) {
    const ssize_t written = write(STDERR_FILENO, text, size);
    if (written <= 0) return;
    text += written;
    size -= static_cast<size_t>(written);
  }
}
void Say(const std::string& text) { Say(text.data(), text.size()); }
void Say(const char* text) { Say(text, std::strlen(text)); }

void NameRange(const Named& range, size_t offset) {
  Say("ringzero: access to a released parameter of ");
  Say(*range.what);
  const std::string* part = nullptr;
  for (const auto& [begin, text] : *range.parts) {
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
  for (const Named& range : table) {
    const std::byte* begin = range.begin.load(std::memory_order_acquire);
    if (begin == nullptr || address < begin || address >= begin + range.bytes) continue;
    NameRange(range, static_cast<size_t>(address - begin));
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
  std::lock_guard lock(table_mutex);
  for (int slot = 0; slot < kSlots; ++slot) {
    Named& named = table[slot];
    if (named.begin.load() != nullptr) continue;
    named.bytes = entry->bytes;
    named.what = &entry->what;
    named.parts = &entry->parts;
    named.begin.store(entry->begin, std::memory_order_release);
    entry->slot = slot;
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
  std::lock_guard lock(table_mutex);
  if (entry_->slot >= 0) table[entry_->slot].begin.store(nullptr);
  munmap(entry_->begin, entry_->bytes);
}

std::byte* ReleasedRange::data() const { return entry_->begin; }

}  // namespace ringzero
