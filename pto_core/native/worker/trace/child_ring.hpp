// The trace ring of a child, in memory that the child shares with its parent.
//
// The thread of the child's loop writes; the driver of the parent reads. A process that replaces a
// lost child continues to write the same ring. A child that has tested groups() may still write
// after the driver has ended the trace, but not after it has replied to a later control frame. Only
// then does the parent reset the ring or free its memory.
#pragma once

#include <unistd.h>

#include <cstdint>

#include "progress_table.hpp"
#include "trace/events.hpp"

namespace pto::worker {

constexpr uint64_t ring_bytes(uint64_t records) {
  const uint64_t bytes = sizeof(pto_trace_ring) + records * sizeof(pto_trace_record);
  return (bytes + 63) & ~uint64_t{63};
}

// Prepare an empty ring in memory of ring_bytes(records) bytes. `records`: a power of two.
inline pto_trace_ring* prepare_ring(void* memory, uint64_t records) {
  auto* ring = static_cast<pto_trace_ring*>(memory);
  *ring = {};
  ring->records = reinterpret_cast<pto_trace_record*>(ring + 1);
  ring->mask = records - 1;
  return ring;
}

// Writes the records of one child.
class ChildTrace {
 public:
  ChildTrace(const ProgressTable& progress, int32_t child)
      : record_(progress.child(child)),
        track_(static_cast<uint16_t>(kFirstChildTrack + child)),
        pid_(static_cast<uint64_t>(getpid())) {}

  // Return the groups of events that are recorded now; usually 0.
  uint32_t groups() const { return record_.trace_groups.load(std::memory_order_acquire); }

  void start(uint64_t task, uint64_t count) { write(PTO_TRACE_START, task, word(count, pid_)); }
  void end(uint64_t task, uint64_t count, uint64_t outcome) {
    write(PTO_TRACE_END, task, word(count, outcome));
  }
  void processor_time(uint64_t ns, uint64_t count) { write(kTraceProcessor, ns, word(count, 0)); }
  // Record an event with a duration that began at `begin` of the trace clock.
  void lasted(uint16_t event, uint64_t begin, uint64_t b) { write(event, begin, b); }

 private:
  static uint64_t word(uint64_t count, uint64_t high) { return (count & 0xFFFFFFFF) | high << 32; }

  void write(uint16_t event, uint64_t a, uint64_t b) {
    const pto_trace_record record{trace_clock(), a, b, 0, event, track_};
    pto_trace_write(record_.trace_ring.load(std::memory_order_relaxed), &record);
  }

  const ChildRecord& record_;
  const uint16_t track_;
  const uint64_t pid_;
};

}  // namespace pto::worker
