// ring_perf: how fast a ring of workers passes messages on, measured as nccl-tests measures NCCL.
#include <string>
#include <vector>

#include "bench/ring/run.h"

int main(int argc, char** argv) {
  return ringzero::RingMain(std::vector<std::string>(argv + 1, argv + argc));
}
