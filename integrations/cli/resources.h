// What this process has used: CPU time, page faults, and its peak of proportional memory; and what
// it may use: pages.
//
//   ResourceUse before = ResourcesNow();  …  ResourceUse used = ResourcesNow() - before;
//   PssWatch watch;  …  watch.peak_mib();
#ifndef RINGZERO_INTEGRATIONS_CLI_RESOURCES_H_
#define RINGZERO_INTEGRATIONS_CLI_RESOURCES_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace ringzero {

struct ResourceUse {
  double cpu_seconds = 0;  // user and system, all threads
  int64_t minor_faults = 0;
  ResourceUse operator-(const ResourceUse& other) const {
    return {cpu_seconds - other.cpu_seconds, minor_faults - other.minor_faults};
  }
};
ResourceUse ResourcesNow();

// Pss of this process, in MiB: shared pages count once among those who map them. 0 where the kernel
// does not tell.
double PssMib();

// Pages of a process, in bytes.
struct ProcessPages {
  int64_t pss = 0;
  int64_t private_dirty = 0;  // written, and mapped by nobody else
};
// `process`: "self", or its number. Zeros where the kernel does not tell.
ProcessPages PagesOfProcess(const std::string& process);
int64_t ParentProcess();
// What a page of a large block takes: 2 MiB where the kernel gives huge pages to who asks.
int64_t HugePageBytes();

// Samples PssMib once a second on a thread of its own, from now until it is destroyed. Thread-safe.
class PssWatch {
 public:
  PssWatch();
  ~PssWatch();
  // Takes one more sample; the greatest so far.
  double peak_mib();
  // The last sample; takes the first, if there is none yet.
  double last_mib();

 private:
  void Run();
  double Sample();

  std::mutex mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;
  double peak_mib_ = 0;
  double last_mib_ = 0;
  std::thread thread_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_RESOURCES_H_
