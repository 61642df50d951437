// What this process may use of its host, and what it has used: threads and memory. Every function
// reads anew at each call. `root`: where proc and sys lie, for tests.
#ifndef RINGZERO_INTEGRATIONS_CLI_RESOURCES_H_
#define RINGZERO_INTEGRATIONS_CLI_RESOURCES_H_

#include <atomic>
#include <cstdint>
#include <semaphore>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "integrations/cli/command_line.h"
#include "sharding/memory/fit_certificate.h"

namespace ringzero {

// "0.5 cores", "1 core".
std::string CoresText(double cores);

struct ThreadCount {
  int workers = 1;  // that share the cores
  int threads = 1;  // LibTorch's, in each
};

// "4 workers with 2 threads each share 2 cores", if a worker has several threads and there are
// more threads than cores; otherwise empty. OpenMP's threads spin while they wait for each other,
// and so take the processor from threads that work (docs/results/threads.md).
std::string DescribeCrowd(const ThreadCount& count, double cores);

// If DescribeCrowd is not empty and the environment does not say how OpenMP waits: says the line on
// stderr if it `speaks`, and starts this program again with OMP_WAIT_POLICY=passive, which OpenMP
// reads before main. To be called before anything of the run has begun. The configuration is read
// again: if it is no regular file, there is a warning in place of the new start.
void SleepWhereCrowded(const ThreadCount& count, const CommandLine& line, bool speaks);

// The least of what the system can still give and of what each cgroup above this process may still
// take; nothing where neither can be read. File pages that the kernel would give up at once count
// as free.
FitBudget FindHostMemory(const std::string& root);

// Gives the system the pages of memory that was freed and that the allocator keeps.
void ReturnFreedMemory();

// Pages of a process, in bytes. Pss: a shared page is divided among the processes that map it.
struct ProcessPages {
  int64_t pss = 0;
  int64_t private_dirty = 0;  // written, and mapped by no other process
};
// `process`: "self", or its number. Zeros where the kernel does not tell.
ProcessPages PagesOfProcess(const std::string& process);
// The page size of a large block: 2 MiB if the kernel gives huge pages to who asks.
int64_t HugePageBytes();

// Samples this process' Pss on a thread of its own, from now until it is destroyed. Thread-safe.
class PssWatch {
 public:
  PssWatch();
  ~PssWatch();
  // Takes one more sample; returns the greatest so far.
  double peak_mib();
  // The last sample; takes the first, if there is none yet.
  double last_mib();

 private:
  void Run();

  std::binary_semaphore stop_{0};  // released: the thread is to end
  Mutex mutex_;
  double peak_mib_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<double> last_mib_ = 0;
  std::thread thread_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_RESOURCES_H_
