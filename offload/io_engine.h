// IoEngine: reads and writes of files that nobody waits for.
//
//   RZ_ASSIGN_OR_RETURN(ChosenIoEngine io, MakeIoEngine({.depth = 8}));
//   RZ_RETURN_IF_ERROR(io.engine->Submit({{.kind = IoRequest::Kind::kWrite, .file = fd,
//                                          .offset = 0, .memory = piece, .tag = 7}}));
//   …                                                   // compute meanwhile; leave `piece` alone
//   RZ_ASSIGN_OR_RETURN(auto results, io.engine->Wait(deadline));
//   results[0].status;                                  // of tag 7: the whole piece, or an error
//
// An engine is used by one thread, which lives as long as its requests. A request of more than
// `depth` blocks goes on when this thread calls Wait or Submit. Requests under way have no order
// among each other: for a sync behind a write, wait for the write first.
#ifndef RINGZERO_OFFLOAD_IO_ENGINE_H_
#define RINGZERO_OFFLOAD_IO_ENGINE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"

namespace ringzero {

// Of direct I/O: memory, offsets and sizes are multiples.
inline constexpr int64_t kDirectAlignment = 4096;

struct IoRequest {
  enum class Kind { kRead, kWrite, kSync } kind = Kind::kRead;
  int file = -1;       // an open descriptor
  int64_t offset = 0;  // bytes
  // The caller's, until the result is there. Not written to by kWrite; kSync has none.
  std::span<std::byte> memory;
  uint64_t tag = 0;  // requests under way have different ones
};

// All of the request is done, or the first error: the operation, its offset and what the system
// said, with the code of absl::ErrnoToStatus. OutOfRange: a read behind the file's end, or a write
// of nothing.
struct IoResult {
  uint64_t tag = 0;
  absl::Status status;
};

class IoEngine {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // Waits for what is under way, whose memory must still be there.
  virtual ~IoEngine() = default;

  // Begins requests of any size, and does not wait for them. An error is one of the engine's: no
  // request was begun.
  virtual absl::Status Submit(std::span<const IoRequest> requests) = 0;
  // Results that are there, at least one; none if nothing is under way. A deadline that has passed
  // only looks. DeadlineExceeded names the request that has waited longest: it is still under way.
  // Other errors are the engine's.
  virtual absl::StatusOr<std::vector<IoResult>> Wait(Deadline deadline) = 0;
  // Requests without a result that Wait has given.
  virtual size_t under_way() const = 0;

  absl::Status Submit(std::initializer_list<IoRequest> requests) {
    return Submit(std::span(requests.begin(), requests.size()));
  }
};

struct IoEngineOptions {
  enum class Kind { kAuto, kUring, kThreads } kind = Kind::kAuto;
  int depth = 8;                      // system calls under way at once
  int64_t block_bytes = 1024 * 1024;  // of one system call at most
  int threads = 4;                    // of kThreads, which has no depth
};

struct ChosenIoEngine {
  std::unique_ptr<IoEngine> engine;
  std::string why;  // "io_uring"; why not, and what the system would have to allow
};

// kAuto: io_uring where the system allows it, otherwise threads. kUring: Unavailable says why not.
// InvalidArgument: options out of range.
absl::StatusOr<ChosenIoEngine> MakeIoEngine(const IoEngineOptions& options);

// Ends requests no faster than a disk of so many bytes per second would, in both directions
// together.
std::unique_ptr<IoEngine> MakeThrottled(std::unique_ptr<IoEngine> engine, double bytes_per_second);

// Of a disk that does not answer: keeps the engine and the memory of its requests for good. The
// system may use that memory at any time, and the engine's end would wait for it. Thread-safe.
void Abandon(std::unique_ptr<IoEngine> engine, std::vector<SharedBuffer> memory);

struct DiskProbe {
  int64_t file_bytes = 256 << 20;  // a whole number of blocks, at least two
  int64_t block_bytes = 1 << 20;   // of one request; whole pages
  int under_way = 8;               // requests
  std::chrono::milliseconds time{1000};
  std::chrono::milliseconds wait_timeout{std::chrono::seconds(30)};  // of one request
};

struct DiskSpeed {
  double bytes_per_second = 0;  // read and written together
  double computing = 0;         // seconds of a core per byte, with a checksum of each
};

// Of requests as a StateStore has them. Writes as much of the file as it can in half of the time
// (the first write of a block may take longer), then reads and writes by turns. What other threads
// of this process compute meanwhile counts, too. Errors of the engine; DeadlineExceeded: a request
// was not done in wait_timeout.
absl::StatusOr<DiskSpeed> ProbeDisk(std::unique_ptr<IoEngine> engine, int file,
                                    const DiskProbe& options);

// The engines of MakeIoEngine. The first: Unavailable, with the system's reason.
absl::StatusOr<std::unique_ptr<IoEngine>> MakeUringEngine(const IoEngineOptions& options);
std::unique_ptr<IoEngine> MakeThreadEngine(const IoEngineOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_OFFLOAD_IO_ENGINE_H_
