// sendmsg and recvmsg with SCM_RIGHTS.
#include "p2p/shm/shm_packet.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace ringzero {
namespace {

union ControlBuffer {  // aligned as cmsghdr must be
  char bytes[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
  cmsghdr aligned;
};

std::vector<UniqueFd> TakeDescriptors(msghdr& message) {
  std::vector<UniqueFd> descriptors;
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(each) + i * sizeof(int), sizeof(int));
      descriptors.emplace_back(descriptor);
    }
  }
  return descriptors;
}

}  // namespace

SendResult SendPacket(int socket, std::span<const std::byte> packet,
                      std::span<const int> descriptors) {
  iovec bytes = {const_cast<std::byte*>(packet.data()), packet.size()};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  ControlBuffer control = {};
  if (!descriptors.empty()) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  while (true) {
    if (sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return SendResult::kSent;
    if (errno == EINTR) continue;
    const bool full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
    return full ? SendResult::kFull : SendResult::kBroken;
  }
}

ReceiveResult ReceivePacket(int socket, std::span<std::byte> buffer) {
  iovec bytes = {buffer.data(), buffer.size()};
  ControlBuffer control = {};
  bool reset = false;
  while (true) {
    msghdr message = {};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof(control.bytes);
    const ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got > 0) {
      return {ReceiveResult::Kind::kPacket, static_cast<size_t>(got), TakeDescriptors(message)};
    }
    if (got == 0) return {.kind = ReceiveResult::Kind::kClosed};
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {.kind = ReceiveResult::Kind::kNothing};
    // A peer that closes before it has read everything is reported once as a reset; what it had
    // sent itself is still to be read.
    if (errno == ECONNRESET && !std::exchange(reset, true)) continue;
    return {.kind = ReceiveResult::Kind::kClosed};
  }
}

}  // namespace ringzero
