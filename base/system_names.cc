// pthread_setname_np(3), and the memory that /proc/self/cmdline shows.
#include "base/system_names.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace ringzero {
namespace {

constexpr size_t kNameBytes = 16;  // with the zero behind it

}  // namespace

void NameThread(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, kNameBytes - 1).c_str());
}

std::string ThreadName() {
  std::array<char, kNameBytes> name{};
  pthread_getname_np(pthread_self(), name.data(), name.size());
  return name.data();
}

void NameProcess(absl::string_view title) {
  // proc(5), of /proc/PID/stat: behind the name in brackets comes field 3; arg_start is 48.
  constexpr size_t kArgStart = 48 - 3;
  std::string stat;
  std::getline(std::ifstream("/proc/self/stat"), stat);
  const std::vector<std::string> fields =
      absl::StrSplit(stat.substr(std::min(stat.size(), stat.rfind(')') + 2)), ' ');
  uintptr_t begin = 0;
  uintptr_t end = 0;
  if (fields.size() < kArgStart + 2 || !absl::SimpleAtoi(fields[kArgStart], &begin) ||
      !absl::SimpleAtoi(fields[kArgStart + 1], &end) || begin == 0 || begin >= end) {
    return;
  }
  auto* const words = reinterpret_cast<char*>(begin);
  std::memset(words, 0, end - begin);
  std::memcpy(words, title.data(), std::min<size_t>(title.size(), end - begin - 1));
}

}  // namespace ringzero
