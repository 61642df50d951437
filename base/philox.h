// Random numbers by counter: the n-th number of a key is a pure function, the same on every
// machine.
//
//   uint64_t key = MixKeys({seed, HashName("dropout")});
//   PhiloxBlock block = PhiloxAt(key, /*stream=*/epoch, /*index=*/7);   // four words of 32 bits
//   float u = UniformFloat(block[0]);                                   // in [0, 1)
//
// Nothing here has state, so what is drawn depends on what it is drawn for and never on who draws
// it, how often or in which order. All functions are thread-safe.
#ifndef RINGZERO_BASE_PHILOX_H_
#define RINGZERO_BASE_PHILOX_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace ringzero {

using PhiloxBlock = std::array<uint32_t, 4>;

// Philox4x32 with 10 rounds (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3; 2011).
// The key's low word is the paper's key[0].
constexpr PhiloxBlock Philox4x32(PhiloxBlock counter, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

// Block `index` of stream `stream` under `key`: counter = {index low, index high, stream low,
// high}.
constexpr PhiloxBlock PhiloxAt(uint64_t key, uint64_t stream, uint64_t index) {
  return Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                     static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                    key);
}

// The upper 24 bits as a number in [0, 1), exact in fp32.
constexpr float UniformFloat(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// The next state's output of splitmix64: a bijection of 64-bit words that scatters every bit.
constexpr uint64_t SplitMix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// 64-bit FNV-1a of the bytes of `name`.
constexpr uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

// One key from several words; their order matters.
constexpr uint64_t MixKeys(std::initializer_list<uint64_t> words) {
  uint64_t key = 0;
  for (uint64_t word : words) key = SplitMix64(key ^ word);
  return key;
}

}  // namespace ringzero

#endif  // RINGZERO_BASE_PHILOX_H_
