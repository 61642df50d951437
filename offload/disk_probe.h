// ProbeDisk: how fast a disk is for whoever reads and writes as a StateStore does.
//
//   RZ_ASSIGN_OR_RETURN(const TierFile file, TierFile::Create("/nvme", bytes));
//   RZ_ASSIGN_OR_RETURN(const double rate,
//                       ProbeDisk(std::move(io.engine), file.descriptor(), options));
#ifndef RINGZERO_OFFLOAD_DISK_PROBE_H_
#define RINGZERO_OFFLOAD_DISK_PROBE_H_

#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "offload/io_engine.h"

namespace ringzero {

struct DiskProbeOptions {
  int64_t file_bytes = 256 << 20;  // a whole number of blocks, at least two
  int64_t block_bytes = 1 << 20;   // of one request; whole pages
  int under_way = 8;               // requests
  std::chrono::milliseconds time{1000};
  std::chrono::milliseconds wait_timeout{std::chrono::seconds(30)};  // of one request
};

// Bytes per second, read and written together. Writes as much of the file as it can in half of the
// time (the first write of a block may take longer), then reads and writes by turns. Errors of the
// engine; DeadlineExceeded: a request was not done in wait_timeout.
absl::StatusOr<double> ProbeDisk(std::unique_ptr<IoEngine> engine, int file,
                                 const DiskProbeOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_OFFLOAD_DISK_PROBE_H_
