// Blocks of a file, written, then read and written by turns.
#include <algorithm>
#include <ctime>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/crypto.h"
#include "base/status.h"
#include "offload/io_engine.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

class Probe {
 public:
  Probe(std::unique_ptr<IoEngine> engine, int file, const DiskProbe& options)
      : engine_(std::move(engine)),
        file_(file),
        options_(options),
        memory_(MakeHeapBuffer(options.under_way * options.block_bytes + kDirectAlignment)) {
    void* begin = memory_.data();
    size_t bytes = memory_.size();
    std::align(kDirectAlignment, options.under_way * options.block_bytes, begin, bytes);
    begin_ = static_cast<std::byte*>(begin);
    // Some disks store blocks of zeros without writing them.
    std::minstd_rand random;
    std::generate_n(reinterpret_cast<uint32_t*>(begin_),
                    options.under_way * options.block_bytes / 4, random);
  }

  ~Probe() {
    if (engine_->under_way() > 0) Abandon(std::move(engine_), {std::move(memory_).Seal()});
  }

  // Reads or writes one block after the other, until `end` or so many.
  absl::Status Run(auto kind_of, auto block_of, Clock::time_point end, int64_t most) {
    taken = 0;
    std::vector<uint64_t> free;
    for (int slot = 0; slot < options_.under_way; ++slot) free.push_back(slot);
    while (true) {
      std::vector<IoRequest> requests;
      for (; !free.empty() && taken < most && Clock::now() < end; free.pop_back()) {
        requests.push_back({.kind = kind_of(taken),
                            .file = file_,
                            .offset = block_of(taken) * options_.block_bytes,
                            .memory = {begin_ + free.back() * options_.block_bytes,
                                       static_cast<size_t>(options_.block_bytes)},
                            .tag = free.back()});
        ++taken;
      }
      RZ_RETURN_IF_ERROR(engine_->Submit(requests));
      if (engine_->under_way() == 0) return absl::OkStatus();
      RZ_ASSIGN_OR_RETURN(const std::vector<IoResult> results,
                          engine_->Wait(Clock::now() + options_.wait_timeout));
      for (const IoResult& result : results) {
        RZ_RETURN_IF_ERROR(result.status);
        const auto bytes = static_cast<size_t>(options_.block_bytes);
        checksums += Checksum({begin_ + result.tag * bytes, bytes});
        free.push_back(result.tag);
      }
    }
  }

  int64_t taken = 0;       // blocks, by the last Run
  uint64_t checksums = 0;  // of all blocks, added up: made because a run makes them, too

 private:
  std::unique_ptr<IoEngine> engine_;
  const int file_;
  const DiskProbe& options_;
  Buffer memory_;
  std::byte* begin_;
};

}  // namespace

absl::StatusOr<DiskSpeed> ProbeDisk(std::unique_ptr<IoEngine> engine, int file,
                                    const DiskProbe& options) {
  using Kind = IoRequest::Kind;
  Probe probe(std::move(engine), file, options);
  const int64_t blocks = options.file_bytes / options.block_bytes;
  RZ_RETURN_IF_ERROR(probe.Run([](int64_t) { return Kind::kWrite; }, [](int64_t n) { return n; },
                               Clock::now() + options.time / 2, blocks));
  const int64_t written = std::max<int64_t>(2, probe.taken);
  const auto since = Clock::now();
  const std::clock_t computed = std::clock();  // by all threads
  // Those that are written are half of the file behind those that are read.
  const auto block_of = [written](int64_t n) {
    return (n / 2 + (n % 2) * (written / 2)) % written;
  };
  RZ_RETURN_IF_ERROR(probe.Run([](int64_t n) { return n % 2 == 0 ? Kind::kRead : Kind::kWrite; },
                               block_of, since + options.time,
                               std::numeric_limits<int64_t>::max()));
  const std::chrono::duration<double> took = Clock::now() - since;
  const std::clock_t computing = std::clock() - computed;
  const auto bytes = static_cast<double>(probe.taken * options.block_bytes);
  return DiskSpeed{.bytes_per_second = bytes / took.count(),
                   .computing = static_cast<double>(computing) / CLOCKS_PER_SEC / bytes};
}

}  // namespace ringzero
