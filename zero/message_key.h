// MessageKeyOf: the name of a program's message at a transport.
#ifndef RINGZERO_ZERO_MESSAGE_KEY_H_
#define RINGZERO_ZERO_MESSAGE_KEY_H_

#include "p2p/transport.h"
#include "sharding/op.h"

namespace ringzero {

// Kinds are four bits. No message is of Channel::kNone, so the last channel has its number.
static_assert(kChannelCount == kMaxMessageKinds + 1);

inline MessageKey MessageKeyOf(const Op& message) {
  const int kind = static_cast<int>(message.channel) % kMaxMessageKinds;
  return {static_cast<uint8_t>(kind), MessageTag(message)};
}

// The kSend that has this name (sharding/op.h, MessageOp).
inline Op SendOf(MessageKey key) {
  return MessageOp(key.kind == 0 ? Channel::kReturn : static_cast<Channel>(key.kind), key.tag);
}

}  // namespace ringzero

#endif  // RINGZERO_ZERO_MESSAGE_KEY_H_
