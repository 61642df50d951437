// What two workers say to each other before they share memory: who they are, and proof of it.
//
//   connects: Opening{from, to, nonce}   ->
//                                        <-  Challenge{nonce, mac}
//             Proof{mac}                 ->
//                                        <-  Welcome; from the host's lowest worker: descriptors
//
// Each proves by a MAC over both nonces and both numbers that it knows the job's secret. Packets of
// a sequenced-packet socket; both ends run on one machine, so these are plain structs.
#ifndef RINGZERO_P2P_SHM_SHM_HANDSHAKE_H_
#define RINGZERO_P2P_SHM_SHM_HANDSHAKE_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/digest.h"

namespace ringzero {

using Nonce = std::array<uint8_t, 32>;

struct Opening {
  static constexpr uint32_t kMagic = 0x525A4F32;  // "RZO2": a change of the protocol changes it
  uint32_t magic = kMagic;
  int32_t from = 0;
  int32_t to = 0;
  Nonce nonce = {};
};

struct Challenge {
  Nonce nonce = {};
  Digest mac = {};
};

struct Proof {
  Digest mac = {};
};

struct Welcome {
  static constexpr uint32_t kMagic = 0x525A5731;  // "RZW1"
  uint32_t magic = kMagic;
};

// What is proved of a connection from worker `from` to worker `to`.
enum class Prover { kConnects, kAccepts };
inline Digest ProofOf(Prover prover, const std::string& secret, const Opening& opening,
                      const Nonce& challenge) {
  std::string text = absl::StrCat("ringzero shm ", prover == Prover::kConnects ? "from " : "to ",
                                  opening.from, " ", opening.to, " ");
  text.append(opening.nonce.begin(), opening.nonce.end());
  text.append(challenge.begin(), challenge.end());
  return HmacSha256(secret, text);
}

}  // namespace ringzero

#endif  // RINGZERO_P2P_SHM_SHM_HANDSHAKE_H_
