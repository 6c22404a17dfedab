// A task as the runtime keeps it: three records by slot, divided by who writes them, and its edges.
//
// A ring's tasks count from 0 in the order of submits; task n sits in slot n & (window - 1) until
// the ring's watermark has passed it. Which thread may touch what, and when:
//
//   TaskRecord      the orchestrator alone.
//   TaskDescriptor  the orchestrator until it publishes the task in the stream; afterwards nobody
//                   writes it and schedulers read it, until the slot has retired.
//   TaskState       whoever wires the stream initialises it, in stream order and before anybody
//                   else can know the task; afterwards schedulers, by the atomic operations below.
//   Edge            the orchestrator until the consumer is published; then `next` and `kind` belong
//                   to whoever wires the stream, until the consumer is wired.
//
// The protocol that counts every edge exactly once:
//   wire      (one thread at a time, in stream order) each holding edge adds 1 to the producer's
//             held, or is dropped where the producer's scope has ended, so that held is final when
//             the task may retire; waits = ordering edges; each of these is pushed on the
//             producer's fan-out, or counts as satisfied where that is closed: then 1 is taken from
//             waits. The last one is pushed after that, so nobody brings waits to 0 before.
//   complete  the scheduler that polled the core closes the fan-out (exchange with kClosed), takes
//             1 from the waits of each consumer in the list, then adds 1 to the released of each
//             producer that this task held, then says phase done, then looks what may retire.
//             Whoever brings waits to 0 makes the consumer ready.
//   retire    (one thread at a time in each ring, see rings.hpp) the oldest task of a ring retires
//             when its scope has ended (the stream said so), its phase is done and released has
//             reached held; then the watermark moves.
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

// What users, payloads and traces see: the ring in the low bits, then the number in the ring. The
// number is slot plus generation times window, so no two live tasks share an id.
struct TaskId {
  uint32_t ring;
  int64_t number;

  static TaskId of(int64_t id) { return {static_cast<uint32_t>(id & (kRings - 1)), id >> 2}; }
  int64_t value() const { return number << 2 | ring; }
};

// A task as reports name it; its id is for programs.
struct TaskName {
  int64_t id;
};

inline void write(engine::Text& text, TaskName task) {
  text.add(engine::TaskName{task.id, PTO_RUNTIME_RING_IDS});
}

// A slot of some ring: the ring in the upper two bits. kNoSlot is never a slot.
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

// An entry of the dependency pool of the consumer's ring; entry 0 of each pool is never used. A
// task's edges are contiguous.
using EdgeRef = uint32_t;  // the ring in the upper two bits; kNoEdge ends a list
constexpr EdgeRef kNoEdge = 0;
constexpr EdgeRef kClosed = 0xFFFFFFFFu;  // of a fan-out: the task has completed

enum EdgeKind : uint32_t {
  kOrders = 1,    // the consumer starts after the producer has completed
  kHolds = 2,     // the producer's slot and slab stay until the consumer has completed
  kLabelled = 4,  // conservative: by byte hull only
};

struct Edge {
  SlotRef producer;
  SlotRef consumer;
  EdgeRef next;   // in the producer's fan-out
  uint32_t kind;  // EdgeKind bits
};
static_assert(sizeof(Edge) == 16, "four edges a cache line");

struct alignas(64) TaskDescriptor {
  pto_payload* payload;  // final but for block_id; blocks of one submit share it
  int64_t id;
  EdgeRef first_edge;  // kNoEdge when there are none
  uint32_t edge_count;
  int32_t cluster;     // -1: any core of the type
  int32_t group;       // number of the cluster's allocation, -1 without one
  uint32_t block_dim;  // 0: not a block task
  uint32_t block_id;
  SlotRef head;             // of a block task: the slot of its block 0, which carries all edges
  uint16_t payload_length;  // bytes
  uint8_t core_type;        // PTO_CORE_*
  uint8_t block_id_arg;     // which argument of the payload is block_id
  uint8_t reserved[8];
};
static_assert(sizeof(TaskDescriptor) == 64, "one cache line a task");

// The states of docs/states.md, as far as one word tells them; see states.hpp.
enum Phase : uint32_t {
  kFree = 0,
  kPending = 1,
  kReady = 2,
  kRunning = 3,
  kCompleted = 4,  // the kernel has returned; consumers are being released
  kDone = 5,       // consumers and producers have been told
  kConsumed = 6,   // retired
  kFailed = 7
};

// Of TaskState::traits: what decides where a ready task waits.
enum Trait : uint32_t {
  kCoreType = 1,     // PTO_CORE_*
  kIsBlock = 2,      // of a block task: blocks_left of its head counts it
  kClusterShift = 8  // from here: one more than the cluster, 0 without one
};

struct alignas(32) TaskState {
  std::atomic<EdgeRef> fanout;        // list of edges, or kClosed
  std::atomic<uint32_t> waits;        // producers that have not completed
  std::atomic<uint32_t> held;         // consumers that hold it; whoever wires writes it
  std::atomic<uint32_t> released;     // those of them that have completed
  std::atomic<uint32_t> phase;        // Phase
  std::atomic<uint32_t> blocks_left;  // head of a block task: blocks that have not completed
  SlotRef next_ready;                 // in the ready queue that the task is in
  uint32_t traits;                    // constant once wired
};
static_assert(sizeof(TaskState) == 32, "two states a cache line");

// `line` and `file` are the user's, for reports. The heap range is in the ring's virtual offsets.
struct TaskRecord {
  uint64_t heap_address;  // of heap_begin, on the device
  uint64_t heap_begin;
  uint64_t heap_end;
  const char* file;
  pto_payload* payload;  // to give back; NULL: another task's, or none
  int32_t line;
  int32_t func_id;
  uint32_t first_entry;    // of its entries in the tensor map, linked; 0 ends
  uint32_t payload_class;  // of Payloads
  uint32_t edges_end;      // virtual offset in the dependency pool, low half
  uint32_t scope_depth;
};
static_assert(sizeof(TaskRecord) == 64, "one cache line a task");

}  // namespace pto::ring_buffer
