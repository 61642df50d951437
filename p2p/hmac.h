// HMAC-SHA256 (RFC 2104): that somebody knows a secret, without telling it.
//
//   Mac mine = HmacSha256(secret, text);
//   if (!Same(mine, theirs)) return ...;
//
// Pure functions.
#ifndef RINGZERO_P2P_HMAC_H_
#define RINGZERO_P2P_HMAC_H_

#include <array>
#include <cstdint>
#include <string>

namespace ringzero {

using Mac = std::array<uint8_t, 32>;

Mac HmacSha256(const std::string& secret, const std::string& text);

// Takes as long for a near miss as for a far one.
bool Same(const Mac& a, const Mac& b);

}  // namespace ringzero

#endif  // RINGZERO_P2P_HMAC_H_
