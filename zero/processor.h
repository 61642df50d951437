// One loop compiled for several processors, the best chosen at the first call.
//
//   RZ_INLINE_LOOP void AddLoop(float* to, const float* from, int64_t n) { for ... }
//   RZ_FOR_PROCESSOR(AddBlock, AddLoop, (float* to, const float* from, int64_t n), (to, from, n))
//   AddBlock(to, from, n);     // AVX-512, AVX2 with FMA, or what every processor has
//
// (target_clones cannot say it: its "arch=haswell" means that very processor, not one that can at
// least as much, and sanitizers' runtimes are not up yet when it resolves.) The results must not
// depend on the copy: no contraction, and std::fma only where it is meant.
#ifndef RINGZERO_ZERO_PROCESSOR_H_
#define RINGZERO_ZERO_PROCESSOR_H_

#if defined(__GNUC__)
#define RZ_INLINE_LOOP static inline __attribute__((always_inline))
#else
#define RZ_INLINE_LOOP static inline
#endif

#if defined(__x86_64__) && defined(__GNUC__)
#define RZ_FOR_PROCESSOR(name, loop, parameters, arguments)                                    \
  __attribute__((                                                                              \
      target("avx512f,avx512vl,fma,prefer-vector-width=512"))) void name##Avx512 parameters {  \
    loop arguments;                                                                            \
  }                                                                                            \
  __attribute__((target("avx2,fma"))) void name##Avx2 parameters { loop arguments; }           \
  void name##Portable parameters { loop arguments; }                                           \
  void name parameters {                                                                       \
    static const auto best = __builtin_cpu_supports("avx512vl") ? name##Avx512                 \
                             : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") \
                                 ? name##Avx2                                                  \
                                 : name##Portable;                                             \
    best arguments;                                                                            \
  }
#else
#define RZ_FOR_PROCESSOR(name, loop, parameters, arguments) \
  void name parameters { loop arguments; }
#endif

#endif  // RINGZERO_ZERO_PROCESSOR_H_
