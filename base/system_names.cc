// pthread_setname_np(3), the memory that /proc/self/cmdline shows, and what a thread needs to
// begin.
#include "base/system_names.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/files.h"

namespace ringzero {
namespace {

constexpr size_t kNameBytes = 16;         // with the zero behind it
constexpr size_t kThreadRoom = 24 << 20;  // a stack, and what an allocator takes for a thread

}  // namespace

void NameThread(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, kNameBytes - 1).c_str());
}

std::string ThreadName() {
  std::array<char, kNameBytes> name{};
  pthread_getname_np(pthread_self(), name.data(), name.size());
  return name.data();
}

// jemalloc 5.3 crashes where a thread's first allocation finds no memory. So a thread is made only
// if there are addresses left for it, and it allocates at once.
std::thread NamedThread(const std::string& name, std::function<void()> body) {
  void* const room = mmap(nullptr, kThreadRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) throw std::system_error(EAGAIN, std::generic_category());
  munmap(room, kThreadRoom);
  return std::thread([name, body = std::move(body)] {
    NameThread(name);
    void* volatile memory = std::malloc(1);
    std::free(memory);
    body();
  });
}

void NameProcess(absl::string_view title) {
  char* const words = program_invocation_name;  // main's argv[0]; the other words lie behind it
  const std::string shown = ReadWholeFile("/proc/self/cmdline").value_or("");
  // A program that ld.so was told to start has words before those of main.
  if (words == nullptr || shown.empty() || std::strcmp(shown.c_str(), words) != 0) return;
  std::memset(words, 0, shown.size());
  std::memcpy(words, title.data(), std::min(title.size(), shown.size() - 1));
}

}  // namespace ringzero
