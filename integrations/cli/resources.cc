// getrusage, and /proc/self/smaps_rollup.
#include "integrations/cli/resources.h"

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>

#include "base/system_names.h"

namespace ringzero {

ResourceUse ResourcesNow() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return {.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime),
          .minor_faults = usage.ru_minflt};
}

ProcessPages PagesOfProcess(const std::string& process) {
  ProcessPages pages;
  std::ifstream rollup("/proc/" + process + "/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kib = 0;
    if (!(words >> name >> kib)) continue;
    if (name == "Pss:") pages.pss = kib * 1024;
    if (name == "Private_Dirty:") pages.private_dirty = kib * 1024;
  }
  return pages;
}

int64_t ParentProcess() { return getppid(); }

int64_t HugePageBytes() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  const bool some = std::getline(file, line) && line.find("[never]") == std::string::npos;
  return some ? int64_t{2} << 20 : 4096;
}

double PssMib() { return static_cast<double>(PagesOfProcess("self").pss) / (1 << 20); }

PssWatch::PssWatch() : thread_(NamedThread("rz-memory", [this] { Run(); })) {}

PssWatch::~PssWatch() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  stop_changed_.notify_all();
  thread_.join();
}

double PssWatch::Sample() {
  const double now = PssMib();
  std::lock_guard<std::mutex> lock(mutex_);
  last_mib_ = now;
  return peak_mib_ = std::max(peak_mib_, now);
}

double PssWatch::peak_mib() { return Sample(); }

double PssWatch::last_mib() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (last_mib_ > 0) return last_mib_;
  }
  Sample();
  std::lock_guard<std::mutex> lock(mutex_);
  return last_mib_;
}

void PssWatch::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  // A look walks the page tables, which steals time from steps: often while memory still grows,
  // seldom later.
  std::chrono::seconds pause(1);
  for (; !stop_changed_.wait_for(lock, pause, [this] { return stop_; });
       pause = std::min(2 * pause, std::chrono::seconds(32))) {
    lock.unlock();
    Sample();
    lock.lock();
  }
}

}  // namespace ringzero
