// The records of a task, and the edges. Each slot has three records, one for each group of threads
// that write it.
//
// The tasks of a ring are numbered from 0 in the order of submits. Task n occupies slot n & (window
// - 1) until the watermark of the ring has passed it. The following threads may access the records:
//
//   TaskRecord      the orchestrator alone.
//   TaskDescriptor  the orchestrator until it publishes the task in the stream; afterwards it is
//                   constant and schedulers read it, until the slot has retired.
//   TaskState       the wiring thread initialises it, in stream order and before any other thread
//                   can know the task; afterwards schedulers, by the atomic operations below.
//   Edge            the orchestrator until the consumer is published; then the wiring thread owns
//                   `next` and `kind`, until the consumer is wired.
//
// The protocol that counts every edge exactly once:
//   wire      (one thread at a time, in stream order) Each holding edge adds 1 to the producer's
//             held, or is dropped if the producer's scope has ended, so held is final when the task
//             may retire. waits = number of ordering edges. Each of these is pushed on the
//             producer's fan-out; if the fan-out is closed, the edge is satisfied and 1 is
//             subtracted from waits. The last edge is pushed after the subtractions, so waits
//             cannot reach 0 earlier.
//   complete  The scheduler that polled the core closes the fan-out (exchange with kClosed),
//             subtracts 1 from the waits of each consumer in the list, adds 1 to the released of
//             each producer that this task held, sets phase to done, and then retires tasks.
//             The thread that brings waits to 0 makes the consumer ready.
//   retire    (one thread at a time in each ring, see rings.hpp) The oldest task of a ring retires
//             when the stream has ended its scope, its phase is done, and released equals held.
//             Then the watermark moves.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "pto/abi/payload.h"
#include "pto/abi/runtime.h"
#include "pto/abi/tensor.h"
#include "pto/engine/task_name.hpp"
#include "pto/engine/text.hpp"

namespace pto::ring_buffer {

using namespace engine;

constexpr uint32_t kRings = PTO_TASK_RINGS;
constexpr int64_t kNoTask = -1;

// The public task id: the number of the task in its ring, shifted left by two bits, and the ring. A
// number is never reused during a run, so two tasks never have the same id.
struct TaskId {
  uint32_t ring;
  int64_t number;

  static TaskId of(int64_t id) { return {static_cast<uint32_t>(id & (kRings - 1)), id >> 2}; }
  int64_t value() const { return number << 2 | ring; }
};

// A task in reports, printed by its name, such as "task 4 of ring 3". Programs use its id.
struct RingTaskName {
  int64_t id;
};

inline void write(engine::Text& text, RingTaskName task) {
  text.add(engine::TaskName{task.id, PTO_RUNTIME_RING_IDS});
}

// A slot of any ring. The upper two bits contain the ring. kNoSlot is never a valid slot.
using SlotRef = uint32_t;
constexpr SlotRef kNoSlot = 0xFFFFFFFFu;
constexpr SlotRef slot_ref(uint32_t ring, uint32_t slot) {
  return ring << 30 | slot;
}
constexpr uint32_t ring_of(SlotRef ref) {
  return ref >> 30;
}
constexpr uint32_t slot_of(SlotRef ref) {
  return ref & 0x3FFFFFFFu;
}

// An entry of the dependency pool of the consumer's ring. Entry 0 of each pool is never used. The
// edges of a task are contiguous.
using EdgeRef = uint32_t;  // the upper two bits contain the ring; kNoEdge ends a list
constexpr EdgeRef kNoEdge = 0;
constexpr EdgeRef kClosed = 0xFFFFFFFFu;  // value of TaskState::fanout after the task has completed

enum EdgeKind : uint32_t {
  kOrders = 1,    // the consumer starts after the producer has completed
  kHolds = 2,     // the producer's slot and slab stay until the consumer has completed
  kLabelled = 4,  // conservative: only the byte hulls are known to overlap
};

struct Edge {
  SlotRef producer;
  SlotRef consumer;
  EdgeRef next;   // next edge in the producer's fan-out
  uint32_t kind;  // EdgeKind bits
};
static_assert(sizeof(Edge) == 16, "a cache line must contain four edges");

// The payload of a task of 2026-08. Its tensors follow. If it is aligned to 64 bytes, so are they.
struct ChipPayload {
  struct Lane {
    uint64_t kernel;
    int32_t func_id;
    int32_t sub_block_id;
  };

  pto_payload header;
  uint64_t args[PTO_CONTEXT_ARGS + 2];
  pto_local_context local;
  pto_global_context global;
  Lane lanes[PTO_LANES];
  pto_predicate predicate;
};
static_assert(offsetof(ChipPayload, args) == sizeof(pto_payload), "pto_payload_args");
static_assert(sizeof(ChipPayload) % 64 == 0, "ChipTensor is aligned to 64 bytes");

struct alignas(64) TaskDescriptor {
  // constant except the argument block_id; the blocks of a submit share the payload
  pto_payload* payload;
  int64_t id;
  EdgeRef first_edge;  // kNoEdge if the task has no edges
  uint32_t edge_count;
  int32_t cluster;     // -1: the task may run on any core of its type
  int32_t group;       // number of the cluster's allocation; -1 without a cluster
  uint32_t block_dim;  // 0: not a block task
  uint32_t block_id;
  SlotRef head;             // for a block task: the slot of its block 0, which has all edges
  uint16_t payload_length;  // bytes
  uint16_t block_id_at;     // offset in the payload of the number to which block_id is added
  uint8_t traits;           // bits of Trait without kIsBlock and the cluster
  uint8_t lanes;            // PTO_LANE_*; 0: the task runs on one core
  uint8_t is_together;      // its kernels may wait for each other: PTO_DISPATCH_TOGETHER
  uint8_t reserved[5];
};
static_assert(sizeof(TaskDescriptor) == 64, "a descriptor must fill one cache line");

// The state of a task; see states.hpp and docs/states.md.
enum Phase : uint32_t {
  kFree = 0,
  kPending = 1,
  kReady = 2,
  kRunning = 3,
  kCompleted = 4,  // the kernel has returned; consumers are being released
  kDone = 5,       // consumers and producers were notified
  kConsumed = 6,   // retired
  kFailed = 7
};

// Bits of TaskState::traits. They determine the queue in which a ready task waits.
enum Trait : uint32_t {
  kCoreType = 1,  // PTO_CORE_*
  kIsBlock = 2,   // block of a block task, counted in blocks_left of the first block
  kIsDummy = 4,   // runs no kernel, from the start or because its predicate is false
  kIsMixed = 8,   // runs on several cores of a cluster, which are counted in waits
  kHasPredicate = 16,
  kIsCohort = 32,    // block task whose blocks start at the same time
  kClusterShift = 8  // the bits from this one on contain the cluster + 1; 0 without a cluster
};

struct alignas(32) RingTaskState {
  std::atomic<EdgeRef> fanout;  // list of edges, or kClosed
  // number of producers that have not completed; on a core: of lanes that have not completed
  std::atomic<uint32_t> waits;
  // number of consumers that hold the task; written by the wiring thread
  std::atomic<uint32_t> held;
  std::atomic<uint32_t> released;  // number of those consumers that have completed
  std::atomic<uint32_t> phase;     // a value of Phase
  // used in the first block of a block task: number of blocks that have not completed
  std::atomic<uint32_t> blocks_left;
  SlotRef next_ready;  // next task in the ready queue
  uint32_t traits;     // constant after the task was connected
};
static_assert(sizeof(RingTaskState) == 32, "a cache line must contain two states");

// The orchestrator's data of a task. `line` and `file` are the position of the submit in the user's
// program. The heap range consists of virtual offsets in the ring.
struct RingTask {
  uint64_t heap_address;  // device address of heap_begin
  uint64_t heap_begin;
  uint64_t heap_end;
  const char* file;
  pto_payload* payload;  // payload to free; NULL if there is none or if another record owns it
  int32_t line;
  int32_t func_id;
  // first of the task's entries in the tensor map, a linked list; 0 ends the list
  uint32_t first_entry;
  uint32_t payload_class;  // size class of Payloads
  uint32_t edges_end;  // end of the task's edges: virtual offset in the dependency pool, low half
  uint32_t scope_depth;
};
static_assert(sizeof(RingTask) == 64, "a record must fill one cache line");

}  // namespace pto::ring_buffer
