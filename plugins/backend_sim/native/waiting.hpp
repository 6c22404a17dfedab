// Park a thread on a word, the policy for waiting before that, and a cheap clock.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace pto::sim {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t),
              "a futex needs an atomic without extra members");

inline uint64_t clock_ns() noexcept {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// Sleeps until another thread calls unpark(word), but only if the word has the value `expected`.
// May return early. A negative timeout means no limit.
inline void park(std::atomic<uint32_t>& word, uint32_t expected, int64_t timeout_ns = -1) noexcept {
  timespec limit{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, timeout_ns < 0 ? nullptr : &limit,
          nullptr, 0);
}

inline void unpark(std::atomic<uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

inline void pause_briefly() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("yield");
#endif
}

// The stages of one wait: about a microsecond of spinning, then sched_yield, then park. If the
// thread spun longer, it would keep the thread for which it waits from using the processor.
class Backoff {
 public:
  // Returns false once the caller should park.
  bool again() noexcept {
    if (turns_ < kSpins) {
      ++turns_;
      pause_briefly();
      return true;
    }
    if (turns_++ == kSpins) yielding_since_ns_ = clock_ns();
    if (clock_ns() - yielding_since_ns_ > kYieldNs) return false;
    sched_yield();
    return true;
  }

  void reset() noexcept { turns_ = 0; }

 private:
  static constexpr uint32_t kSpins = 25;  // a pause is about 40 ns
  static constexpr uint64_t kYieldNs = 60'000;

  uint32_t turns_ = 0;
  uint64_t yielding_since_ns_ = 0;
};

// A clock that is cheap enough to read between kernels. Use it for decisions that tolerate an error
// by a factor of two.
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
