// The rings of a traced run, and the records that were taken out of them.
//
// The backend and the runtime write the rings. A thread of this object drains them until finish(),
// every kLongestMs, or sooner while the rings fill quickly. If the limit of the memory is reached,
// it stops draining; the rings then count the dropped records.
#pragma once

#include <nanobind/nanobind.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "pto/abi/trace.h"

namespace nb = nanobind;

namespace pto::core {

struct TraceLimits {
  uint64_t ring_records = 1 << 16;  // entries of each ring, a power of two
  uint64_t most_records = 1 << 25;  // of all tracks together
};

class TraceBuffer {
 public:
  // `level`: 1 to PTO_TRACE_LEVELS. Raises CapacityError if memory for the rings is missing.
  TraceBuffer(int32_t level, const TraceLimits& limits);
  ~TraceBuffer();
  TraceBuffer(const TraceBuffer&) = delete;
  TraceBuffer& operator=(const TraceBuffer&) = delete;

  pto_run_trace* trace() { return &trace_; }
  // Takes the remaining records. The rings stay mapped. A second call does nothing.
  void finish();
  // Returns (records, dropped, clock, first, last) after finish(): the records of all tracks as
  // bytes, in the order of each track; the number of dropped records of each track; and two pairs
  // of ticks and nanoseconds.
  nb::tuple to_python() const;

 private:
  static constexpr int64_t kLongestMs = 50;
  static constexpr int64_t kShortestMs = 1;

  void map(uint64_t entries);
  void drain_until_stopped();
  bool drain();
  uint64_t dropped(const pto_trace_ring& ring) const;

  pto_run_trace trace_{};
  const TraceLimits limits_;
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::vector<pto_trace_record> records_;
  std::mutex mutex_;
  std::condition_variable stop_signal_;
  bool is_stopping_ = false;
  std::thread drainer_;
};

}  // namespace pto::core
