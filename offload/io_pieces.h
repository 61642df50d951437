// IoPieces: requests cut into system calls, and the calls' results joined again.
//
//   IoPieces pieces(options.block_bytes);
//   pieces.Add(request);
//   if (IoPiece* piece = pieces.Begin()) … pread(piece->file, piece->memory, …)
//   pieces.End(piece, bytes or -errno);   // a short one goes on where it stopped
//   pieces.TakeResults();
//
// The bookkeeping that engines share. Not thread-safe.
#ifndef RINGZERO_OFFLOAD_IO_PIECES_H_
#define RINGZERO_OFFLOAD_IO_PIECES_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <vector>

#include "offload/io_engine.h"

namespace ringzero {

// Before a system call is made again for which the system had no room.
inline constexpr std::chrono::milliseconds kPauseOfRefused{1};

// One system call.
struct IoPiece {
  IoRequest::Kind kind;
  int file;
  int64_t offset;
  std::byte* memory;
  size_t bytes;
  uint64_t request;  // of IoPieces
  int refusals = 0;  // how often the system had no room for it
  std::list<IoPiece>::iterator self = {};
};

class IoPieces {
 public:
  explicit IoPieces(int64_t block_bytes) : block_bytes_(block_bytes) {}

  void Add(const IoRequest& request);
  // The next piece, which is the caller's until End; null: all have begun.
  IoPiece* Begin();
  // What the system call returned: bytes, or an error's negative number.
  void End(IoPiece* piece, int64_t result);
  // Each once.
  std::vector<IoResult> TakeResults();

  bool has_results() const { return !results_.empty(); }
  size_t begun() const { return begun_.size(); }
  size_t under_way() const { return requests_.size() + results_.size(); }
  // Of the request that was added first: "write of 4096 bytes at offset 0: not done after 2.5 s".
  absl::Status TooLate() const;

 private:
  struct Request {
    IoRequest asked;
    size_t pieces = 0;  // that have not ended
    absl::Status status;
    IoEngine::Deadline since;
  };
  void Fail(IoPiece* piece, absl::Status status);
  void Drop(IoPiece* piece);

  const int64_t block_bytes_;
  uint64_t next_ = 0;
  std::map<uint64_t, Request> requests_;  // by the order in which they came
  std::list<IoPiece> waiting_, begun_;
  std::vector<IoResult> results_;
};

}  // namespace ringzero

#endif  // RINGZERO_OFFLOAD_IO_PIECES_H_
