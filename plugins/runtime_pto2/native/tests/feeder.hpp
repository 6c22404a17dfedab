// Schedulers without an orchestrator. A test writes the rings as an orchestrator would, and steps
// the schedulers through a runtime table that has no other functions.
#pragma once

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "check.hpp"
#include "pto/abi/runtime.h"
#include "scheduler.hpp"

using namespace pto::ring_buffer;

class Feeder {
 public:
  static constexpr uint32_t kPayloadBytes = 64;

  struct Shape {
    uint32_t window = 8;
    uint32_t shards = 3;
    uint32_t edges = 64;  // maximum number of edges for one task
  };

  struct Submit {
    uint64_t cookie = 0;  // cookie of block 0; the other blocks have the next numbers
    uint32_t type = PTO_CORE_AIC;
    std::vector<std::pair<int64_t, uint32_t>> producers = {};  // id and EdgeKind
    int32_t cluster = -1;
    uint32_t blocks = 0;
    uint32_t ring = 0;
    bool is_cohort = false;  // the blocks start at the same time
  };

  Feeder(const pto_platform* platform, const Shape& shape)
      : most_edges_(shape.edges),
        platform_(platform),
        context_(platform),
        clusters_(context_, rings_),
        scheduler_(context_, rings_, clusters_) {
    CHECK(scheduler_.create(shape.shards));
    for (uint32_t index = 0; index < kRings; ++index) allocate(rings_.ring[index], shape.window);
    rings_.log_size = kRings * shape.window;
    log_.resize(rings_.log_size);
    rings_.log = log_.data();
  }

  ~Feeder() { scheduler_.destroy(); }

  void begin() {
    written_ = 0;
    context_.latch.clear();
    for (TaskRing& ring : rings_.ring) {
      ring.next = 0;
      ring.scope_released.store(0);
    }
    rings_.submitted.store(0);
    rings_.waiting.store(0);
    rings_.signal.store(0);
    clusters_.begin(platform_->topology->blocks);
    scheduler_.begin();
  }

  // Return the id of the task, or -1 if the run ended while the submit waited for a slot.
  int64_t submit(const Submit& task) {
    if (!write(task)) return -1;
    publish();
    pto_yield(platform_, PTO_YIELD_SUBMIT);
    return last_;
  }

  // Submit a task without announcing it to the schedulers. Return false if the run ended while the
  // submit waited for a slot.
  bool write(const Submit& task) {
    TaskRing& ring = rings_.ring[task.ring];
    const uint32_t blocks = task.blocks > 0 ? task.blocks : 1;
    if (!wait_until([&] { return ring.next + blocks < alive(ring) + ring.window; })) return false;
    const int64_t number = ring.next;
    for (uint32_t block = 0; block < blocks; ++block) write_slot(task, number, block);
    write_edges(task, number);
    ring.next += blocks;
    rings_.log[written_ & (rings_.log_size - 1)] = slot_ref(task.ring, ring.slot(number));
    ++written_;
    last_ = TaskId{task.ring, number}.value();
    return true;
  }

  void publish() {
    rings_.submitted.store(written_, std::memory_order_seq_cst);
    scheduler_.published();
  }

  // Record that tasks of `ring` before `number` belong to ended scopes.
  void release(uint32_t ring, int64_t number) {
    rings_.ring[ring].scope_released.store(number, std::memory_order_seq_cst);
    scheduler_.published();
  }

  void done() {
    for (uint32_t ring = 0; ring < kRings; ++ring) release(ring, rings_.ring[ring].next);
    scheduler_.build_done();
  }

  // Wait for free space, as an orchestrator does. Return false if the platform's wait failed.
  template <class Look>
  bool wait_until(Look look) {
    while (!look()) {
      const uint32_t seen = rings_.signal.load(std::memory_order_seq_cst);
      rings_.waiting.store(1, std::memory_order_seq_cst);
      scheduler_.synchronise();
      if (look()) break;
      const auto* word = reinterpret_cast<const uint32_t*>(&rings_.signal);
      if (platform_->wait(platform_->self, word, seen) != PTO_OK) return false;
    }
    rings_.waiting.store(0, std::memory_order_relaxed);
    return true;
  }

  int64_t alive(uint32_t ring) const { return alive(rings_.ring[ring]); }
  uint32_t phase(int64_t id) const { return state(id).phase.load(); }
  const RingTaskState& state(int64_t id) const {
    return rings_.ring[TaskId::of(id).ring].state(TaskId::of(id).number);
  }
  LaneStatistics statistics() const {
    LaneStatistics all{};
    for (uint32_t thread = 0; thread < scheduler_.threads(); ++thread) {
      const auto* lane = reinterpret_cast<const uint64_t*>(&scheduler_.statistics(thread));
      auto* sums = reinterpret_cast<uint64_t*>(&all);
      for (size_t i = 0; i < sizeof all / sizeof *sums; ++i) sums[i] += lane[i];
    }
    return all;
  }

  Context& context() { return context_; }
  Rings& rings() { return rings_; }
  Clusters& clusters() { return clusters_; }
  Scheduler& scheduler() { return scheduler_; }

  // Return a runtime table for a platform that drives a runtime. Its `runtime` is a Feeder, and it
  // ignores options.
  static const pto_runtime_api& table(const Shape& shape);

 private:
  struct Memory {
    std::vector<TaskDescriptor> descriptors;
    std::unique_ptr<RingTaskState[]> states;
    std::vector<RingTask> records;
    std::vector<Edge> edges;
    std::vector<char> payloads;
  };

  static int64_t alive(const TaskRing& ring) {
    return ring.watermark.load(std::memory_order_seq_cst);
  }

  // Allocate the memory of a ring. Each slot has its own edges and payload.
  void allocate(TaskRing& ring, uint32_t window) {
    Memory& memory = memory_[&ring - rings_.ring];
    memory.descriptors.resize(window);
    memory.states.reset(new RingTaskState[window]());
    memory.records.resize(window);
    memory.edges.resize(window * most_edges_ + 1);
    memory.payloads.resize(window * kPayloadBytes);
    ring.window = window;
    ring.descriptors = memory.descriptors.data();
    ring.states = memory.states.get();
    ring.records = memory.records.data();
    ring.edges = memory.edges.data();
    ring.edge_capacity = static_cast<uint32_t>(memory.edges.size());
  }

  // Write a slot. The kernel's arguments are three times the cookie of block 0, and the number of
  // the block.
  void write_slot(const Submit& task, int64_t number, uint32_t block) {
    TaskRing& ring = rings_.ring[task.ring];
    char* bytes = &memory_[task.ring].payloads[ring.slot(number) * kPayloadBytes];
    auto* payload = reinterpret_cast<pto_payload*>(bytes);
    const int64_t id = TaskId{task.ring, number + block}.value();
    if (block == 0) {
      *payload = {1, static_cast<uint64_t>(id), task.cookie, static_cast<int32_t>(task.type), 2, 0};
      pto_payload_args(payload)[0] = 3 * task.cookie;
      pto_payload_args(payload)[1] = 0;
    }
    TaskDescriptor& descriptor = ring.descriptor(number + block);
    descriptor = {};
    descriptor.payload = payload;
    descriptor.id = id;
    descriptor.cluster = task.cluster;
    descriptor.group = -1;
    descriptor.block_dim = task.blocks;
    descriptor.block_id = block;
    descriptor.head = slot_ref(task.ring, ring.slot(number));
    descriptor.payload_length = sizeof(pto_payload) + 2 * sizeof(uint64_t);
    const bool is_cohort = task.is_cohort && task.blocks > 1;
    descriptor.traits = static_cast<uint8_t>(task.type | (is_cohort ? uint32_t{kIsCohort} : 0));
    descriptor.block_id_at = sizeof(pto_payload) + sizeof(uint64_t);
    ring.record(number + block).file = "feeder";
    ring.record(number + block).line = static_cast<int32_t>(task.cookie);
    if (task.cluster >= 0) clusters_.submitted(task.cluster);
  }

  // Write the edges to those producers that have not retired, as far as an orchestrator would know.
  void write_edges(const Submit& task, int64_t number) {
    TaskRing& ring = rings_.ring[task.ring];
    CHECK(task.producers.size() <= most_edges_);
    const uint32_t first = ring.slot(number) * most_edges_ + 1;
    uint32_t count = 0;
    for (const auto& [id, kind] : task.producers) {
      const TaskId producer = TaskId::of(id);
      const TaskRing& other = rings_.ring[producer.ring];
      if (producer.number < alive(other)) continue;
      ring.edges[first + count++] = {slot_ref(producer.ring, other.slot(producer.number)),
                                     slot_ref(task.ring, ring.slot(number)), kNoEdge, kind};
    }
    TaskDescriptor& descriptor = ring.descriptor(number);
    descriptor.first_edge = count > 0 ? task.ring << 30 | first : kNoEdge;
    descriptor.edge_count = count;
  }

  const uint32_t most_edges_;
  const pto_platform* platform_;
  Context context_;
  Rings rings_;
  Clusters clusters_;
  Scheduler scheduler_;
  Memory memory_[kRings];
  std::vector<SlotRef> log_;
  uint64_t written_ = 0;
  int64_t last_ = -1;
};

inline const pto_runtime_api& Feeder::table(const Shape& shape) {
  static Shape shape_of_next;
  shape_of_next = shape;
  static const pto_runtime_api table = [] {
    pto_runtime_api api{};
    api.abi_version = PTO_ABI_VERSION;
    api.struct_size = sizeof api;
    api.capabilities = PTO_RUNTIME_CONCURRENT_BUILD | PTO_RUNTIME_BLOCKING_SUBMIT;
    api.create = [](const pto_platform* platform, const pto_option*, uint32_t, void** runtime,
                    pto_error*) {
      *runtime = new Feeder(platform, shape_of_next);
      return pto_status{PTO_OK};
    };
    api.destroy = [](void* runtime) { delete static_cast<Feeder*>(runtime); };
    api.begin = [](void* runtime, const pto_run*) {
      static_cast<Feeder*>(runtime)->begin();
      return pto_status{PTO_OK};
    };
    api.orchestration_done = [](void* runtime, int32_t) { static_cast<Feeder*>(runtime)->done(); };
    api.schedule_step = [](void* runtime, uint32_t thread) {
      return static_cast<Feeder*>(runtime)->scheduler_.step(thread);
    };
    api.end = [](void*) {};
    api.last_error = [](void* runtime, pto_error* out) {
      const pto_error* error = static_cast<Feeder*>(runtime)->context_.latch.error();
      if (out != nullptr && error->status != PTO_OK) *out = *error;
      return error->status;
    };
    return api;
  }();
  return table;
}
