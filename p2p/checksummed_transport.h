// ChecksummedTransport: another transport whose payloads are checked from end to end.
//
//   TransportOptions options = WithChecksumRoom(TransportNeeds(…));
//   RZ_ASSIGN_OR_RETURN(auto transport, CreateShmTransport(endpoint, options));
//   transport = MakeChecksummed(std::move(transport));         // on every worker, or on none
//
// Each payload has 8 bytes more, behind what its receiver sees: its checksum, written when it is
// sent and read when it arrives. A copy that is relayed keeps the one that its owner gave it.
// Damage ends the transport with DataLoss "worker 1 sent worker 2 …: checksum … expected, found …".
// Costs one pass over every payload at either end, on the thread that sends and on the message
// thread. Nothing is copied but what lies outside of Allocate's memory. Thread-safe, as Transport
// says.
#ifndef RINGZERO_P2P_CHECKSUMMED_TRANSPORT_H_
#define RINGZERO_P2P_CHECKSUMMED_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "p2p/transport.h"

namespace ringzero {

// 64 bits that change with any damage to a payload, as fast as memory is read (XXH3). Not against
// intent. Equal on all machines.
uint64_t Checksum(std::span<const std::byte> bytes);

// `options` with memory for the checksums of all that may be allocated.
TransportOptions WithChecksumRoom(TransportOptions options);

// `describe`: what a message is called in errors.
std::unique_ptr<Transport> MakeChecksummed(
    std::unique_ptr<Transport> transport,
    std::function<std::string(MessageKey)> describe = [](MessageKey key) { return ToString(key); });

}  // namespace ringzero

#endif  // RINGZERO_P2P_CHECKSUMMED_TRANSPORT_H_
