// StateStore: what lies in a tier file, and comes through a ring of memory to be changed.
//
//   RZ_ASSIGN_OR_RETURN(auto store, StateStore::Create({.groups = groups, .ring = memory,
//                                                       .file = file.get(), .failed = …}));
//   store->Fetch(0, done);                  // the pieces of group 0 come, one behind the other
//   store->Piece(0, i, again);              // null: not there yet; `again` is called once it is
//   store->Release(0, i, {.changed = true, .found = before, .left = after});   // its place is free
//   store->Store(0, done);                  // `done`, when all that was changed is in the file
//   store->Move({.file = other, .memory = pages, …}, checked);   // past the ring
//
// Groups are fetched in the order of the calls, and pieces in theirs: the ring is filled as far as
// it is free. So a fetch of more than the ring goes on while pieces are released and stored. Only a
// few pieces are written at once: updates wait for reads. A thread of its own moves the bytes; no
// call waits. Each piece's digest is kept in memory, so what a disk has lost or mixed up is an
// error. The caller makes it, while the bytes are in its cache. Thread-safe.
#ifndef RINGZERO_OFFLOAD_STATE_STORE_H_
#define RINGZERO_OFFLOAD_STATE_STORE_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "offload/io_engine.h"

namespace ringzero {

// A run of bytes of the file.
struct Extent {
  int64_t offset = 0;
  int64_t bytes = 0;
};

// What is fetched and stored as one: in memory its extents lie one behind the other.
struct StorePiece {
  std::vector<Extent> extents;
  int64_t bytes() const;
};

struct StoreGroup {
  std::string name;  // in errors: "stage 3 (layers.6)"
  std::vector<StorePiece> pieces;
};

struct StateStoreOptions {
  std::vector<StoreGroup> groups;
  std::span<std::byte> ring;  // at least the largest piece in whole pages; without pieces, none
  SharedBuffer keeper;        // of the ring, where a disk that does not answer may still write it
  int file = -1;
  std::string file_name;  // in errors
  std::unique_ptr<IoEngine> engine;
  std::chrono::milliseconds wait_timeout{std::chrono::minutes(10)};  // of one piece or run
  // The first error: nothing more is fetched, stored or moved, and no `done` comes. On the store's
  // thread, or in Release.
  std::function<void(const absl::Status&)> failed;
};

class StateStore {
 public:
  using Done = std::function<void()>;

  // InvalidArgument: the ring is smaller than a piece.
  static absl::StatusOr<std::unique_ptr<StateStore>> Create(StateStoreOptions options);
  ~StateStore() { Stop(); }
  // Calls nothing from here on. Not in a Done.
  void Stop();

  // Before any Fetch, or when nothing of the group is fetched: what it has in the file is from
  // elsewhere. By piece.
  void Adopt(int group, std::span<const uint64_t> digests);
  // From now on the group is written to another file, all of it by the next Store. What is there is
  // read from where it was written. Before any of its pieces is released.
  void MoveTo(int group, int file);
  // Whether its pieces have these digests: DataLoss for the first that has another. When nothing of
  // the group is fetched.
  absl::Status Check(int group, std::span<const uint64_t> digests);
  // `done`: all pieces have come, and some may be gone again. On the store's thread, as all calls
  // of a Done. A group is fetched again when it has been stored.
  void Fetch(int group, Done done);
  // Between Fetch and Release. What was never stored is zeros.
  std::byte* Piece(int group, int piece, Done again);
  // A digest of what the piece holds now, `left`, is what is to be found there next time. DataLoss
  // goes to `failed`, if what was found is not what was left. Of zeros there is none.
  struct Released {
    bool changed = false;
    uint64_t found = 0, left = 0;
  };
  void Release(int group, int piece, const Released& released);
  // `done`: all pieces have been released, and what was changed is in the file. (It goes there as
  // it is released.)
  void Store(int group, Done done);

  // Bytes of another file, or of another part of this one: whole pages at a multiple of pages, from
  // or to such memory of the caller's.
  struct Run {
    IoRequest::Kind kind = IoRequest::Kind::kRead;
    int file = -1;
    int64_t offset = 0;
    std::span<std::byte> memory;
    SharedBuffer keeper;  // of the memory, where a disk that does not answer may still write it
    std::string name;     // in errors: "parameters of stage 3 (layers.6), version 4"
  };
  using RunDone = std::function<absl::Status()>;
  // Past the ring, before what is fetched. What `done` returns goes to `failed`, if it is not OK,
  // with the run's name in front.
  void Move(Run run, RunDone done);

 private:
  enum class Phase { kInFile, kComing, kHere, kReleased };
  struct PieceState {
    Phase phase = Phase::kInFile;
    Done again;
    int slot = -1;       // of the ring
    bool known = false;  // it has been left by somebody
    uint64_t digest = 0;
    int file = -1;
    bool written = false;  // it is in the file; otherwise it is zeros
    // The thread's alone:
    int under_way = 0;  // extents
  };
  struct GroupState {
    std::vector<PieceState> pieces;
    int file = -1;    // that is written
    int to_come = 0;  // pieces
    int to_go = 0;
    Done fetched, stored;
  };
  struct Place {
    int group = 0, piece = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };

  explicit StateStore(StateStoreOptions options);
  void Work();
  absl::Status Turn(std::unique_lock<std::mutex>& lock);
  // Without the lock: hands the runs that Move has taken to the engine.
  absl::Status BeginRuns();
  // Without the lock: what the engine has done; nothing, if the store is to stop. An error names
  // the piece or run that has waited longest.
  absl::StatusOr<std::vector<IoResult>> WaitForDisk();
  // Without the lock: begins to read or write a piece. True: nothing need be read.
  bool Begin(const Place& place, bool writes, std::vector<IoRequest>& requests);
  // Of an extent or a run. True: it was its piece's last.
  absl::StatusOr<bool> End(const IoResult& result);
  // With the lock: a piece has come, or gone.
  void Finish(const Place& place);

  static uint64_t TagOf(const Place& place, size_t extent);
  static Place PlaceOf(uint64_t tag);
  PieceState& At(const Place& place) { return groups_[place.group].pieces[place.piece]; }
  const StorePiece& PieceOf(const Place& place) const {
    return options_.groups[place.group].pieces[place.piece];
  }
  std::span<std::byte> MemoryOf(const Place& place);
  absl::Status Lost(const Place& place) const;
  absl::Status Annotated(const absl::Status& status, uint64_t tag) const;

  StateStoreOptions options_;
  const int64_t slot_bytes_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<GroupState> groups_;
  std::deque<Place> to_fetch_, to_store_;
  std::vector<std::pair<Run, RunDone>> to_move_;
  std::vector<int> free_slots_;
  std::vector<Done> calls_;  // for the thread to make
  bool stop_ = false;
  // The thread's alone:
  size_t stores_ = 0;               // under way, in extents
  std::deque<uint64_t> under_way_;  // tags of runs, and of pieces' first extents, oldest first
  std::map<uint64_t, std::pair<Run, RunDone>> runs_;  // under way, by tag
  uint64_t runs_begun_ = 0;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace ringzero

#endif  // RINGZERO_OFFLOAD_STATE_STORE_H_
