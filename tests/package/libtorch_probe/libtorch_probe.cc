// Asks something of libtorch_cpu and of libc10, with headers that compile fast.
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>

#include <cstdio>

int main() {
  at::set_num_threads(1);
  const c10::DataPtr memory = c10::GetCPUAllocator()->allocate(64);
  std::printf("threads %d, memory %s\n", at::get_num_threads(), memory.get() ? "yes" : "no");
}
