// The records of a task: three records for each slot, divided by the thread that writes them, and
// the edges.
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
#include <cstdint>

#include "pto/abi/payload.h"
#include "pto/abi/runtime.h"
#include "pto/engine/task_name.hpp"
#include "pto/engine/text.hpp"

namespace pto::ring_buffer {

using namespace engine;

constexpr uint32_t kRings = PTO_TASK_RINGS;
constexpr int64_t kNoTask = -1;

// The public task id: the ring in the low bits, then the number in the ring. The number equals slot
// plus generation times window, so two live tasks never have the same id.
struct TaskId {
  uint32_t ring;
  int64_t number;

  static TaskId of(int64_t id) { return {static_cast<uint32_t>(id & (kRings - 1)), id >> 2}; }
  int64_t value() const { return number << 2 | ring; }
};

// The name of a task in reports. Its id is for programs.
struct TaskName {
  int64_t id;
};

inline void write(engine::Text& text, TaskName task) {
  text.add(engine::TaskName{task.id, PTO_RUNTIME_RING_IDS});
}

// A slot of any ring, with the ring in the upper two bits. kNoSlot is never a slot.
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
using EdgeRef = uint32_t;  // the ring in the upper two bits; kNoEdge ends a list
constexpr EdgeRef kNoEdge = 0;
constexpr EdgeRef kClosed = 0xFFFFFFFFu;  // value of a fan-out list after its task has completed

enum EdgeKind : uint32_t {
  kOrders = 1,    // the consumer starts after the producer has completed
  kHolds = 2,     // the producer's slot and slab stay until the consumer has completed
  kLabelled = 4,  // conservative: by byte hull only
};

struct Edge {
  SlotRef producer;
  SlotRef consumer;
  EdgeRef next;   // next edge in the producer's fan-out
  uint32_t kind;  // EdgeKind bits
};
static_assert(sizeof(Edge) == 16, "four edges a cache line");

struct alignas(64) TaskDescriptor {
  pto_payload* payload;  // constant except block_id; the blocks of a submit share it
  int64_t id;
  EdgeRef first_edge;  // kNoEdge if there are none
  uint32_t edge_count;
  int32_t cluster;     // -1: any core of the type
  int32_t group;       // number of the cluster's allocation; -1 without a cluster
  uint32_t block_dim;  // 0: not a block task
  uint32_t block_id;
  SlotRef head;             // for a block task: the slot of its block 0, which has all edges
  uint16_t payload_length;  // bytes
  uint8_t core_type;        // PTO_CORE_*
  uint8_t block_id_arg;     // index of the argument of the payload that is block_id
  uint8_t reserved[8];
};
static_assert(sizeof(TaskDescriptor) == 64, "one cache line a task");

// The part of a task's state that one word stores; see states.hpp and docs/states.md.
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
  kCoreType = 1,     // PTO_CORE_*
  kIsBlock = 2,      // block of a block task: counted in blocks_left of the first block
  kClusterShift = 8  // from this bit on: the cluster + 1; 0 without a cluster
};

struct alignas(32) TaskState {
  std::atomic<EdgeRef> fanout;     // list of edges, or kClosed
  std::atomic<uint32_t> waits;     // number of producers that have not completed
  std::atomic<uint32_t> held;      // number of consumers that hold it; the wiring thread writes it
  std::atomic<uint32_t> released;  // number of those consumers that have completed
  std::atomic<uint32_t> phase;     // a value of Phase
  // first block of a block task: number of blocks that have not completed
  std::atomic<uint32_t> blocks_left;
  SlotRef next_ready;  // next task in the ready queue
  uint32_t traits;     // constant after the task was connected
};
static_assert(sizeof(TaskState) == 32, "two states a cache line");

// `line` and `file` are the position in the user's program, for reports. The heap range is in
// virtual offsets of the ring.
struct TaskRecord {
  uint64_t heap_address;  // device address of heap_begin
  uint64_t heap_begin;
  uint64_t heap_end;
  const char* file;
  pto_payload* payload;  // allocation to free; NULL if there is none or if another task owns it
  int32_t line;
  int32_t func_id;
  uint32_t first_entry;    // first of its entries in the tensor map, a linked list; 0 ends it
  uint32_t payload_class;  // size class of Payloads
  uint32_t edges_end;      // virtual offset in the dependency pool, low half
  uint32_t scope_depth;
};
static_assert(sizeof(TaskRecord) == 64, "one cache line a task");

}  // namespace pto::ring_buffer
