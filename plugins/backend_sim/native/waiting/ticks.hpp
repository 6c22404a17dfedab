// A clock that is cheap enough to read between kernels. Use it for decisions that tolerate an error
// by a factor of two.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#else
#include "waiting/futex.hpp"
#endif

namespace pto::sim {

#if defined(__x86_64__)
inline uint64_t ticks() noexcept {
  return __rdtsc();
}
constexpr uint64_t kTicksPerUs = 2500;  // 2000 to 4000 on current processors
#else
inline uint64_t ticks() noexcept {
  return clock_ns();
}
constexpr uint64_t kTicksPerUs = 1000;
#endif

}  // namespace pto::sim
