#include "orchestrator.hpp"

namespace pto::ring_buffer {
namespace {

template <class Element>
bool reserve(Memory& memory, Element*& array, uint64_t count) {
  array = static_cast<Element*>(memory.reserve(count * sizeof(Element)));
  return array != nullptr;
}

template <class Element>
void release(Memory& memory, Element*& array, uint64_t count) {
  memory.release(array, count * sizeof(Element));
  array = nullptr;
}

uint64_t power_of_two_from(uint64_t value) {
  uint64_t power = 1;
  while (power < value) power <<= 1;
  return power;
}

}  // namespace

Shortage Orchestrator::create(const Options& options) {
  sizes_.options = options;
  heap_gaps_ = context_.platform->checking != 0 ? 1 : 0;
  Memory& memory = context_.memory;
  const Shortage of_rings = create_rings();
  if (of_rings.what != nullptr) return of_rings;
  if (!kernels_.create(memory)) return {"the table of kernels"};
  if (!edges_.create(memory, options.task_window)) return {"a task's edges", "pto2.task_window"};
  if (!payloads_.create(memory)) return {"the payloads of tasks"};
  if (!scopes_.create(memory)) return {"the scopes"};
  if (!history_.create(memory)) return {"the history of the heap rings"};
  if (!map_.create(memory, static_cast<uint32_t>(options.tensor_map_pool))) {
    return {"the tensor map", "pto2.tensor_map_pool"};
  }
  return {};
}

void Orchestrator::destroy() {
  map_.destroy();
  history_.destroy();
  scopes_.destroy();
  payloads_.destroy();
  edges_.destroy(context_.memory);
  kernels_.destroy();
  destroy_rings();
}

Shortage Orchestrator::create_rings() {
  Memory& memory = context_.memory;
  uint64_t slots = 0;
  for (uint32_t index = 0; index < kRings; ++index) {
    TaskRing& ring = rings_.ring[index];
    ring.window = static_cast<uint32_t>(sizes_.options.task_window[index]);
    ring.edge_capacity = static_cast<uint32_t>(sizes_.options.dep_pool[index]);
    slots += ring.window;
    if (!reserve(memory, ring.descriptors, ring.window) ||
        !reserve(memory, ring.states, ring.window) || !reserve(memory, ring.records, ring.window)) {
      return {"the task rings", "pto2.task_window"};
    }
    if (!reserve(memory, ring.edges, ring.edge_capacity)) {
      return {"the dependency pools", "pto2.dep_pool"};
    }
  }
  rings_.log_size = power_of_two_from(slots);
  if (!reserve(memory, rings_.log, rings_.log_size))
    return {"the stream of tasks", "pto2.task_window"};
  return {};
}

void Orchestrator::destroy_rings() {
  const pto_platform* platform = context_.platform;
  Memory& memory = context_.memory;
  for (uint32_t index = 0; index < kRings; ++index) {
    TaskRing& ring = rings_.ring[index];
    release(memory, ring.descriptors, ring.window);
    release(memory, ring.states, ring.window);
    release(memory, ring.records, ring.window);
    release(memory, ring.edges, ring.edge_capacity);
    if (sides_[index].heap_base != 0) platform->free(platform->self, sides_[index].heap_base);
    sides_[index].heap_base = 0;
  }
  release(memory, rings_.log, rings_.log_size);
}

void Orchestrator::begin(const pto_run& run) {
  sizes_.blocks = context_.platform->topology->blocks;
  is_full_ = run.hazards == PTO_HAZARDS_FULL;
  for (uint32_t ring = 0; ring < kRings; ++ring) begin_ring(ring);
  rings_.submitted.store(0, std::memory_order_relaxed);
  rings_.logged.store(0, std::memory_order_relaxed);
  rings_.waiting.store(0, std::memory_order_relaxed);
  kernels_.clear();
  payloads_.begin();
  edges_.clear();
  history_.begin();
  deadlock_.clear();
  map_.begin(rings_, is_full_);
  statistics_ = {};
  scopes_.restart();
  scopes_.begin(nullptr, 0);
  clusters_.begin(sizes_.blocks);
  is_closed_ = is_stopped_ = false;
  held_ = {};
  submits_to_sync_ = kSyncInterval;
  logged_ = published_ = 0;
  last_id_ = kNoTask;
  next_key_ = 0;
  blocked_ = {};
}

// Slots that a run left behind when it did not end well: reports look at phases alone.
void Orchestrator::forget_unfinished() {
  for (TaskRing& ring : rings_.ring) {
    const int64_t retired = ring.watermark.load(std::memory_order_relaxed);
    if (retired == ring.next && !deadlock_.is_proven()) continue;
    const int64_t used = ring.next < ring.window ? ring.next : ring.window;
    for (int64_t slot = 0; slot < used; ++slot) {
      ring.states[slot].phase.store(kFree, std::memory_order_relaxed);
    }
  }
}

void Orchestrator::begin_ring(uint32_t index) {
  rings_.ring[index].next = 0;
  rings_.ring[index].scope_released.store(0, std::memory_order_relaxed);
  Side& side = sides_[index];
  side.alive = side.edges_alive = 0;
  side.heap_tail = side.edges_tail = 0;
  side.heap.restart(sizes_.options.heap[index]);
  side.edges.restart(sizes_.options.dep_pool[index], 1);
}

pto_status Orchestrator::scope_begin(const char* file, int32_t line) {
  if (!goes_on()) return status();
  if (!scopes_.begin(file, line)) {
    return refuse({file, line}, {PTO_ERROR_MEMORY}, "no memory for a scope of depth ",
                  scopes_.open(), "; nest fewer scopes");
  }
  ++statistics_.ring[scopes_.innermost().ring].scopes;
  return PTO_OK;
}

pto_status Orchestrator::scope_end(Place at) {
  if (!goes_on()) return status();
  if (scopes_.open() == 1) {
    return refuse(at, {PTO_ERROR_USAGE},
                  "a scope is ended but none is open; each scope_end needs its scope_begin");
  }
  publish();
  end_innermost_scope();
  return status();
}

void Orchestrator::end_innermost_scope() {
  if (planner_.is_planning()) planner_.end_scope(scopes_.depth());
  clusters_.end_scope(scopes_.depth());
  const uint32_t index = scopes_.end();
  TaskRing& ring = rings_.ring[index];
  const int64_t released = scopes_.released(index, ring.next);
  if (released == ring.scope_released.load(std::memory_order_relaxed)) return;
  // Like `submitted` it meets the schedulers that rest; whoever waits calls published() afterwards.
  ring.scope_released.store(released, std::memory_order_seq_cst);
  history_.release(index);
  if (!planner_.is_planning()) return;
  planner_.released(index);
  sync_ring(index, CleanedBy::kBatch);
}

int32_t Orchestrator::allocate_cluster(const char* file, int32_t line) {
  if (!goes_on()) return Clusters::kNone;
  publish();
  const uint32_t depth = scopes_.depth();
  if (!planner_.is_planning()) {
    int32_t cluster = clusters_.allocate(depth);
    if (cluster != Clusters::kNone) return cluster;
    Blocked blocked;
    blocked.what = Resource::kCluster;
    blocked.ring = Scopes::ring_at(depth);
    blocked.depth = depth;
    blocked.needed = 1;
    blocked.file = file;
    blocked.line = line;
    if (wait_until(blocked, [this] { return clusters_.is_any_free(); })) {
      return clusters_.allocate(depth);
    }
    if (!planner_.is_planning()) return Clusters::kNone;
  }
  const int32_t planned = planner_.allocate_cluster(depth, clusters_.allocated());
  if (planned == Clusters::kNone) is_stopped_ = true;
  return planned;
}

pto_status Orchestrator::free_cluster(int32_t cluster, Place at) {
  if (!goes_on()) return status();
  if (clusters_.is_allocated(cluster)) {
    publish();
    clusters_.free(cluster);
    return PTO_OK;
  }
  if (planner_.is_planning() && planner_.is_allocated(cluster)) {
    planner_.free_cluster(cluster);
    return PTO_OK;
  }
  ErrorFacts facts{PTO_ERROR_USAGE};
  facts.value = static_cast<uint64_t>(static_cast<int64_t>(cluster));
  facts.limit = clusters_.blocks();
  return refuse(at, facts, "cluster ", cluster,
                " is freed, but it is not allocated; free each result of allocate_cluster once, "
                "before its scope ends");
}

void Orchestrator::fail(pto_status status, const char* what, const char* file, int32_t line) {
  if (!goes_on()) return;
  if (planner_.is_planning()) return stop_planning();
  context_.fail_at(file, line, {status}, what);
}

void Orchestrator::close(Place at) {
  if (!goes_on()) return;
  if (is_closed_) {
    return fail(PTO_ERROR_USAGE,
                "orchestration_done is called a second time; call it once, or not "
                "at all",
                at.file, at.line);
  }
  publish();
  is_closed_ = true;
}

void Orchestrator::done(bool is_whole) {
  if (goes_on()) publish();
  if (planner_.is_planning()) {
    // Whoever ended early, or was refused a call, might have needed more.
    if (!is_whole || context_.latch.is_set()) planner_.cut_short();
    deadlock_.complete(planner_.finish(history_));
  } else if (!context_.latch.is_set()) {
    while (scopes_.open() > 0) end_innermost_scope();
  }
  scheduler_.build_done();
}

void Orchestrator::end() {
  planner_.end();
}

}  // namespace pto::ring_buffer
