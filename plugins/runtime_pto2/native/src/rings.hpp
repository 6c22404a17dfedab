// The four task rings, as orchestrator and schedulers use them, and the stream of submits between
// them.
//
// Owner threads: the orchestrator writes `submitted`, `scope_released` and the log; schedulers
// write the watermarks. Each of these words has a separate cache line.
//
// The stream: the orchestrator appends the slot of each submit to `log` (for a block task, the slot
// of its first block), and then advances `submitted`. The wiring thread connects submits to their
// producers. It reads all scope_released words and then `submitted`, in this order. It connects all
// submits up to that position. Only then may tasks below these scope_released numbers retire. So a
// task that names a buffer is connected before the end of the buffer's scope can release the
// buffer.
//
// Retiring: a thread that makes a task ready to retire first stores the new state of the task. Then
// it reads `releasable` with a read-modify-write operation; the wiring thread writes `releasable`
// in the same way. So either the first thread sees the new value of `releasable`, or the wiring
// thread sees the new state. If there is a task to retire, a thread adds 1 to `retiring`. The
// thread that found 0 there retires tasks. It resets `retiring` to 0 only if no other thread has
// added to it since its scan began.
#pragma once

#include <atomic>
#include <cstdint>

#include "pto/abi/platform.h"
#include "pto/engine/memory.hpp"
#include "pto/engine/runtime_table.hpp"
#include "task.hpp"

namespace pto::ring_buffer {

struct TaskRing {
  uint32_t window = 0;  // number of slots, a power of two; at most window - 1 tasks are alive
  TaskDescriptor* descriptors = nullptr;
  RingTaskState* states = nullptr;
  RingTask* records = nullptr;
  Edge* edges = nullptr;  // the dependency pool
  uint32_t edge_capacity = 0;

  // Written by the orchestrator: the number of the next task. It is not in the cache lines of the
  // words that schedulers read for every task.
  alignas(64) int64_t next = 0;
  // All tasks before this number belong to ended scopes.
  alignas(64) std::atomic<int64_t> scope_released{0};
  // The published name is last_task_alive: the number of the oldest task that has not retired.
  // Written by the thread that is retiring tasks.
  alignas(64) std::atomic<int64_t> watermark{0};
  // Written by schedulers: the value of scope_released up to which tasks may retire; see "The
  // stream" above.
  alignas(64) std::atomic<int64_t> releasable{0};
  // Written by schedulers: the number of threads that have found tasks to retire, including the
  // thread that retires them; see "Retiring" above.
  std::atomic<uint32_t> retiring{0};

  // Return the number of the newest task in the slot `wanted`.
  int64_t newest_in(uint32_t wanted) const {
    const uint32_t back = (slot(next - 1) - wanted) & (window - 1);
    return next - 1 - static_cast<int64_t>(back);
  }
  SlotRef block(SlotRef head, uint32_t number) const {
    return slot_ref(ring_of(head), (slot_of(head) + number) & (window - 1));
  }
  uint32_t slot(int64_t number) const { return static_cast<uint32_t>(number) & (window - 1); }
  TaskDescriptor& descriptor(int64_t number) const { return descriptors[slot(number)]; }
  RingTaskState& state(int64_t number) const { return states[slot(number)]; }
  RingTask& record(int64_t number) const { return records[slot(number)]; }
};

struct Options;

struct Rings {
  // Reserve the memory of all rings and of the log. Call destroy() even if memory is exhausted.
  Shortage create(Memory& memory, const Options& options);
  void destroy(Memory& memory);
  // Called by the orchestrator at the start of a run, after the scheduler's begin().
  void begin();
  // Mark the slots of tasks that have not retired as free: the next run's reports read only the
  // phases. Called before the scheduler's begin(). `is_deadlocked`: the last run ended in a
  // deadlock, and its plan has changed the watermarks.
  void clear_phases(bool is_deadlocked);

  TaskRing ring[kRings];

  SlotRef* log = nullptr;  // has log_size entries: a power of two, at least the sum of the windows
  uint64_t log_size = 0;
  // The number of announced submits. Stored with seq_cst after the log entry, because schedulers
  // that become idle read it.
  alignas(64) std::atomic<uint64_t> submitted{0};
  // The number of submits in the log; it is at least `submitted`. A store for each submit is cheap,
  // because only a scheduler that is about to become idle reads this cache line.
  alignas(64) std::atomic<uint64_t> logged{0};
  // The number of submits that have been connected to their producers.
  alignas(64) std::atomic<uint64_t> wired{0};

  // Used when the orchestrator waits for free space. The orchestrator sets `waiting`, checks again,
  // and then waits until `signal` changes. While `waiting` is set, a thread that advances a
  // watermark or `wired`, or that frees a cluster, increments `signal` and calls the platform's
  // notify.
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
  RingTaskState& state(SlotRef ref) const { return ring[ring_of(ref)].states[slot_of(ref)]; }
  Edge& edge(EdgeRef ref) const { return ring[ref >> 30].edges[ref & 0x3FFFFFFFu]; }
};

}  // namespace pto::ring_buffer
