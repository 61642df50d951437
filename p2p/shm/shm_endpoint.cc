// Socket pairs made before a fork; or one loop that accepts, connects and checks, until every peer
// is there or the time is over.
#include "p2p/shm/shm_endpoint.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/crypto.h"
#include "base/status.h"
#include "p2p/deadline.h"
#include "p2p/failure.h"
#include "p2p/mapping.h"
#include "p2p/shm/shm_packet.h"

namespace ringzero {
namespace {

// More connections of which nobody knows yet whose they are: the oldest is cut off.
constexpr size_t kMostStrangers = 256;
// Who closes a connection may have ended because of another, and is about to say so there.
constexpr std::chrono::seconds kLastWordsLimit(1);

void Randomize(Nonce& nonce) {
  const std::string random = RandomBytes(nonce.size());
  std::copy(random.begin(), random.end(), nonce.begin());
}

// An abstract socket's address: its name begins with a zero byte and has no file.
struct Address {
  sockaddr_un name = {};
  socklen_t bytes = 0;
};
absl::StatusOr<Address> AddressOf(const std::string& name) {
  Address address;
  address.name.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof(address.name.sun_path)) {
    return InvalidArgument("a socket's name of ", name.size(), " bytes");
  }
  std::memcpy(address.name.sun_path + 1, name.data(), name.size());
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

bool IsOurUser(int socket) {
  ucred peer = {};
  socklen_t bytes = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

template <typename T>
SendResult SendStruct(int socket, const T& value, std::span<const int> descriptors = {}) {
  return SendPacket(socket, std::as_bytes(std::span(&value, 1)), descriptors);
}

// A packet that is a T and nothing else. A longer one is not.
template <typename T>
bool Read(std::span<const std::byte> packet, T& value) {
  if (packet.size() != sizeof(T)) return false;
  std::memcpy(&value, packet.data(), sizeof(T));
  return true;
}

std::string ShmKey(WorkerId worker) { return absl::StrCat("shm/", worker.value); }

// One conversation, until it is one of the endpoint's sockets.
struct Connection {
  enum class Awaits { kOpening, kProof, kChallenge, kWelcome };
  UniqueFd socket;
  Awaits awaits = Awaits::kOpening;
  Opening opening;
  Nonce challenge = {};
};

class ShmGathering {
 public:
  ShmGathering(const JobSeat& seat, std::span<const WorkerId> peers)
      : seat_(seat), deadline_(seat.join_limit), missing_(peers.begin(), peers.end()) {
    missing_.erase(seat.self);
    members_ = static_cast<int>(missing_.size()) + 1;
    endpoint_.self = seat.self;
    endpoint_.sockets.resize(seat.workers);
    endpoint_.hello_limit = seat.join_limit;
  }

  absl::StatusOr<ShmEndpoint> Run() {
    const bool lowest = missing_.empty() || seat_.self < *missing_.begin();
    if (lowest) RZ_RETURN_IF_ERROR(MakeShared());
    if (!missing_.empty()) RZ_RETURN_IF_ERROR(Listen());
    for (const WorkerId peer : missing_) {
      if (peer < seat_.self) RZ_RETURN_IF_ERROR(ConnectTo(peer));
    }
    while (!missing_.empty()) RZ_RETURN_IF_ERROR(Wait());
    if (endpoint_.board == nullptr) {
      return absl::InternalError(
          "no worker of this host shared its memory: they do not agree on who is here");
    }
    return std::move(endpoint_);
  }

 private:
  bool Connects(const Connection& connection) const {
    return connection.opening.from == seat_.self.value;
  }
  WorkerId PeerOf(const Connection& connection) const {
    return WorkerId(Connects(connection) ? connection.opening.to : connection.opening.from);
  }
  absl::Status MakeShared() {
    shared_files_.resize(2);
    RZ_ASSIGN_OR_RETURN(shared_files_[0],
                        MakeMemoryFile("ringzero-pulses", PulseBoard::FileBytes(seat_.workers)));
    RZ_ASSIGN_OR_RETURN(shared_files_[1],
                        MakeMemoryFile("ringzero-rings", ShmRings::FileBytes(members_)));
    return MapShared(shared_files_);
  }

  absl::Status MapShared(std::span<const UniqueFd> files) {
    if (files.size() != 2) return Internal(files.size(), " memory files came, not 2");
    RZ_ASSIGN_OR_RETURN(endpoint_.board, PulseBoard::Create(seat_.workers, files[0]));
    RZ_ASSIGN_OR_RETURN(endpoint_.rings, ShmRings::Create(members_, files[1]));
    return absl::OkStatus();
  }

  absl::Status Listen() {
    const std::string name = absl::StrCat("ringzero-", RandomHex(16));
    RZ_ASSIGN_OR_RETURN(const Address address, AddressOf(name));
    listener_ = UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener_ ||
        bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address.name), address.bytes) !=
            0 ||
        listen(listener_.get(), SOMAXCONN) != 0) {
      return SystemError("cannot listen on a Unix socket");
    }
    return seat_.rendezvous->Put(ShmKey(seat_.self), name);
  }

  absl::Status ConnectTo(WorkerId peer) {
    const std::string who = absl::StrCat("worker ", peer.value);
    const absl::StatusOr<std::string> name = seat_.rendezvous->Get(ShmKey(peer), deadline_.Left());
    if (!name.ok()) return WhileWaiting(name.status(), who + " is missing on this host");
    RZ_ASSIGN_OR_RETURN(const Address address, AddressOf(*name));
    Connection made;
    made.socket = UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!made.socket) return SystemError("cannot make a Unix socket");
    // While the other's queue of connections is full this blocks.
    const auto left = deadline_.Left();
    const timeval limit = {left.count() / 1000, left.count() % 1000 * 1000 + 1};
    setsockopt(made.socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(made.socket.get(), reinterpret_cast<const sockaddr*>(&address.name),
                address.bytes) != 0) {
      return Unavailable("cannot connect to ", who, " on this host: ", std::strerror(errno));
    }
    if (!IsOurUser(made.socket.get())) {
      return absl::PermissionDeniedError(who + " is a process of another user");
    }
    made.opening.from = seat_.self.value;
    made.opening.to = peer.value;
    made.awaits = Connection::Awaits::kChallenge;
    Randomize(made.opening.nonce);
    SendStruct(made.socket.get(), made.opening);  // if it is broken, it is found closed below
    connections_.push_back(std::move(made));
    return absl::OkStatus();
  }

  absl::Status Wait() {
    std::vector<pollfd> files = {{listener_.get(), POLLIN, 0}};
    for (const Connection& each : connections_) files.push_back({each.socket.get(), POLLIN, 0});
    RZ_RETURN_IF_ERROR(seat_.rendezvous->status());
    if (closed_.has_value() && closed_->second.over()) {
      return Unavailable("worker ", closed_->first.value,
                         " on this host closed its connection as it began");
    }
    if (deadline_.over()) return Missing();
    // Wakes every 100 ms: only the rendezvous tells who died before it came here.
    const int look = static_cast<int>(deadline_.Look().count());
    if (poll(files.data(), files.size(), look) <= 0) return absl::OkStatus();
    size_t i = 0;
    for (auto each = connections_.begin(); each != connections_.end();) {
      Next next = Next::kGoOn;
      if (files[++i].revents != 0) {
        RZ_ASSIGN_OR_RETURN(next, Take(*each));
      }
      if (next == Next::kDone) {
        const WorkerId peer = PeerOf(*each);
        missing_.erase(peer);
        endpoint_.sockets[peer.value] = std::move(each->socket);
      }
      each = next == Next::kGoOn ? std::next(each) : connections_.erase(each);
    }
    Accept();
    return absl::OkStatus();
  }

  void Accept() {
    while (true) {
      Connection made;
      made.socket = UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!made.socket) return;
      if (!IsOurUser(made.socket.get())) continue;
      made.opening.from = -1;
      connections_.push_back(std::move(made));
      const auto is_stranger = [this](const Connection& each) { return !Connects(each); };
      const auto strangers = std::count_if(connections_.begin(), connections_.end(), is_stranger);
      if (static_cast<size_t>(strangers) <= kMostStrangers) continue;
      connections_.erase(std::find_if(connections_.begin(), connections_.end(), is_stranger));
    }
  }

  // What has come on a connection. kDrop: it is none of ours, or not any more.
  enum class Next { kGoOn, kDone, kDrop };
  absl::StatusOr<Next> Take(Connection& connection) {
    std::array<std::byte, 256> buffer;  // longer than any packet of ours
    ReceiveResult got = ReceivePacket(connection.socket.get(), buffer);
    if (got.kind == ReceiveResult::Kind::kNothing) return Next::kGoOn;
    const std::span<const std::byte> packet(buffer.data(), got.bytes);
    const bool closed = got.kind == ReceiveResult::Kind::kClosed;  // then a packet of 0 bytes
    if (closed && Connects(connection)) {
      if (!closed_.has_value()) closed_.emplace(PeerOf(connection), Deadline(kLastWordsLimit));
      return Next::kDrop;
    }
    switch (connection.awaits) {
      case Connection::Awaits::kOpening: return TakeOpening(connection, packet);
      case Connection::Awaits::kProof: return TakeProof(connection, packet);
      case Connection::Awaits::kChallenge: return TakeChallenge(connection, packet);
      case Connection::Awaits::kWelcome:
        return TakeWelcome(connection, packet, std::move(got.descriptors));
    }
    return Next::kDrop;
  }

  Next TakeOpening(Connection& connection, std::span<const std::byte> packet) {
    Opening& opening = connection.opening;
    Challenge challenge;
    if (!Read(packet, opening) || opening.magic != Opening::kMagic ||
        opening.to != seat_.self.value || missing_.count(WorkerId(opening.from)) == 0 ||
        opening.from <= seat_.self.value) {
      return Next::kDrop;
    }
    Randomize(challenge.nonce);
    connection.challenge = challenge.nonce;
    connection.awaits = Connection::Awaits::kProof;
    challenge.mac = ProofOf(Prover::kAccepts, seat_.secret, opening, challenge.nonce);
    const SendResult sent = SendStruct(connection.socket.get(), challenge);
    return sent == SendResult::kSent ? Next::kGoOn : Next::kDrop;
  }

  Next TakeProof(Connection& connection, std::span<const std::byte> packet) {
    Digest proof = {};
    const Digest right =
        ProofOf(Prover::kConnects, seat_.secret, connection.opening, connection.challenge);
    // Another connection may have been faster: then this one is a second of the same worker.
    const bool awaited = missing_.count(WorkerId(connection.opening.from)) != 0;
    if (!awaited) return Next::kDrop;
    if (!Read(packet, proof) || !SameDigest(proof, right)) {
      unproven_.insert(WorkerId(connection.opening.from));  // perhaps it comes yet
      return Next::kDrop;
    }
    std::vector<int> descriptors;
    for (const UniqueFd& file : shared_files_) descriptors.push_back(file.get());
    const SendResult sent = SendStruct(connection.socket.get(), Welcome(), descriptors);
    return sent == SendResult::kSent ? Next::kDone : Next::kDrop;
  }

  absl::StatusOr<Next> TakeChallenge(Connection& connection, std::span<const std::byte> packet) {
    Challenge challenge;
    if (!Read(packet, challenge) ||
        !SameDigest(challenge.mac,
                    ProofOf(Prover::kAccepts, seat_.secret, connection.opening, challenge.nonce))) {
      return absl::PermissionDeniedError(absl::StrCat(
          "worker ", connection.opening.to, " on this host does not know this job's secret"));
    }
    connection.awaits = Connection::Awaits::kWelcome;
    SendStruct(connection.socket.get(),
               ProofOf(Prover::kConnects, seat_.secret, connection.opening, challenge.nonce));
    return Next::kGoOn;
  }

  absl::StatusOr<Next> TakeWelcome(Connection& connection, std::span<const std::byte> packet,
                                   std::vector<UniqueFd> descriptors) {
    const WorkerId peer(connection.opening.to);
    const std::string who = absl::StrCat("worker ", peer.value, " on this host");
    Welcome welcome;
    if (!Read(packet, welcome) || welcome.magic != Welcome::kMagic) {
      return absl::InternalError(who + " spoke out of turn");
    }
    if (!descriptors.empty()) RZ_RETURN_IF_ERROR(Annotate(MapShared(descriptors), who));
    return Next::kDone;
  }

  absl::Status Missing() const {
    const std::string who = absl::StrJoin(missing_, ", ", [](std::string* out, WorkerId worker) {
      absl::StrAppend(out, worker.value);
    });
    std::string why =
        absl::StrCat(missing_.size() == 1 ? "worker " : "workers ", who,
                     " did not connect on this host within ", seat_.join_limit.count(), " ms");
    for (const WorkerId worker : unproven_) {
      if (missing_.count(worker) == 0) continue;
      absl::StrAppend(&why, "; a process that called itself worker ", worker.value,
                      " did not prove that it knows this job's secret");
    }
    return absl::DeadlineExceededError(why);
  }

  const JobSeat& seat_;
  const Deadline deadline_;
  std::set<WorkerId> missing_;
  std::set<WorkerId> unproven_;  // somebody called itself so, and did not know the secret
  // The first that closed its connection, and until when its last words are awaited.
  std::optional<std::pair<WorkerId, Deadline>> closed_;
  ShmEndpoint endpoint_;
  int members_ = 0;                     // of this host
  std::vector<UniqueFd> shared_files_;  // at the lowest worker, which makes them: board, rings
  UniqueFd listener_;
  std::list<Connection> connections_;
};

}  // namespace

std::vector<WorkerId> ShmEndpoint::Members() const {
  std::vector<WorkerId> members;
  for (int w = 0; w < static_cast<int>(sockets.size()); ++w) {
    if (w == self.value || sockets[w]) members.emplace_back(w);
  }
  return members;
}

absl::StatusOr<std::vector<ShmEndpoint>> MakeShmEndpoints(int workers) {
  RZ_ASSIGN_OR_RETURN(const std::shared_ptr<PulseBoard> board, PulseBoard::Create(workers));
  RZ_ASSIGN_OR_RETURN(const std::shared_ptr<ShmRings> rings, ShmRings::Create(workers));
  std::vector<ShmEndpoint> endpoints(workers);
  for (int a = 0; a < workers; ++a) {
    endpoints[a].self = WorkerId(a);
    endpoints[a].sockets.resize(workers);
    endpoints[a].board = board;
    endpoints[a].rings = rings;
  }
  for (int a = 0; a < workers; ++a) {
    for (int b = a + 1; b < workers; ++b) {
      int pair[2] = {-1, -1};
      if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return SystemError(absl::StrCat("cannot connect workers ", a, " and ", b));
      }
      endpoints[a].sockets[b] = UniqueFd(pair[0]);
      endpoints[b].sockets[a] = UniqueFd(pair[1]);
    }
  }
  return endpoints;
}

absl::StatusOr<ShmEndpoint> ConnectShmEndpoint(const JobSeat& seat,
                                               std::span<const WorkerId> peers) {
  for (const WorkerId peer : peers) {
    if (peer.value >= 0 && peer.value < seat.workers) continue;
    return InvalidArgument("worker ", peer.value, " as a peer, but there are ", seat.workers);
  }
  return ShmGathering(seat, peers).Run();
}

}  // namespace ringzero
