// The clock of traces: the counter of the processor if its rate is constant, otherwise
// CLOCK_MONOTONIC. All processes of a host read the same clock.
#pragma once

#include <cstdint>

#include "pto/abi/trace.h"
#include "pto/engine/bell.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace pto::hierarchy {

#if defined(__x86_64__)

// Return whether the time stamp counter has a constant rate in all states of the processor.
inline bool find_invariant_counter() {
  constexpr uint32_t kPowerLeaf = 0x80000007;
  constexpr uint32_t kInvariantBit = 1u << 8;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(kPowerLeaf, &a, &b, &c, &d) != 0 && (d & kInvariantBit) != 0;
}

inline const bool kHasInvariantCounter = find_invariant_counter();

inline uint32_t trace_clock_source() {
  return kHasInvariantCounter ? PTO_CLOCK_TSC : PTO_CLOCK_NOW;
}

inline uint64_t trace_clock() {
  return kHasInvariantCounter ? __rdtsc() : engine::monotonic_ns();
}

#elif defined(__aarch64__)

inline uint32_t trace_clock_source() {
  return PTO_CLOCK_CNTVCT;
}

inline uint64_t trace_clock() {
  uint64_t ticks = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
}

#else

inline uint32_t trace_clock_source() {
  return PTO_CLOCK_NOW;
}

inline uint64_t trace_clock() {
  return engine::monotonic_ns();
}

#endif

// Read the clock together with CLOCK_MONOTONIC. Of several readings, keep the closest pair, because
// the thread may lose the processor between two readings.
inline pto_clock_pair read_clock_pair() {
  constexpr int kReadings = 16;
  pto_clock_pair best{};
  uint64_t shortest = UINT64_MAX;
  for (int reading = 0; reading < kReadings; ++reading) {
    const uint64_t before = trace_clock();
    const uint64_t ns = engine::monotonic_ns();
    const uint64_t length = trace_clock() - before;
    if (length >= shortest) continue;
    shortest = length;
    best = {before + length / 2, ns};
  }
  return best;
}

}  // namespace pto::hierarchy
