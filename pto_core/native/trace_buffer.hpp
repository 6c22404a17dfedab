// The rings of a traced run, and the records that were taken out of them.
//
// The backend and the runtime write the rings. A thread of this object drains them until finish(),
// every kLongestMs, or sooner while the rings fill quickly. If the limit of the memory is reached,
// it stops draining; the rings then count the dropped records. It discards the records before and
// after the window.
//
// A flight recorder has no such thread: its rings overwrite, and finish() takes the last records of
// each track. If there is a path, the rings lie in a file, which outlives a process that crashes;
// pto_insight.traces.files reads it.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "pto/abi/trace.h"

namespace nb = nanobind;

namespace pto::core {

struct DeviceTraceSettings {
  int32_t level = 1;                // 1 to PTO_TRACE_LEVELS
  uint64_t ring_records = 1 << 16;  // entries of each ring, a power of two
  uint64_t most_records = 1 << 25;  // of all tracks together
  // The window, from the start of the run; a length of 0 has no end.
  uint64_t after_ns = 0;
  uint64_t for_ns = 0;
  std::string path;         // of the file for the rings; empty: none
  bool overwrites = false;  // this is a flight recorder
  std::string names;        // of the kernels, for the file: "func_id name" on each line
  uint32_t blocks = 0;      // for the file
};

// The start of the mapping, and of the file. The names follow it.
struct TraceFileHead {
  char magic[8];
  uint32_t tracks;
  uint32_t blocks;
  uint64_t ring_records;
  uint64_t rings_at;    // offset of the pto_trace_rings
  uint64_t records_at;  // offset of the records of track 0; those of other tracks follow
  uint64_t names_bytes;
  pto_run_trace trace;
};
static_assert(sizeof(TraceFileHead) == 104, "pto_insight.traces.files has the same layout");

class TraceBuffer {
 public:
  // Raises CapacityError if memory for the rings is missing, and UsageError if the file cannot be
  // written.
  explicit TraceBuffer(DeviceTraceSettings settings);
  ~TraceBuffer();
  TraceBuffer(const TraceBuffer&) = delete;
  TraceBuffer& operator=(const TraceBuffer&) = delete;

  pto_run_trace* trace() { return &file().trace; }
  bool is_flight_recorder() const { return settings_.overwrites; }
  // Takes the remaining records. The rings stay mapped. A second call does nothing.
  void finish();
  // Returns (records, dropped, clock, first, last, workers) after finish(): the records of all
  // tracks as bytes, in the order of each track; the number of dropped records of each track; and
  // two pairs of ticks and nanoseconds.
  nb::tuple to_python() const;

 private:
  using Clock = std::chrono::steady_clock;

  static constexpr int64_t kLongestMs = 50;
  static constexpr int64_t kShortestMs = 1;

  TraceFileHead& file() const { return *static_cast<TraceFileHead*>(mapping_); }
  void map();
  int open_file() const;
  void drain_until_stopped();
  bool drain();
  void take(pto_trace_ring& ring, uint64_t begin, uint64_t count);
  void move_window(Clock::time_point now);

  const DeviceTraceSettings settings_;
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::vector<pto_trace_record> records_;
  std::array<uint64_t, PTO_TRACKS> dropped_{};  // inside the window
  std::array<uint64_t, PTO_TRACKS> seen_drops_{};
  Clock::time_point window_begin_;
  Clock::time_point window_end_;
  bool is_inside_ = true;  // the records in the rings belong to the window
  bool is_finished_ = false;
  std::mutex mutex_;
  std::condition_variable stop_signal_;
  bool is_stopping_ = false;
  std::thread drainer_;
};

}  // namespace pto::core
