// The narrow passes once per processor, by Highway, as kernels.cc.
#include "zero/update/narrow_kernels.h"

#include <algorithm>

#include "base/philox.h"

// Vectors whose length is only known at run time cannot be members of a class.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zero/update/narrow_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ringzero {
namespace HWY_NAMESPACE {
namespace {

#if HWY_NATIVE_FMA && HWY_HAVE_FLOAT64  // as kernels.cc; processors without have no fp16 either

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using Bits = hn::RebindToUnsigned<D>;
using Half = hn::Rebind<uint16_t, D>;
using V = hn::Vec<D>;
using VBits = hn::Vec<Bits>;
using VHalf = hn::Vec<Half>;

template <WireType kType>
HWY_INLINE V Widen(VHalf value) {
  if constexpr (kType == WireType::kFp16) {
    return hn::PromoteTo(D(), hn::BitCast(hn::Rebind<hwy::float16_t, D>(), value));
  } else {
    return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(Bits(), value)));
  }
}

// To bf16, after `up` has been added to the bits that go.
HWY_INLINE VHalf RoundBf16(V value, VBits up) {
  const VBits bits = hn::BitCast(Bits(), value);
  const VBits rounded = hn::ShiftRight<16>(hn::Add(bits, up));
  const VBits quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(Bits(), 0x40));
  const auto nan = hn::RebindMask(Bits(), hn::IsNaN(value));
  return hn::TruncateTo(Half(), hn::IfThenElse(nan, quiet, rounded));
}

template <WireType kType>
HWY_INLINE VHalf Narrow(V value) {
  if constexpr (kType == WireType::kFp16) {
    return hn::BitCast(Half(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), value));
  } else {
    const VBits high = hn::ShiftRight<16>(hn::BitCast(Bits(), value));
    const VBits odd = hn::And(high, hn::Set(Bits(), 1));
    return RoundBf16(value, hn::Add(odd, hn::Set(Bits(), 0x7fff)));
  }
}

int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(D())); }

template <WireType kType>
void WidenAll(const uint16_t* values, float* out, int64_t count) {
  int64_t i = 0;
  for (; i + Lanes() <= count; i += Lanes()) {
    hn::StoreU(Widen<kType>(hn::LoadU(Half(), values + i)), D(), out + i);
  }
  reference::WidenPass(kType, values + i, out + i, count - i);
}

template <WireType kType>
void NarrowAll(const float* values, uint16_t* out, int64_t count) {
  int64_t i = 0;
  for (; i + Lanes() <= count; i += Lanes()) {
    hn::StoreU(Narrow<kType>(hn::LoadU(D(), values + i)), Half(), out + i);
  }
  reference::NarrowPass(kType, values + i, out + i, count - i);
}

template <WireType kType>
void AddAll(float* sum, const uint16_t* values, int64_t count) {
  int64_t i = 0;
  for (; i + Lanes() <= count; i += Lanes()) {
    const V value = Widen<kType>(hn::LoadU(Half(), values + i));
    hn::StoreU(hn::Add(hn::LoadU(D(), sum + i), value), D(), sum + i);
  }
  reference::AddNarrowPass(kType, sum + i, values + i, count - i);
}

void WidenTarget(WireType type, const uint16_t* values, float* out, int64_t count) {
  type == WireType::kBf16 ? WidenAll<WireType::kBf16>(values, out, count)
                          : WidenAll<WireType::kFp16>(values, out, count);
}

void NarrowTarget(WireType type, const float* values, uint16_t* out, int64_t count) {
  type == WireType::kBf16 ? NarrowAll<WireType::kBf16>(values, out, count)
                          : NarrowAll<WireType::kFp16>(values, out, count);
}

void AddNarrowTarget(WireType type, float* sum, const uint16_t* values, int64_t count) {
  type == WireType::kBf16 ? AddAll<WireType::kBf16>(sum, values, count)
                          : AddAll<WireType::kFp16>(sum, values, count);
}

// The upper halves of the products, lane by lane.
HWY_INLINE VBits MultiplyHigh(VBits a, VBits b) {
  const hn::RepartitionToWide<Bits> wide;
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(Bits(), hn::ShiftRight<32>(hn::BitCast(wide, a))), b);
  const auto upper = hn::And(odd, hn::Set(wide, 0xffffffff00000000u));
  return hn::BitCast(Bits(), hn::Or(hn::ShiftRight<32>(even), upper));
}

// Philox4x32 (base/philox.h) of as many blocks as there are lanes, from `block` on, in memory as
// one after the other gives them: 16 bits per value.
void RandomBlocks(const RoundingKey& key, uint64_t block, uint16_t* out) {
  const Bits d;
  VBits c0 = hn::Iota(d, static_cast<uint32_t>(block)), c1 = hn::Zero(d);
  VBits c2 = hn::Set(d, static_cast<uint32_t>(key.stream));
  VBits c3 = hn::Set(d, static_cast<uint32_t>(key.stream >> 32));
  uint32_t k0 = static_cast<uint32_t>(key.key), k1 = static_cast<uint32_t>(key.key >> 32);
  const VBits m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  for (int round = 0; round < 10; ++round) {
    const VBits high0 = MultiplyHigh(c0, m0), high1 = MultiplyHigh(c2, m1);
    const VBits low0 = hn::Mul(c0, m0), low1 = hn::Mul(c2, m1);
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, k0));
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, k1));
    c1 = low1;
    c3 = low0;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  hn::StoreInterleaved4(c0, c1, c2, c3, d, reinterpret_cast<uint32_t*>(out));  // a vector's store
}

void AddRoundedTarget(const RoundingKey& key, int64_t first, const uint16_t* sum,
                      const float* gradient, uint16_t* out, int64_t count) {
  const auto from = [&](int64_t i) { return sum == nullptr ? nullptr : sum + i; };
  // Up to a whole block of random numbers.
  int64_t i = std::min(count, (8 - first % 8) % 8);
  reference::AddRoundedPass(key, first, sum, gradient, out, i);
  HWY_ALIGN uint16_t random[8 * HWY_MAX_BYTES / sizeof(float)];
  for (; i + 8 * Lanes() <= count; i += 8 * Lanes()) {
    RandomBlocks(key, static_cast<uint64_t>(first + i) / 8, random);
    for (int64_t at = 0; at < 8 * Lanes(); at += Lanes()) {
      V value = hn::LoadU(D(), gradient + i + at);
      if (sum != nullptr) {
        value = hn::Add(Widen<WireType::kBf16>(hn::LoadU(Half(), sum + i + at)), value);
      }
      const VBits up = hn::PromoteTo(Bits(), hn::LoadU(Half(), random + at));
      hn::StoreU(RoundBf16(value, up), Half(), out + i + at);
    }
  }
  reference::AddRoundedPass(key, first + i, from(i), gradient + i, out + i, count - i);
}

#else

void WidenTarget(WireType type, const uint16_t* values, float* out, int64_t count) {
  reference::WidenPass(type, values, out, count);
}
void NarrowTarget(WireType type, const float* values, uint16_t* out, int64_t count) {
  reference::NarrowPass(type, values, out, count);
}
void AddNarrowTarget(WireType type, float* sum, const uint16_t* values, int64_t count) {
  reference::AddNarrowPass(type, sum, values, count);
}
void AddRoundedTarget(const RoundingKey& key, int64_t first, const uint16_t* sum,
                      const float* gradient, uint16_t* out, int64_t count) {
  reference::AddRoundedPass(key, first, sum, gradient, out, count);
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ringzero
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringzero {

HWY_EXPORT(WidenTarget);
HWY_EXPORT(NarrowTarget);
HWY_EXPORT(AddNarrowTarget);
HWY_EXPORT(AddRoundedTarget);

void WidenPass(WireType type, const uint16_t* values, float* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(WidenTarget)(type, values, out, count);
}
void NarrowPass(WireType type, const float* values, uint16_t* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(NarrowTarget)(type, values, out, count);
}
void AddNarrowPass(WireType type, float* sum, const uint16_t* values, int64_t count) {
  HWY_DYNAMIC_DISPATCH(AddNarrowTarget)(type, sum, values, count);
}
void AddRoundedPass(const RoundingKey& key, int64_t first, const uint16_t* sum,
                    const float* gradient, uint16_t* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(AddRoundedTarget)(key, first, sum, gradient, out, count);
}

}  // namespace ringzero
#endif
