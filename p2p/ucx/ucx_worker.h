// UcxWorker: one UCX context with one worker, its endpoints and memory; all that RingZero calls of
// UCX.
//
//   RZ_ASSIGN_OR_RETURN(auto worker, UcxWorker::Create(options, this));
//   RZ_RETURN_IF_ERROR(worker->Connect(1, address_of_worker_1));
//   worker->SendMessage(1, {.header = header, .data = payload, .operation = &operation});
//   while (worker->Progress()) {}                       // the listener is called in here
//   if (worker->Arm()) poll(worker->event_descriptor(), …);
//
// Peers are the seat's workers. Buffers and operation are UCX's from a call that says kUnderWay
// until the listener is told of it. Used by one thread at a time. Every endpoint has
// UCP_ERR_HANDLING_MODE_PEER. The listener may call Send…, but neither Progress nor Connect.
#ifndef RINGZERO_P2P_UCX_UCX_WORKER_H_
#define RINGZERO_P2P_UCX_UCX_WORKER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "p2p/job/rendezvous.h"
#include "p2p/transport.h"
#include "p2p/ucx/ucx_transport.h"

struct ucp_context;  // UCX's own
struct ucp_ep;
struct ucp_mem;
struct ucp_worker;

namespace ringzero {

class UcxListener;

// What a worker, and the port that it belongs to, are told at their creation.
struct UcxPortOptions {
  JobSeat seat;
  std::vector<WorkerId> peers;  // whom this port reaches; itself is always reached
  TransportOptions transport;   // ProgressMode::kThread: the worker can be armed
  UcxOptions ucx;               // but for its memory
};

// One send or fetch that is under way; callers derive from it. Lives until OnDone.
struct UcxOperation {
  UcxListener* listener = nullptr;
};

// TLS where all workers share a host and payload lies in its memory: none of these opens a port.
inline constexpr char kUcxHostTransports[] = "posix,cma,self";

// What UCX tells; called in Progress, but OnBroken and OnDone may come inside any call.
class UcxListener {
 public:
  struct Message {
    std::span<const std::byte> header;
    std::span<const std::byte> data;
    void* reply = nullptr;  // for UcxWorker::Reply, if the sender asked for it
    // Its data are still at the sender: for UcxWorker::Fetch. So many bytes.
    void* offer = nullptr;
    size_t offered_bytes = 0;
  };

  virtual ~UcxListener() = default;
  // An active message; gone when this returns. True: its offer is kept, for Fetch or Decline.
  virtual bool OnMessage(const Message& message) = 0;
  // A send or a fetch that was under way is over. `bytes` of a fetch are what came. Cancelled,
  // Internal when more came than there was room for, else Unavailable.
  virtual void OnDone(UcxOperation& operation, const absl::Status& status, size_t bytes) = 0;
  // The endpoint to `peer` is broken: it died, or the network between.
  virtual void OnBroken(int peer, const absl::Status& why) = 0;
};

class UcxWorker {
 public:
  enum class Fate { kDone, kUnderWay, kFailed };
  struct Send {
    std::span<const std::byte> header;  // of SendMessage
    std::span<const std::byte> data;
    UcxOperation* operation = nullptr;
    bool wants_reply = false;  // the receiver can Reply
    bool offer = false;        // the data stay here until the receiver fetches them
  };
  // InvalidArgument when a setting is refused or the memory's kind is not there; ResourceExhausted
  // when /dev/shm is too small; Internal when UCX cannot start. `listener` lives longer.
  static absl::StatusOr<std::unique_ptr<UcxWorker>> Create(const UcxPortOptions& options,
                                                           UcxListener* listener);
  ~UcxWorker();

  // What others pass to Connect: those of this host, and those of other hosts, who must not find
  // this worker's shared memory (docs/p2p.md).
  const std::string& address() const { return address_; }
  const std::string& network_address() const { return network_address_; }
  absl::Status Connect(int peer, const std::string& address);
  // Memory that is sent from and received into with a handle, whatever its kind; until the worker's
  // end.
  absl::Status Register(std::span<std::byte> memory);

  // An active message: eager, so for small data alone, unless it is an offer.
  Fate SendMessage(int peer, const Send& send);
  // Fetches what was offered into `into`, which has as many bytes. Ends the offer.
  Fate Fetch(void* offer, std::span<std::byte> into, UcxOperation* operation);
  void Decline(void* offer);
  // To a stranger who asked for a reply; the header alone, which is copied.
  void Reply(void* reply, std::span<const std::byte> header);
  // True if anything happened. Never blocks.
  bool Progress();
  // Progress for as long as `wanted` says, but not beyond `limit`, nor when nothing has moved for a
  // while: for the end, when what is awaited may never come.
  void ProgressWhile(std::chrono::milliseconds limit, const std::function<bool()>& wanted);
  // kThread: false when something has happened already, so that Progress must be called again;
  // true: the descriptor will become readable when something does.
  bool Arm();
  int event_descriptor() const { return descriptor_; }

  // The lanes that UCX has chosen: "posix/memory cma/memory"; "" before Connect and after its end.
  std::string Lanes(int peer) const;
  bool connected(int peer) const;
  // Ends what is under way to `peer`: their operations come with errors.
  void Disconnect(int peer);

 private:
  struct Endpoint {
    UcxListener* listener = nullptr;
    int peer = 0;
    ucp_ep* handle = nullptr;
    void* closing = nullptr;  // the request of a close that goes on
    bool broken = false;
  };
  struct Region {
    std::span<const std::byte> bytes;
    ucp_mem* handle = nullptr;
    int type = 0;  // UCX's number of its kind of memory
  };
  struct Calls;  // functions with UCX's own types

  UcxWorker(const UcxPortOptions& options, UcxListener* listener);
  absl::Status Start(ProgressMode progress);
  absl::StatusOr<std::string> Address(uint32_t flags) const;
  void Close(Endpoint& endpoint);
  void AwaitCloses();

  UcxListener* const listener_;
  const MemoryKind memory_;
  ucp_context* context_ = nullptr;
  ucp_worker* worker_ = nullptr;
  int descriptor_ = -1;
  std::string address_;
  std::string network_address_;
  std::vector<Endpoint> endpoints_;  // not resized after Create: UCX has their addresses
  std::vector<Region> regions_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_UCX_UCX_WORKER_H_
