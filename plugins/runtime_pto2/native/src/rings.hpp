// The four task rings as both sides see them, and the stream of submits between them.
//
// Owner threads: the orchestrator writes `submitted`, `scope_released` and the log; schedulers
// write the watermarks. Each such word has a cache line of its own.
//
// The stream: the orchestrator appends the slot of each submit (of a block task: its head) to `log`
// and then advances `submitted`. The thread that holds `wiring` reads, in this order, all
// scope_released words, then `submitted`; wires all submits up to it; then lets tasks below those
// scope_released numbers retire. So a task that names a buffer is wired before the scope of the
// buffer can release it.
//
// Retiring: the thread that makes a task ready to retire first stores that state. Then it reads
// `releasable` with a read-modify-write; the wiring thread writes it likewise. So either it sees
// the new number, or the wiring thread sees its store. If there is a task to retire, it adds 1 to
// `retiring`: the thread that found 0 there retires tasks, and resets it to 0 only if no other
// thread has added to it since its scan began.
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

  // Orchestrator: number of the next task. It is apart from the words that schedulers read for
  // every task.
  alignas(64) int64_t next = 0;
  // Tasks before this number belong to ended scopes only.
  alignas(64) std::atomic<int64_t> scope_released{0};
  // last_task_alive: the oldest task that has not retired. Written by the thread that holds
  // `retiring`.
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
  // Number of submits in the log, at least `submitted`. Stored for each submit: only a scheduler
  // about to become idle reads this line.
  alignas(64) std::atomic<uint64_t> logged{0};
  // Submits that have been wired.
  alignas(64) std::atomic<uint64_t> wired{0};

  // The orchestrator waits for free space: it sets `waiting`, checks again, and then waits for
  // `signal` to change. A thread that moves a watermark or `wired` (or frees a cluster) while
  // `waiting` is set increments `signal` and calls the platform's notify.
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
