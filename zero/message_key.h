// MessageKeyOf: the name of a program's message at a transport.
#ifndef RINGZERO_ZERO_MESSAGE_KEY_H_
#define RINGZERO_ZERO_MESSAGE_KEY_H_

#include "p2p/transport.h"
#include "sharding/op.h"

namespace ringzero {

// A message's kind is its channel.
static_assert(kChannelCount <= kMaxMessageKinds);

inline MessageKey MessageKeyOf(const Op& message) {
  return {static_cast<uint8_t>(message.channel), MessageTag(message)};
}

// The kSend that has this name (sharding/op.h, MessageOp).
inline Op SendOf(MessageKey key) { return MessageOp(static_cast<Channel>(key.kind), key.tag); }

}  // namespace ringzero

#endif  // RINGZERO_ZERO_MESSAGE_KEY_H_
