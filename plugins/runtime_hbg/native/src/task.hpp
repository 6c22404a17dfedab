// A task of the runtime: one cache line, plus its payload and, for wide fan-outs, blocks.
//
// Writers of the fields:
//   orchestrator  all fields before the task is published; afterwards only successors and the
//                 fan-out count, until the task is closed
//   scheduler     next_ready, start_time, end_time of a task that it made ready or dispatched
//   both          fanin and fanout, which are atomic
#pragma once

#include <atomic>
#include <cstdint>

#include "pto/abi/payload.h"

namespace pto::build_graph {

constexpr int32_t kNoTask = -1;
constexpr uint32_t kInlineSuccessors = 3;
constexpr uint32_t kBlockSuccessors = 7;

struct alignas(64) TaskRecord {
  // The number of predecessors that have not completed. While a concurrent build has not published
  // the task, this is the negative number of completed predecessors; publishing then adds
  // fanin_count. So each edge counts once, even if its predecessor completes before the task is
  // published. The thread that changes the sum to zero makes the task ready.
  std::atomic<int32_t> fanin;
  int32_t fanin_count;
  pto_payload* payload;
  // number of successors; the bit kClosed is set when the task has completed
  std::atomic<uint32_t> fanout;
  uint16_t payload_length;
  uint8_t core_type;
  uint8_t published;
  uint32_t first_block;  // valid when fanout > kInlineSuccessors
  uint32_t last_block;   // used by the orchestrator only
  int32_t next_ready;
  int32_t successors[kInlineSuccessors];
  uint64_t start_time;
  uint64_t end_time;
};
static_assert(sizeof(TaskRecord) == 64, "a task must fill one cache line");

constexpr uint32_t kClosed = 0x80000000u;

inline uint32_t successor_count(uint32_t fanout) {
  return fanout & ~kClosed;
}
inline bool is_completed(uint32_t fanout) {
  return (fanout & kClosed) != 0;
}

// The successors that do not fit into TaskRecord, in the order in which the edges were added.
struct EdgeBlock {
  uint32_t next;
  int32_t successors[kBlockSuccessors];
};
static_assert(sizeof(EdgeBlock) == 32, "a cache line must contain two blocks");

// Two sets of bits for 64 consecutive tasks: the tasks that have predecessors, and the tasks that
// run on an AIV core.
struct SeedWord {
  uint64_t dependent;
  uint64_t vector;
};

}  // namespace pto::build_graph
