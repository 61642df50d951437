// Transport: bytes between workers, point to point, in order per channel, without copies where it
// can.
//
//   transport->Post(WorkerId(0), {kind, tag}, into,
//                   [&](const absl::Status& came) { ... });                     // at the receiver
//   transport->Send(WorkerId(1), {kind, tag}, from,
//                   [&](const absl::Status& left) { ... });                     // at the sender
//
// A channel is (from, to, kind): one FIFO. The n-th message sent on a channel meets the n-th
// expected one; their keys and sizes must be equal, else both workers fail with an Internal error
// that names both keys. There is no order between channels, and the ends of one channel's messages
// may be told in another order than they were sent. A kind has messages from block to block
// alone, or words alone. Sending to oneself is a channel like any other.
//
// No call blocks. Callbacks run on the transport's own message thread of this worker (with
// ProgressMode::kCaller: in Poll; one over two wires has two such threads), one at a time, must not
// block, and may call any method of Transport but Poll. Each callback of a call that returned OK is
// called exactly once: at the message's end, or with the error that ended the transport. All
// methods are thread-safe. Sends on one channel are ordered by the calls' order, so callers that
// care call from one thread at a time.
#ifndef RINGZERO_P2P_TRANSPORT_H_
#define RINGZERO_P2P_TRANSPORT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "base/ids.h"

namespace ringzero {

// What a message is called. `kind` selects the channel (0..kMaxMessageKinds-1); `tag` must be equal
// at both ends and means nothing to the transport.
struct MessageKey {
  uint8_t kind = 0;
  uint64_t tag = 0;
  auto operator<=>(const MessageKey&) const = default;
};
inline constexpr int kMaxMessageKinds = 19;

// "kind 3, tag 42".
std::string ToString(MessageKey key);

// Where Allocate takes memory from.
enum class MemoryUse {
  kParameters,  // written by the allocating worker only; other workers map it read-only
  kSums,        // written by whoever holds it
};

inline constexpr int kMemoryUses = 2;

// Where payload lies.
enum class MemoryKind { kHost, kCuda };

// Who moves messages. kThread: a message thread of the transport's own, which sleeps while nothing
// happens. kCaller: nobody but Poll, so a caller that polls has the lowest latency, and one that
// does not is, to its peers, a stopped worker.
enum class ProgressMode { kThread, kCaller };

// It stays mapped as long as there is a copy of `keeper`. Another worker's kParameters are mapped
// to be read: to write there is a fault.
struct MappedMemory {
  std::span<std::byte> bytes;
  std::shared_ptr<const void> keeper;
};

// Counted since the start; what this worker sent.
struct TransportStats {
  std::vector<uint64_t> bytes_sent;     // payload bytes by message kind, kMaxMessageKinds of them
  std::vector<uint64_t> messages_sent;  // likewise; words are messages without bytes
};

// The end of a message, or the error that ended the transport.
using Done = std::function<void(const absl::Status&)>;
// Questions between workers: who waits for whom. Short texts, no payload.
using AnswerArrival = std::function<void(absl::StatusOr<std::string>)>;
using Answerer = std::function<std::string(WorkerId from, const std::string& question)>;
inline constexpr size_t kMaxTextBytes = 4000;  // of a question, an answer, an abort's message

// A message that was sent and has not left.
struct Undelivered {
  WorkerId to;
  MessageKey key;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual WorkerId self() const = 0;
  virtual int workers() const = 0;
  virtual std::string name() const = 0;  // "local", "shm", …
  // What carries messages to `to`, in words, as it really is and not as it was asked for: "shm",
  // "ucx posix/memory cma/memory", …. Known once the two have met; before: "not connected".
  virtual std::string LinkTo(WorkerId to) const { return to == self() ? "self" : name(); }

  // Memory that messages are sent from and received into, and that can be lent. Contents are
  // unspecified on reuse. A block is used again for its own size only. ResourceExhausted when the
  // memory given in TransportOptions is used up: a bug of the plan. Buffers may outlive the
  // transport.
  virtual absl::StatusOr<Buffer> Allocate(size_t bytes, MemoryUse use) = 0;

  // From block to block: both are memory of Allocate, kept until the call's end. A message waits in
  // its sender's block until its receiver has posted one, or lies in memory of the transport if it
  // is small.
  //
  // `sent`: the block may be written again. `arrived`: the payload is in `block`. After an error
  // `block` may be written to until the transport's end. InvalidArgument for a Send of memory from
  // elsewhere.
  virtual absl::Status Send(WorkerId to, MessageKey key, std::span<const std::byte> block,
                            Done sent) = 0;
  virtual absl::Status Post(WorkerId from, MessageKey key, std::span<std::byte> block,
                            Done arrived) = 0;

  // Words: messages without payload, between workers that share memory. A word never waits. It says
  // something about shared memory that both ends know by its key. The receiver sees what the sender
  // wrote there before. Unimplemented where no memory is shared.
  virtual absl::Status SendWord(WorkerId to, MessageKey key) = 0;
  virtual absl::Status ExpectWord(WorkerId from, MessageKey key, Done arrived) = 0;
  // The memory of `owner` from which it allocates, as this worker maps it. Empty where no memory is
  // shared, and before the owner's memory is known here: it is known when a word about it comes.
  virtual MappedMemory MemoryOf(WorkerId /*owner*/, MemoryUse /*use*/) { return {}; }

  // Ends the transport on every worker: peers fail with `why` (code and message), named as coming
  // from this worker; open calls get it; later calls return it. The first abort wins.
  // Idempotent.
  virtual void Abort(const absl::Status& why) = 0;
  // The error that ended the transport, or OK. A peer that vanished, or gave no sign of life for
  // peer_timeout: Unavailable, "worker 3 …".
  virtual absl::Status status() const = 0;

  // The messages that have not left: they wait for their receiver's block, or for a decorator's
  // delay. In order by channel.
  virtual std::vector<Undelivered> undelivered() const = 0;

  // Asks another worker; its Answerer's text arrives like a message, or an error: the transport's
  // end, or FailedPrecondition when `to` has said goodbye. Texts are cut at kMaxTextBytes.
  virtual absl::Status Ask(WorkerId to, const std::string& question, AnswerArrival arrival) = 0;
  // Who answers from now on, on the message thread, without blocking. Until it is set, answers are
  // empty.
  virtual void AnswerWith(Answerer answerer) = 0;

  // Says goodbye: this worker will send no more, and a closed connection is no failure from now on.
  // What was expected must have come (else FailedPrecondition). What still waits for its receiver
  // is sent first: the destructor gives it 5 s, Close itself never waits. Idempotent. A transport
  // destroyed without Close is, to its peers, a worker that died.
  virtual absl::Status Close() = 0;

  // ProgressMode::kCaller: moves what can be moved now and runs what has become ready, on the
  // calling thread, one at a time; never blocks. True if anything happened. With kThread it does
  // nothing.
  virtual bool Poll() { return false; }

  virtual TransportStats stats() const = 0;
};

// What SendWord and ExpectWord return where no memory is shared.
inline absl::Status NoWords() {
  return absl::UnimplementedError("words are for workers that share memory");
}

// What every implementation is told at its creation.
struct TransportOptions {
  // Upper bounds of what this worker may Allocate at the same time, in bytes: each buffer rounded
  // up to 64 bytes, plus 64; for every distinct size the most that is ever alive of it.
  size_t parameter_bytes = 0;
  size_t sum_bytes = 0;
  // A peer whose message thread gives no sign of life for so long is lost (p2p/heartbeat.h). The
  // same on all workers, and not below 1 ms.
  std::chrono::milliseconds peer_timeout = std::chrono::seconds(5);
  ProgressMode progress = ProgressMode::kThread;
  MemoryKind memory = MemoryKind::kHost;  // InvalidArgument where the transport cannot
  // Called once, on the message thread, when the transport ends by anything but this worker's own
  // Abort: a peer's abort or death, a mismatch of keys.
  std::function<void(const absl::Status&)> on_failure;
};

// Workers that are threads of one process: one transport per entry of `options`, in order of
// workers. Each has a message thread of its own (or, with ProgressMode::kCaller, none). They may be
// destroyed in any order and from any thread but a message thread. InvalidArgument for bad options,
// ResourceExhausted when memory cannot be mapped.
absl::StatusOr<std::vector<std::unique_ptr<Transport>>> CreateLocalTransports(
    const std::vector<TransportOptions>& options);

}  // namespace ringzero

#endif  // RINGZERO_P2P_TRANSPORT_H_
