// The trace of a Worker: the records of its driver, and those of its children.
//
// The driver writes its records directly into chunks, because the writer is also the reader.
// Children write rings in shared memory, which drain() empties. When the limit of records is
// reached, later records are dropped and counted. Records outside of the window are dropped, and
// not counted; the window is a little longer than requested, because the rate of the clock is not
// known exactly yet.
//
// A flight recorder keeps the last records of each track: its rings overwrite, and the driver's
// tracks have rings, too. The memory then begins with a FlightHead, so that a file with this memory
// can be read after the process has crashed.
//
// Only the thread that has the driver role uses it.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "progress_table.hpp"
#include "pto/abi/arguments.h"
#include "pto/abi/trace.h"
#include "trace/child_ring.hpp"
#include "trace/events.hpp"

namespace pto::worker {

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

  // Append a text with a zero at its end. If there is no space for it, append an empty text, so
  // that later texts keep their numbers.
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
static_assert(sizeof(FlightHead) == 88, "pto_insight.traces.files has the same layout");

constexpr uint64_t trace_bytes(uint64_t children, uint64_t ring_records) {
  return kFlightHeadBytes + (kDriverTracks + children) * ring_bytes(ring_records);
}

// The memory for the traces of a Worker: a FlightHead with its text, then the rings of the
// orchestrator, of the scheduler, and of each child.
//
// The driver's rings and the head are used by a flight recorder only. Its memory may be a file,
// which can be read after the process has crashed.
//
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

struct WorkerTraceSettings {
  uint32_t groups = 0;
  uint64_t most_records = UINT64_MAX;   // of all tracks together
  uint64_t window_begin_ns = 0;         // CLOCK_MONOTONIC
  uint64_t window_end_ns = UINT64_MAX;  // not included
  bool keeps_last = false;              // this is a flight recorder
  std::string description = {};         // of the Worker, for the FlightHead
};

// What a task does with a tensor. Equal kinds have the same number, so that a record of an argument
// contains only this number and the address.
struct ArgumentKind {
  uint32_t shapes[PTO_MAX_DIMS] = {};
  uint16_t member = 0;
  uint8_t ndims = 0;
  uint8_t dtype = 0;
  uint8_t tag = 0;
  uint8_t is_allocated = 0;  // the submit allocates the memory
  uint8_t child_memory = 0;
  uint8_t pad = 0;

  auto operator<=>(const ArgumentKind&) const = default;
};
static_assert(sizeof(ArgumentKind) == 28, "pto_insight.traces.details has the same layout");

struct WorkerRecords {
  std::string records;         // pto_trace_record, in the order of each track
  std::string kinds;           // ArgumentKind, by number
  std::vector<uint64_t> lost;  // dropped records by track: orchestrator, scheduler, then children
  pto_clock_pair first;
  pto_clock_pair last;
  std::vector<TracedRun> runs;
};

class Tracer {
 public:
  explicit Tracer(const ProgressTable& progress) : progress_(progress) {}

  // Return whether events of this group are recorded.
  bool records(uint32_t group) const { return (groups_ & group) != 0; }
  bool is_on() const { return groups_ != 0; }
  bool keeps_last() const { return settings_.keeps_last; }

  void begin(const WorkerTraceSettings& settings, const TraceMemory& memory);
  // End the trace and return it.
  WorkerRecords end();
  // Take the records out of the rings of the children.
  void drain();
  // Children have ended `frames` frames: drain the rings when they may be a quarter full.
  void frames_ended(uint64_t frames) {
    undrained_ += frames;
    if (undrained_ >= frames_per_drain_) drain();
  }

  void run_began(int64_t first_task);
  // The next callable has this name.
  void callable_added(const std::string& name) {
    if (keeps_last()) memory_.head().add_text(name);
  }
  // The graph function of the run with this first task has returned.
  void run_built(int64_t first_task);
  void add(uint16_t track, uint16_t event, uint64_t a, uint64_t b) {
    add_at(trace_clock(), track, event, a, b);
  }
  void add_at(uint64_t clock, uint16_t track, uint16_t event, uint64_t a, uint64_t b);
  // Record an event with a duration.
  void lasted_until(uint64_t end, uint16_t track, uint16_t event, uint64_t begin) {
    add_at(end, track, event, begin, 0);
  }

  // A task that was submitted at `clock` uses the tensor at this address.
  void argument(uint64_t clock, int64_t task, const ArgumentKind& kind, uint64_t address) {
    add_at(clock, kOrchestratorTrack, kTraceArgument,
           argument_word(static_cast<uint64_t>(task), number_of(kind)), address);
  }

  // A task waits for no producer any more. `by`: the task whose end released it, or -1.
  void ready(int64_t task, int64_t by) {
    add(kSchedulerTrack, PTO_TRACE_READY, static_cast<uint64_t>(task),
        static_cast<uint64_t>(by + 1));
  }

 private:
  static constexpr uint64_t kChunkRecords = 1 << 14;

  pto_trace_ring* child_ring(int32_t child) const {
    return memory_.ring(kDriverTracks + static_cast<uint64_t>(child));
  }
  int32_t children() const { return static_cast<int32_t>(progress_.children()); }
  bool is_inside(uint64_t clock) const { return clock - window_begin_ < window_length_; }
  void set_window();
  void drain_ring(int32_t child);
  std::string collected() const;
  std::string last_records() const;
  pto_trace_record* place();
  uint32_t number_of(const ArgumentKind& kind);

  const ProgressTable progress_;
  uint32_t groups_ = 0;
  TraceMemory memory_;
  WorkerTraceSettings settings_;
  uint64_t window_begin_ = 0;  // in ticks
  uint64_t window_length_ = UINT64_MAX;
  uint64_t count_ = 0;
  uint64_t undrained_ = 0;         // frames that have ended since the last drain
  uint64_t frames_per_drain_ = 1;  // a frame has up to three records, and two waits before it
  std::vector<std::unique_ptr<pto_trace_record[]>> chunks_;
  uint64_t attempts_[2] = {0, 0};  // of the driver's tracks
  uint64_t lost_[2] = {0, 0};
  // The dropped records of a child. over_limit: by the limit of records. seen: by the ring of the
  // child. outside: records of `seen` that are outside of the window.
  struct Drops {
    uint64_t over_limit = 0;
    uint64_t seen = 0;
    uint64_t outside = 0;
  };
  std::vector<Drops> drops_;
  pto_clock_pair first_{};
  std::vector<TracedRun> runs_;
  std::map<ArgumentKind, uint32_t> kinds_;
};

}  // namespace pto::worker
