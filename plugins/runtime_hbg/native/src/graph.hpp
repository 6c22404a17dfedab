// The task graph of one run: tasks, their payloads, edges, tensor pairs.
//
// Invariants
//   - Task ids count from 0 in the order of add_task().
//   - Every edge is counted once: in the successors of `from` and in the fan-in of `to`. If `from`
//     has already completed, it is counted in neither. An edge added twice counts twice on both
//     sides.
//   - No edge may be added into a published task, so the fan-in of a published task only falls.
//
// Only the orchestrator calls these methods, except record(), the iteration over successors and
// task_count().
#pragma once

#include <atomic>
#include <cstdint>

#include "pto/abi/payload.h"
#include "pto/abi/runtime.h"
#include "pto/engine/access_log.hpp"
#include "pto/engine/context.hpp"
#include "pto/engine/kernel_table.hpp"
#include "pto/engine/signature.hpp"

namespace pto::build_graph {

constexpr int32_t kNoTask = -1;
constexpr uint32_t kInlineSuccessors = 3;
constexpr uint32_t kBlockSuccessors = 7;

// A task of the runtime: one cache line, plus its payload and, for wide fan-outs, blocks.
//
// Writers of the fields:
//   orchestrator  all fields before the task is published; afterwards only successors and the
//                 fan-out count, until the task is closed
//   scheduler     next_ready, start_time, end_time of a task that it made ready or dispatched
//   both          fanin and fanout, which are atomic
struct alignas(64) BuiltTask {
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
static_assert(sizeof(BuiltTask) == 64, "a task must fill one cache line");

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

using namespace engine;

// A device buffer whose content is copied to host memory at the end of the run.
struct TensorPair {
  void* host;
  uint64_t device;
  size_t bytes;
};

// The rules for submitting tasks, which depend on the variant and the build mode.
struct BuildRules {
  bool concurrent;        // whether schedulers run during the build
  bool explicit_publish;  // whether a task runs only after it was published
};

class Graph {
 public:
  static constexpr int64_t kMaxTasks = ChunkedArray<BuiltTask, 13>::kCapacity;

  explicit Graph(Context& context) : context_(context), log(context.memory) {}

  bool create();
  void destroy();
  void begin(const BuildRules& rules, const pto_call_config* config);

  // Returns the id of the new task; -1 after an error.
  int64_t add_task(const pto_task& task);
  pto_status add_edge(int64_t from, int64_t to);

  // Marks the task as published. Returns true if it has become ready; the caller must then pass it
  // to a scheduler.
  bool publish(int64_t id);

  pto_status record_tensor_pair(void* host, uint64_t device, size_t bytes);
  pto_status copy_back();

  // Calls `visit(id, core_type)` for each task without predecessors, in the order of ids. Only for
  // a graph that is complete before the schedulers run.
  template <class Visit>
  void for_each_seed(Visit visit) const;

  // Calls `visit(id)` for each of the first `count` successors, in the order of their edges.
  template <class Visit>
  void for_each_successor(const BuiltTask& record, uint32_t count, Visit visit) const;

  int64_t task_count() const { return task_count_.load(std::memory_order_acquire); }
  bool contains(int64_t id) const { return id >= 0 && id < task_count(); }
  BuiltTask& record(int64_t id) const { return tasks_[static_cast<uint64_t>(id)]; }
  const EdgeBlock& block(uint32_t index) const { return blocks_[index]; }
  KernelTable& kernels() { return kernels_; }
  const BuildRules& rules() const { return rules_; }

  uint64_t edges() const { return edges_; }
  uint64_t edges_to_completed() const { return edges_to_completed_; }
  int64_t published() const { return published_; }
  uint64_t tensor_pairs() const { return pair_count_; }
  // Whether any edge leads from a higher to a lower id. Without such an edge, the graph has no
  // cycle.
  bool may_have_cycle() const { return has_backward_edge_; }

 private:
  bool is_valid(const pto_task& task, uint64_t kernel, int32_t core_type) const;
  void reject_task(const pto_task& task, uint64_t kernel, int32_t core_type);
  void reject_function(int32_t func_id);
  pto_status reject_edge(int64_t from, int64_t to);
  bool are_values_plausible(const pto_task& task);
  void write_payload(pto_payload* payload, const pto_task& task, uint64_t kernel);
  bool begin_seeds(uint64_t word);
  int32_t* successor_slot(BuiltTask& record, uint32_t index);
  pto_status out_of_memory(const char* what);

  Context& context_;
  KernelTable kernels_;
  BuildRules rules_{};
  ChunkedArray<BuiltTask, 13> tasks_;
  ChunkedArray<SeedWord, 14> seeds_;
  ChunkedArray<EdgeBlock, 14> blocks_;
  ChunkedArray<TensorPair, 10> pairs_;
  Arena payloads_;
  std::atomic<int64_t> task_count_{0};
  uint64_t edges_ = 0;
  uint64_t edges_to_completed_ = 0;
  uint64_t pair_count_ = 0;
  int64_t published_ = 0;
  uint32_t block_count_ = 0;
  bool has_backward_edge_ = false;

 public:
  // The tasks and edges of a run that keeps a log; the graph writes it. It is the last member,
  // because the members above are used for each task.
  AccessLog log;
};

template <class Visit>
void Graph::for_each_seed(Visit visit) const {
  const uint64_t count = static_cast<uint64_t>(task_count());
  for (uint64_t first = 0; first < count; first += 64) {
    const SeedWord word = seeds_[first / 64];
    uint64_t ready = ~word.dependent;
    if (count - first < 64) ready &= (uint64_t{1} << (count - first)) - 1;
    for (; ready != 0; ready &= ready - 1) {
      const int bit = __builtin_ctzll(ready);
      visit(static_cast<int32_t>(first + bit), static_cast<uint32_t>(word.vector >> bit & 1));
    }
  }
}

template <class Visit>
void Graph::for_each_successor(const BuiltTask& record, uint32_t count, Visit visit) const {
  const uint32_t inline_count = count < kInlineSuccessors ? count : kInlineSuccessors;
  for (uint32_t i = 0; i < inline_count; ++i) visit(record.successors[i]);
  uint32_t left = count - inline_count;
  // Read a block's `next` only if a counted successor follows it: the orchestrator may be writing
  // the `next` of the last block at the same time.
  for (uint32_t index = left > 0 ? record.first_block : 0; left > 0;) {
    const EdgeBlock& block = blocks_[index];
    const uint32_t here = left < kBlockSuccessors ? left : kBlockSuccessors;
    for (uint32_t i = 0; i < here; ++i) __builtin_prefetch(&this->record(block.successors[i]), 1);
    for (uint32_t i = 0; i < here; ++i) visit(block.successors[i]);
    left -= here;
    if (left > 0) index = block.next;
  }
}

}  // namespace pto::build_graph
