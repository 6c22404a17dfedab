// The memory for the traces of a Worker: a FlightHead with its text, then the rings of the
// orchestrator, of the scheduler, and of each child.
//
// The driver's rings and the head are used by a flight recorder only. Its memory may be a file,
// which can be read after the process has crashed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "pto/abi/trace.h"
#include "trace/child_ring.hpp"
#include "trace/clock.hpp"

namespace pto::hierarchy {

// A run of the trace: its first task, and the clock at its begin.
struct TracedRun {
  int64_t first_task;
  uint64_t clock;
};

constexpr uint64_t kFlightHeadBytes = 1 << 16;
constexpr uint64_t kDriverTracks = 2;

// The text follows: the description, and the name of each callable, each with a zero at its end.
struct FlightHead {
  char magic[8];  // "PTOWORKR" while a flight recorder is on
  uint32_t children;
  uint32_t clock;  // PTO_CLOCK_*
  uint64_t stride;
  uint64_t ring_records;
  pto_clock_pair first;
  pto_clock_pair last;  // the latest that is known
  TracedRun run;        // the last one
  uint64_t text_bytes;

  // Append a text with a zero at its end. Without space for it, append an empty one, so that later
  // texts keep their numbers.
  void add_text(const std::string& text) {
    const uint64_t space = kFlightHeadBytes - sizeof *this - text_bytes;
    if (space == 0) return;
    const uint64_t size = text.size() < space ? text.size() : 0;
    char* end = reinterpret_cast<char*>(this + 1) + text_bytes;
    std::memcpy(end, text.data(), size);
    end[size] = '\0';
    text_bytes += size + 1;
  }
};
static_assert(sizeof(FlightHead) == 88, "pto_insight.traces.worker_flight has the same layout");

constexpr uint64_t trace_bytes(uint64_t children, uint64_t ring_records) {
  return kFlightHeadBytes + (kDriverTracks + children) * ring_bytes(ring_records);
}

// Memory of trace_bytes() bytes; `stride`: the distance of two rings.
struct TraceMemory {
  FlightHead& head() const { return *static_cast<FlightHead*>(begin); }
  // Return the ring of one of the driver's tracks, or, after them, of a child.
  pto_trace_ring* ring(uint64_t number) const {
    auto* first = static_cast<std::byte*>(begin) + kFlightHeadBytes;
    return reinterpret_cast<pto_trace_ring*>(first + number * stride);
  }
  // Begin a flight recorder. The description does not contain a zero.
  void begin_flight(uint32_t children, const pto_clock_pair& now,
                    const std::string& description) const {
    for (uint64_t track = 0; track < kDriverTracks; ++track)
      prepare_ring(ring(track), ring_records)->overwrites = 1;
    head() = {.magic = {},
              .children = children,
              .clock = trace_clock_source(),
              .stride = stride,
              .ring_records = ring_records,
              .first = now,
              .last = now,
              .run = {},
              .text_bytes = 0};
    head().add_text(description);
    std::memcpy(head().magic, "PTOWORKR", sizeof head().magic);
  }

  void* begin = nullptr;
  uint64_t stride = 0;
  uint64_t ring_records = 0;  // a power of two
};

}  // namespace pto::hierarchy
