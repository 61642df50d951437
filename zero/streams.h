// Streams: states that come from a tier file for an update, and go back.
//
//   Streams streams(layouts);
//   RZ_RETURN_IF_ERROR(streams.Begin({.layout = tier_layout, .tier = …, .staging = memory, …}));
//   streams.Fetch(stage, fetched);  streams.Store(stage, stored);
//
//   StreamedUpdate update(stage, optimizer, streams, input, out);   // between the two
//   for (size_t block = 0; block < optimizer.blocks().size(); ++block) {
//     if (update.Ready(block, again)) update.Do(block);             // otherwise: when `again` came
//   }
//
// The owner's lock guards Streams, except where a function says otherwise.
#ifndef RINGZERO_ZERO_STREAMS_H_
#define RINGZERO_ZERO_STREAMS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "base/ids.h"
#include "offload/state_store.h"
#include "offload/tier_file.h"
#include "zero/layout.h"
#include "zero/optimizer/optimizer.h"
#include "zero/state_tier.h"

namespace ringzero {

struct StreamOptions {
  TierLayout layout;
  TierOptions tier;
  std::span<std::byte> staging;  // and what keeps it: as in StateStoreOptions
  SharedBuffer keeper;
  std::chrono::milliseconds wait_timeout{};
  std::function<void(const absl::Status&)> failed;
};

class Streams {
 public:
  // Of all stages; they must outlive this.
  explicit Streams(const std::vector<StageLayout>& layouts) : layouts_(layouts) {}

  // Where stages stream; once. The errors of StateStore::Create.
  absl::Status Begin(StreamOptions options);
  bool any() const { return store_ != nullptr; }
  // As StateStore's, of a stage that streams. Any thread.
  void Fetch(StageId stage, StateStore::Done done) {
    store_->Fetch(layout_.group_of.at(stage), std::move(done));
  }
  void Store(StageId stage, StateStore::Done done);
  // Where versions of parameters stream, too. As StateStore's. Any thread.
  void Move(StateStore::Run run, StateStore::RunDone done) {
    store_->Move(std::move(run), std::move(done));
  }
  // Without the lock: nothing is under way any more, and nothing is called.
  void Stop() {
    if (store_ != nullptr) store_->Stop();
  }

  // These four do nothing for stages that do not stream.
  // The optimizer's states are the mapped file from here on: for what reads them between updates
  // (collections, saves), and for what writes them before the first one.
  void Show(StageId stage, StageOptimizer& optimizer);
  // They were written: the file has them.
  void Adopt(StageId stage);
  // They were read. DataLoss, with the record and its offset: they are not what the last update has
  // left. Any thread.
  absl::Status Check(StageId stage) const;
  // Gives the memory back that reading took. Any thread.
  void Forget(StageId stage) const;

  // Of a stage that streams; empty for others.
  std::vector<StatePiece> PiecesOf(StageId stage) const;

  // A checkpoint of `version` takes the file over, stage by stage, each before its next update. From
  // then on the stage is written to a new file. Returns the old one, which is the checkpoint's when
  // all stages have left it (`is_whole`). An error: a new file cannot be made, or some stages have
  // left for another version, and others not. One thread.
  struct LeftFile {
    std::shared_ptr<const TierFile> file;
    bool is_whole = false;
  };
  absl::StatusOr<LeftFile> Leave(StageId stage, Version version);
  const TierLayout& layout() const { return layout_; }
  const std::string& folder() const { return folder_; }

 private:
  friend class StreamedUpdate;

  // Of the mapped file, piece by piece.
  std::vector<uint64_t> DigestsOf(StageId stage) const;

  // Of a stage.
  struct Files {
    std::shared_ptr<const TierFile> complete;  // what the last update has left
    std::shared_ptr<const TierFile> next;      // what its stores go to
    StageOptimizer* optimizer = nullptr;       // that shows `complete`
  };
  bool IsMapped(StageId stage) const {
    const auto found = files_.find(stage);
    return found != files_.end() && found->second.complete != nullptr;
  }

  const std::vector<StageLayout>& layouts_;
  TierLayout layout_;
  std::string folder_;
  std::map<StageId, Files> files_;         // of stages that stream
  std::shared_ptr<const TierFile> fresh_;  // of the checkpoint that is being made
  Version leaves_;                         // its version
  int left_ = 0;                           // stages, so far
  std::unique_ptr<StateStore> store_;      // null: nothing is streamed here
};

// The blocks of one update, of a stage that streams or does not. All blocks of a piece are one
// thread's, in their order; several threads have one of these each. Without the lock.
class StreamedUpdate {
 public:
  // All of them must outlive this, and what `input` points to.
  StreamedUpdate(StageId stage, StageOptimizer& optimizer, Streams& streams,
                 const UpdateInput& input, std::byte* out)
      : stage_(stage), optimizer_(optimizer), streams_(streams), input_(input), out_(out) {}

  // Before each Do. False: a part of the state is not there yet; `again` is called once it is.
  bool Ready(size_t block, StateStore::Done again);
  // StageOptimizer::Block. A piece that was its last block's goes back.
  void Do(size_t block);
  // In its place: nothing changes.
  void Skip(size_t block);

  const UpdateInput& input() const { return input_; }

 private:
  // Of the states of `block`, behind those of the blocks before it in its piece.
  uint64_t DigestOf(const UpdateBlock& block, uint64_t digest) const;
  // If `block` is the last of its piece.
  void Release(size_t block, bool changed);

  const StageId stage_;
  StageOptimizer& optimizer_;
  Streams& streams_;
  UpdateInput input_;
  std::byte* const out_;
  StateStore::Released released_;  // of the piece, so far
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_STREAMS_H_
