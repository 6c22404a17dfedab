// The performance counters of a thread, by perf_event_open.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "pto/abi/trace.h"

namespace pto::sim {

// Counts between begin() and end(), in programs only, not in the system. One thread uses an object.
// The events of the thread are opened at the first begin(), as far as the system permits.
class ThreadCounters {
 public:
  ThreadCounters() = default;
  ThreadCounters(const ThreadCounters&) = delete;
  ThreadCounters& operator=(const ThreadCounters&) = delete;
  ~ThreadCounters();

  void begin() noexcept;
  // Calls `take(counter, value)` for each counter that has counted all the time since begin().
  template <typename Take>
  void end(Take take) noexcept {
    Reading now{};
    if (!read(now) || now.running - begun_.running != now.enabled - begun_.enabled) return;
    for (uint32_t place = 0; place < count_; ++place) {
      take(uint64_t{counters_[place]}, now.values[place] - begun_.values[place]);
    }
  }

  // Returns a sentence that names the counters that this process cannot use, and why; empty if it
  // can use all.
  static std::string explain_missing();

 private:
  // The answer of the system for a group of events.
  struct Reading {
    uint64_t count, enabled, running;
    uint64_t values[PTO_COUNTERS];
  };

  // Returns 0, or the number of the error.
  int add(uint32_t counter) noexcept;
  bool read(Reading& reading) const noexcept;

  std::array<int, PTO_COUNTERS> files_{};
  std::array<uint32_t, PTO_COUNTERS> counters_{};
  uint32_t count_ = 0;  // of open events; the first one leads the group
  bool is_open_ = false;
  Reading begun_{};
};

// Those of the calling thread.
ThreadCounters& thread_counters() noexcept;

}  // namespace pto::sim
