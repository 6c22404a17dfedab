// The tracks of a traced Worker, and the events that pto/abi/trace.h does not define.
//
// The events of a Worker have the groups and meanings of pto/abi/trace.h, with these differences: a
// callable takes the place of a kernel, and a frame in a child takes the place of a core. A frame
// is identified by its child and by the low 32 bits of its number in the progress table.
#pragma once

#include <time.h>

#include <cstdint>

#include "pto/abi/trace.h"
#include "pto/engine/bell.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace pto::worker {

// The clock of traces: the counter of the processor if its rate is constant, otherwise
// CLOCK_MONOTONIC. All processes of a host read the same clock.
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

// Return the time in which a processor ran this thread. It takes a system call.
inline uint64_t processor_time_ns() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

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

constexpr uint16_t kOrchestratorTrack = PTO_TRACK_ORCHESTRATOR;
constexpr uint16_t kSchedulerTrack = PTO_TRACK_SCHEDULER;
constexpr uint16_t kFirstChildTrack = PTO_TRACK_WORKER;

// SUBMIT: a = task, b = submit_word(). DISPATCH: a = dispatch_word(), b = frame_word(). COMPLETE: a
// = task, b = frame_word() of the frame whose end the parent has read. START: a = task, b = frame
// number + (pid << 32). END: a = task, b = frame number + (outcome << 32).
enum : uint16_t {
  kTraceFinish = 0x07,    // a = task, b = Result; all members have ended, or none will run
  kTraceWithdraw = 0x0E,  // a = task, b = frame_word() of a frame that was sent and does not begin
  kTraceArgument = 0x17,  // a = task + (number of its ArgumentKind << 40), b = address
  kTraceRequire = 0x22,   // duration: a child waits for a frame of child b
  kTraceProcessor = 0x23  // a = processor time of a frame that ended, in ns, b = frame number
};

// The numbers of a SUBMIT: the callable, and the code object and the instruction of the submit. A
// number that does not fit is unknown: the highest callable, code object 0.
constexpr uint64_t kUnknownCallable = (uint64_t{1} << 24) - 1;
constexpr uint64_t kEndOfPlaces = uint64_t{1} << 20;

constexpr uint64_t submit_word(uint64_t callable, uint64_t code, uint64_t instruction) {
  const bool fits = code < kEndOfPlaces && instruction < kEndOfPlaces;
  return (callable < kUnknownCallable ? callable : kUnknownCallable) |
         (fits ? code << 24 | instruction << 44 : 0);
}

// The task, and 1 + its callable: a trace that begins after the submit knows the callable, too.
constexpr uint64_t dispatch_word(uint64_t task, uint64_t callable) {
  return (task & 0xFFFFFFFFFF) | (callable < kUnknownCallable ? callable + 1 : 0) << 40;
}

constexpr uint64_t argument_word(uint64_t task, uint64_t kind) {
  return (task & 0xFFFFFFFFFF) | kind << 40;
}

constexpr uint64_t frame_word(int32_t child, int32_t member, uint64_t count) {
  return static_cast<uint64_t>(static_cast<uint16_t>(child)) << 48 |
         static_cast<uint64_t>(static_cast<uint16_t>(member)) << 32 | (count & 0xFFFFFFFF);
}

}  // namespace pto::worker
