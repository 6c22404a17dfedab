// The four task rings as both sides see them, and the stream of submits between them.
//
// Owner threads: the orchestrator writes `submitted`, `scope_released` and the log; schedulers
// write the watermarks. Each such word has a cache line of its own.
//
// The stream: the orchestrator puts the slot of each submit (of a block task: its head) at the end
// of `log` and then moves `submitted`. Whoever holds `wiring` reads, in this order, all
// scope_released words, then `submitted`; wires everything up to it; then lets tasks below those
// scope_released numbers retire. So a task that names a buffer is wired before the scope that
// allocated the buffer can let it go.
//
// Retiring: whoever has made a task fit to retire stores that first. Then it reads `releasable` by
// a read-modify-write, as whoever wires writes it: either it sees the new number, or the other sees
// what it stored. Where there is something to let go it adds 1 to `retiring`: who had 0 there is at
// it, and sets it back to 0 only if nobody has added to it since it began to look.
#pragma once

#include <atomic>
#include <cstdint>

#include "pto/abi/platform.h"
#include "pto/engine/memory.hpp"
#include "pto/engine/runtime_table.hpp"
#include "task.hpp"

namespace pto::ring_buffer {

struct TaskRing {
  uint32_t window = 0;  // slots, a power of two; at most window - 1 live tasks
  TaskDescriptor* descriptors = nullptr;
  TaskState* states = nullptr;
  TaskRecord* records = nullptr;
  Edge* edges = nullptr;  // the dependency pool
  uint32_t edge_capacity = 0;

  // Orchestrator: number of the next task. Apart from what schedulers read for every task.
  alignas(64) int64_t next = 0;
  // Tasks before this number belong to ended scopes only.
  alignas(64) std::atomic<int64_t> scope_released{0};
  // last_task_alive: the oldest task that has not retired. Whoever is at `retiring`.
  alignas(64) std::atomic<int64_t> watermark{0};
  // Schedulers: how much of scope_released the wiring has caught up with.
  alignas(64) std::atomic<int64_t> releasable{0};
  // Schedulers: how many have come to let tasks retire since the first of them did.
  std::atomic<uint32_t> retiring{0};

  // The number of the newest task in a slot.
  int64_t newest_in(uint32_t wanted) const {
    const uint32_t back = (slot(next - 1) - wanted) & (window - 1);
    return next - 1 - static_cast<int64_t>(back);
  }
  uint32_t slot(int64_t number) const { return static_cast<uint32_t>(number) & (window - 1); }
  TaskDescriptor& descriptor(int64_t number) const { return descriptors[slot(number)]; }
  TaskState& state(int64_t number) const { return states[slot(number)]; }
  TaskRecord& record(int64_t number) const { return records[slot(number)]; }
};

struct Options;

struct Rings {
  // Reserves the memory of all rings and of the log. Call destroy() also after a shortage.
  Shortage create(Memory& memory, const Options& options);
  void destroy(Memory& memory);
  // Orchestrator, at the start of a run, after the scheduler's begin().
  void begin();
  // Marks as free the slots of tasks that have not retired; reports read phases alone. Before the
  // scheduler's begin(). `is_deadlocked`: the last run ended in a deadlock, and its plan has moved
  // the watermarks.
  void clear_phases(bool is_deadlocked);

  TaskRing ring[kRings];

  SlotRef* log = nullptr;  // of log_size entries, a power of two, at least the sum of the windows
  uint64_t log_size = 0;
  // Submits so far. Stored with seq_cst after the entry: it meets the schedulers that rest.
  alignas(64) std::atomic<uint64_t> submitted{0};
  // Submits in the log, at least `submitted`. Stored likewise, for each: a line that only a
  // scheduler looks at that is about to rest.
  alignas(64) std::atomic<uint64_t> logged{0};
  // Submits that have been wired.
  alignas(64) std::atomic<uint64_t> wired{0};

  // The orchestrator waits for room: it sets `waiting`, looks again, and then waits for `signal` to
  // change. Whoever moves a watermark or `wired` (or frees a cluster) while `waiting` is set bumps
  // `signal` and calls the platform's notify.
  alignas(64) std::atomic<uint32_t> waiting{0};
  std::atomic<uint32_t> signal{0};

  void wake_orchestrator(const pto_platform* platform) {
    signal.fetch_add(1, std::memory_order_seq_cst);
    platform->notify(platform->self, reinterpret_cast<const uint32_t*>(&signal));
  }

  SlotRef slot_of_task(int64_t id) const {
    const TaskId task = TaskId::of(id);
    return slot_ref(task.ring, ring[task.ring].slot(task.number));
  }
  TaskDescriptor& descriptor(SlotRef ref) const {
    return ring[ring_of(ref)].descriptors[slot_of(ref)];
  }
  TaskState& state(SlotRef ref) const { return ring[ring_of(ref)].states[slot_of(ref)]; }
  Edge& edge(EdgeRef ref) const { return ring[ref >> 30].edges[ref & 0x3FFFFFFFu]; }
};

}  // namespace pto::ring_buffer
