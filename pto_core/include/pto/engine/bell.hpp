// A doorbell in shared memory ("bell" in the code). A thread or process rings it to announce new
// data to the threads and processes that wait for it.
//
// No notification is lost. A sleeper reads `rung`, sets `sleepers`, then checks its condition. A
// ringer publishes its data, then reads `sleepers`. If `sleepers` is set, the ringer clears it,
// increments `rung` and wakes all sleepers. All accesses are seq_cst, so either the sleeper sees
// the published data or the ringer sees the sleeper. A sleeper whose flag was cleared sees the new
// value of `rung` and does not sleep. A bell carries no data, and spurious wake-ups are possible.
//
// A waiter that also waits for sockets polls an eventfd instead; see remote/bell_watch.hpp.
//
// A wait has three phases: it spins for about 1 us, then calls sched_yield, then sleeps. The number
// of waiters that spin at the same time is limited to the number of idle cores, because a thread
// that spins without an idle core delays other threads by milliseconds.
//
// Memory: a pto_bell is shared and starts zeroed. Several threads and processes may ring and wait
// at once. A waiter that is killed while it sleeps leaves `sleepers` set, which costs the next ring
// one system call.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdint>

#include "pto/abi/endpoint.h"

namespace pto::engine {

// Return whether a waiter sleeps on the doorbell or is about to sleep. The result may be outdated
// immediately.
inline bool has_sleepers(const pto_bell* bell) {
  return __atomic_load_n(&bell->sleepers, __ATOMIC_RELAXED) != 0;
}

// Wake the waiters. If a waiter polls a descriptor, because it also waits for other descriptors,
// write to its eventfd.
inline void wake(pto_bell* bell) {
  const uint32_t descriptor = __atomic_load_n(&bell->descriptor, __ATOMIC_RELAXED);
  if (descriptor == 0) {
    syscall(SYS_futex, &bell->rung, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    return;
  }
  constexpr uint64_t kOne = 1;
  // The write fails only if the counter is full; then the descriptor is already readable.
  [[maybe_unused]] const ssize_t written =
      write(static_cast<int>(descriptor - 1), &kOne, sizeof kOne);
}

// Ring after the caller has published data with a seq_cst store or exchange of a word. The waiter's
// `ready` must read this word with seq_cst. The call is cheap: it writes nothing while no waiter
// sleeps.
inline void ring_published(pto_bell* bell) {
  if (__atomic_load_n(&bell->sleepers, __ATOMIC_SEQ_CST) == 0) return;
  __atomic_exchange_n(&bell->sleepers, 0, __ATOMIC_SEQ_CST);
  __atomic_fetch_add(&bell->rung, 1, __ATOMIC_SEQ_CST);
  wake(bell);
}

// Ring after the caller has published data with any memory order. The increment of `rung` makes the
// data visible before the ring.
inline void ring(pto_bell* bell) {
  __atomic_fetch_add(&bell->rung, 1, __ATOMIC_SEQ_CST);
  ring_published(bell);
}

inline uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The spin places of a Worker: a waiter may spin only while it holds one. The memory starts zeroed.
// A place records its holder, so that the place can be freed if the holder is killed.
struct SpinPlaces {
  static constexpr uint32_t kPlaces = 15;

  uint32_t limit;            // number of usable places
  uint32_t holder[kPlaces];  // the holder of each place; 0: free

  // Provide one place for each core except one, on which the awaited thread runs. Call this before
  // the first wait.
  void set_limit(uint32_t cores) {
    const uint32_t others = cores > 0 ? cores - 1 : 0;
    limit = others < kPlaces ? others : kPlaces;
  }

  // Take a place for the process `who`, which is not 0. Return -1 if no place is free.
  int32_t take(uint32_t who) {
    for (uint32_t i = 0; i < limit; ++i) {
      uint32_t free_place = 0;
      if (__atomic_load_n(&holder[i], __ATOMIC_RELAXED) != 0) continue;
      if (__atomic_compare_exchange_n(&holder[i], &free_place, who, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED))
        return static_cast<int32_t>(i);
    }
    return -1;
  }

  void give_back(int32_t place) { __atomic_store_n(&holder[place], 0, __ATOMIC_RELAXED); }

  // Free the places of a process that has ended.
  void give_back_all(uint32_t who) {
    for (uint32_t& place : holder) {
      uint32_t expected = who;
      __atomic_compare_exchange_n(&place, &expected, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
  }
};

static_assert(sizeof(SpinPlaces) == 64, "spin places have a cache line of their own");

struct WaitPolicy {
  uint64_t spin_ns = 1000;
  uint64_t yield_ns = 75000;  // until this time since the start, call sched_yield
  // a wait ends after this time; then the caller checks for signals, dead children and deadlines
  uint64_t longest_ns = 50'000'000;
};

// Waits on a bell. Only one thread at a time may use a waiter. If `places` is null, the waiter does
// not spin.
class Waiter {
 public:
  Waiter(pto_bell* bell, SpinPlaces* places, uint32_t who, const WaitPolicy& policy = {})
      : bell_(bell), places_(places), who_(who), policy_(policy) {}

  // Wait until `ready()` returns true, for at most `longest_ns`, and return its last value. Return
  // earlier if a signal interrupts the sleep. `ready` must read the published data with seq_cst;
  // acquire suffices if all ringers call ring().
  template <class Ready>
  bool wait(Ready ready) {
    return wait(ready, [] {});
  }

  // Wait as above. Before each sleep call `announce()`, then `ready()` again. This is for a waiter
  // that must request a ring from the ringers.
  template <class Ready, class Announce>
  bool wait(Ready ready, Announce announce) {
    if (ready()) return true;
    const uint64_t begin = monotonic_ns();
    if (spin(ready, begin)) return true;
    while (monotonic_ns() - begin < policy_.yield_ns) {
      sched_yield();
      if (ready()) return true;
    }
    while (true) {
      const uint64_t passed = monotonic_ns() - begin;
      if (passed >= policy_.longest_ns) return false;
      bool was_interrupted = false;
      if (sleep(ready, announce, policy_.longest_ns - passed, was_interrupted)) return true;
      if (was_interrupted) return false;
    }
  }

 private:
  static constexpr int kChecksPerClock = 4;

  template <class Ready>
  bool spin(Ready& ready, uint64_t begin) {
    const int32_t place = places_ ? places_->take(who_) : -1;
    if (place < 0) return false;
    bool is_ready = false;
    do {
      for (int i = 0; i < kChecksPerClock && !is_ready; ++i) {
        pause_core();
        is_ready = ready();
      }
    } while (!is_ready && monotonic_ns() - begin < policy_.spin_ns);
    places_->give_back(place);
    return is_ready;
  }

  template <class Ready, class Announce>
  bool sleep(Ready& ready, Announce& announce, uint64_t at_most_ns, bool& was_interrupted) {
    const uint32_t seen = __atomic_load_n(&bell_->rung, __ATOMIC_SEQ_CST);
    __atomic_exchange_n(&bell_->sleepers, 1, __ATOMIC_SEQ_CST);
    announce();
    if (ready()) return true;
    was_interrupted = !park(seen, at_most_ns);
    return ready();
  }

  // Return false if a signal interrupted the sleep.
  bool park(uint32_t seen, uint64_t at_most_ns) {
    const timespec limit{static_cast<time_t>(at_most_ns / 1000000000u),
                         static_cast<long>(at_most_ns % 1000000000u)};
    const long result = syscall(SYS_futex, &bell_->rung, FUTEX_WAIT, seen, &limit, nullptr, 0);
    return result == 0 || errno != EINTR;
  }

  pto_bell* bell_;
  SpinPlaces* places_;
  uint32_t who_;
  WaitPolicy policy_;
};

}  // namespace pto::engine
