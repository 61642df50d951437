// Packets over a Unix SOCK_SEQPACKET socket, with descriptors where needed; never blocks, never
// signals.
//
//   SendResult sent = SendPacket(socket, {bytes, size}, {memory_file});
//   ReceiveResult got = ReceivePacket(socket, buffer);   // got.kind == kPacket: got.bytes of it
//
// Functions without state.
#ifndef RINGZERO_P2P_SHM_PACKET_SOCKET_H_
#define RINGZERO_P2P_SHM_PACKET_SOCKET_H_

#include <cstddef>
#include <span>
#include <vector>

#include "p2p/unique_fd.h"

namespace ringzero {

inline constexpr int kMaxDescriptors = 4;  // in one packet

enum class SendResult { kSent, kFull, kBroken };
SendResult SendPacket(int socket, std::span<const std::byte> packet,
                      std::span<const int> descriptors = {});

struct ReceiveResult {
  enum class Kind { kPacket, kNothing, kClosed };
  Kind kind = Kind::kNothing;
  size_t bytes = 0;  // a longer packet is cut off at the buffer's size
  std::vector<UniqueFd> descriptors;
};
ReceiveResult ReceivePacket(int socket, std::span<std::byte> buffer);

}  // namespace ringzero

#endif  // RINGZERO_P2P_SHM_PACKET_SOCKET_H_
