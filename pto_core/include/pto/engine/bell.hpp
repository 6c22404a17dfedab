// Bells: how one side tells another, in another thread or process, that there is something to see;
// and how one waits for it.
//
// Nothing is lost: whoever sleeps has read `rung`, then set `sleepers`, then looked; whoever rings
// has published, then looks at `sleepers`, and where it was set clears it, counts `rung` up and
// wakes all. All of it is seq_cst: so one of the two sees the other, and who was cleared does not
// sleep on the old count. A bell carries nothing but "look again"; it may ring for nothing.
//
// Waiting gives way by steps: a spin of about 1 us for as many waiters as there are idle cores,
// then sched_yield, then sleep. A pure spin among more threads than cores costs milliseconds.
//
// Memory: a pto_bell is shared and zeroed; several threads and processes may ring and wait at once.
// One who is killed while it sleeps leaves `sleepers` set, which costs the next ring a system call.
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

// Whether someone sleeps on the bell, or is about to, and was not rung for since; a hint, true or
// false a moment later.
inline bool has_sleepers(const pto_bell* bell) {
  return __atomic_load_n(&bell->sleepers, __ATOMIC_RELAXED) != 0;
}

// Cheap, as it writes nothing while nobody sleeps: only after a publication that was a seq_cst
// store, or exchange, of a word that the waiter's `ready` reads with seq_cst.
inline void ring_published(pto_bell* bell) {
  if (__atomic_load_n(&bell->sleepers, __ATOMIC_SEQ_CST) == 0) return;
  __atomic_exchange_n(&bell->sleepers, 0, __ATOMIC_SEQ_CST);
  __atomic_fetch_add(&bell->rung, 1, __ATOMIC_SEQ_CST);
  syscall(SYS_futex, &bell->rung, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// After any kind of publication, by any means: the count makes it one of those above.
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

// Who may spin, shared by all the waiters of a Worker; zeroed. A place names its holder, so that it
// can be taken back from one who was killed.
struct SpinPlaces {
  static constexpr uint32_t kPlaces = 15;

  uint32_t limit;            // places in use; 0: nobody spins
  uint32_t holder[kPlaces];  // 0 where nobody spins

  // One for each core but that of whoever is waited for. Before anybody waits.
  void set_limit(uint32_t cores) {
    const uint32_t others = cores > 0 ? cores - 1 : 0;
    limit = others < kPlaces ? others : kPlaces;
  }

  // `who` is not 0. -1: none is free.
  int32_t take(uint32_t who) {
    for (uint32_t i = 0; i < limit; ++i) {
      uint32_t nobody = 0;
      if (__atomic_load_n(&holder[i], __ATOMIC_RELAXED) != 0) continue;
      if (__atomic_compare_exchange_n(&holder[i], &nobody, who, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED))
        return static_cast<int32_t>(i);
    }
    return -1;
  }

  void give_back(int32_t place) { __atomic_store_n(&holder[place], 0, __ATOMIC_RELAXED); }

  // Of one who is gone.
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
  uint64_t yield_ns = 75000;         // since the wait began
  uint64_t longest_ns = 50'000'000;  // then the caller looks for signals, deaths, deadlines
};

// One thread at a time. `places` may be null: no spinning then.
class Waiter {
 public:
  Waiter(pto_bell* bell, SpinPlaces* places, uint32_t who, const WaitPolicy& policy = {})
      : bell_(bell), places_(places), who_(who), policy_(policy) {}

  // Whether `ready()`, within at most `longest_ns`; earlier where a signal interrupted the sleep.
  // `ready` reads what ringers publish with seq_cst, or with acquire where they use ring().
  template <class Ready>
  bool wait(Ready ready) {
    return wait(ready, [] {});
  }

  // `announce()` is called before each sleep, and `ready()` once more after it: for whoever has to
  // tell others that it wants to be rung for.
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
  static constexpr int kLooksPerClock = 4;

  template <class Ready>
  bool spin(Ready& ready, uint64_t begin) {
    const int32_t place = places_ ? places_->take(who_) : -1;
    if (place < 0) return false;
    bool is_ready = false;
    do {
      for (int i = 0; i < kLooksPerClock && !is_ready; ++i) {
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

  // False when a signal came.
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
