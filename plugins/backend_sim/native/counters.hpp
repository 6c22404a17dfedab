// The performance counters of a thread, by perf_event_open.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "pto/abi/trace.h"

namespace pto::sim {

// Counts between begin() and end(), in programs only, not in the system. One thread uses an object.
// The events of the thread are opened at the first begin(), as far as the system permits. Those of
// the hardware are a group of their own, because the system may be unable to count them.
class ThreadCounters {
 public:
  ThreadCounters() = default;
  ThreadCounters(const ThreadCounters&) = delete;
  ThreadCounters& operator=(const ThreadCounters&) = delete;
  ~ThreadCounters() { close(); }

  // Returns 0, or the number of the error of the last event.
  int begin() noexcept;
  bool is_open() const noexcept { return is_open_; }
  // Closes the events, which otherwise count on. Another thread may call it while this one waits.
  void close() noexcept;
  // Calls `take(counter, value)` for each counter that has counted all the time since begin().
  template <typename Take>
  void end(Take take) noexcept {
    for (const Group& group : groups_) {
      Reading now{};
      const Reading& begun = group.begun;
      if (!group.read(now) || now.running - begun.running != now.enabled - begun.enabled) continue;
      for (uint32_t place = 0; place < group.count; ++place) {
        take(uint64_t{group.counters[place]}, now.values[place] - begun.values[place]);
      }
    }
  }
  // The counters that have events, a bit for each.
  uint32_t opened() const noexcept { return opened_; }

  // Returns a sentence that names the counters that this process cannot use, and why; empty if it
  // can use all.
  static std::string explain_missing();
  // Returns the names of counters, of which each has a bit.
  static std::string names(uint32_t counters);

 private:
  // The answer of the system for a group of events.
  struct Reading {
    uint64_t count, enabled, running;
    uint64_t values[PTO_COUNTERS];
  };

  struct Group {
    bool read(Reading& reading) const noexcept;

    std::array<int, PTO_COUNTERS> files{};
    std::array<uint32_t, PTO_COUNTERS> counters{};
    uint32_t count = 0;  // of open events; the first one leads the group
    Reading begun{};
  };

  // Returns 0, or the number of the error.
  int add(uint32_t counter) noexcept;

  std::array<Group, 2> groups_{};  // events of software, of hardware
  uint32_t opened_ = 0;
  bool is_open_ = false;
};

// Those of the calling thread.
ThreadCounters& thread_counters() noexcept;

}  // namespace pto::sim
