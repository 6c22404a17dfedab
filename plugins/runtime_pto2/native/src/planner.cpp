#include "planner.hpp"

#include <cstring>

#include "pto/engine/heap_ring.hpp"

namespace pto::ring_buffer {
namespace {

constexpr uint64_t kSlab = History::kSlabBytes;
// The search tries every heap size until it has processed this many events. After that, it uses
// bisection.
constexpr uint64_t kLinearEvents = uint64_t{1} << 24;

// Searches for the smallest heap size with which every ring in `mask` suffices.
class HeapSearch {
 public:
  HeapSearch(const History& history, uint32_t mask) : history_(history), mask_(mask) {}

  // Return a size that suffices, while the next smaller size does not. It is the smallest
  // sufficient size, unless the history is so long that not every size was tried.
  uint64_t smallest() {
    uint64_t most = 0;
    uint64_t largest = 0;
    uint64_t events = 1;
    for (uint32_t ring = 0; ring < kRings; ++ring) {
      if (!has(ring)) continue;
      most = history_.most_bytes(ring) > most ? history_.most_bytes(ring) : most;
      events += history_.count(ring);
      for (uint32_t index = 0; index < history_.count(ring); ++index) {
        const uint64_t bytes = history_.events(ring)[index] * kSlab;
        largest = bytes > largest ? bytes : largest;
      }
    }
    uint64_t size = most > kSlab ? most : kSlab;
    for (uint64_t seen = 0; seen < kLinearEvents; seen += events, size += kSlab) {
      if (is_enough(size)) return size;
    }
    return between(size - kSlab, size + largest);
  }

  bool is_enough(uint64_t size) const {
    for (uint32_t ring = 0; ring < kRings; ++ring) {
      if (has(ring) && !is_heap_enough(history_, ring, size)) return false;
    }
    return true;
  }

 private:
  bool has(uint32_t ring) const { return (mask_ >> ring & 1) != 0; }

  // Search between two sizes. `small` does not suffice. `large` does: between two releases, a ring
  // skips less than its largest reservation and holds the sum of all others.
  uint64_t between(uint64_t small, uint64_t large) const {
    while (large - small > kSlab) {
      const uint64_t middle = small + (large - small) / kSlab / 2 * kSlab;
      if (is_enough(middle)) {
        large = middle;
      } else {
        small = middle;
      }
    }
    return large;
  }

  const History& history_;
  uint32_t mask_;
};

uint64_t power_of_two(uint64_t atleast) {
  uint64_t value = Options::kMinWindow;
  while (value < atleast) value *= 2;
  return value;
}

bool is_shared(const uint64_t (&sizes)[kRings]) {
  return sizes[0] == sizes[1] && sizes[0] == sizes[2] && sizes[0] == sizes[3];
}

// Raise each size to the smallest sufficient size. If all rings have the same size, they keep a
// common size.
void raise(uint64_t (&sizes)[kRings], const uint64_t (&smallest)[kRings],
           bool (&is_short)[kRings]) {
  const bool shared = is_shared(sizes);
  uint64_t most = 0;
  for (uint32_t ring = 0; ring < kRings; ++ring) {
    is_short[ring] = smallest[ring] > sizes[ring];
    if (is_short[ring]) sizes[ring] = smallest[ring];
    most = sizes[ring] > most ? sizes[ring] : most;
  }
  if (!shared) return;
  for (uint64_t& size : sizes) size = most;
}

void size_heaps(Plan& plan, const History& history) {
  uint64_t (&heap)[kRings] = plan.sizes.options.heap;
  bool (&is_short)[kRings] = plan.is_short[static_cast<uint32_t>(Resource::kHeap)];
  const bool shared = is_shared(heap);
  for (uint32_t ring = 0; ring < kRings; ++ring) {
    is_short[ring] = !is_heap_enough(history, ring, heap[ring]);
    if (is_short[ring] && !history.is_complete(ring)) plan.is_lower_bound = true;
    if (is_short[ring] && !shared) heap[ring] = HeapSearch(history, 1u << ring).smallest();
  }
  if (!shared || !plan.is_any_short(Resource::kHeap)) return;
  const uint64_t smallest = HeapSearch(history, (1u << kRings) - 1).smallest();
  for (uint64_t& size : heap) size = smallest;
}

}  // namespace

bool is_heap_enough(const History& history, uint32_t ring, uint64_t bytes) {
  if (history.most_bytes(ring) > bytes) return false;
  const uint32_t* events = history.events(ring);
  const uint32_t count = history.count(ring);
  engine::HeapRing heap(bytes / kSlab);
  uint64_t tail = 0;
  for (uint32_t index = 0; index < count; ++index) {
    if (events[index] == History::kReleased) {
      tail = heap.head();
    } else if (!heap.try_reserve(events[index], tail).fits) {
      return false;
    }
  }
  return true;
}

Plan smallest_sizes(const Sizes& sizes, const Needs& needs, const History& history) {
  Plan plan{};
  plan.sizes = sizes;
  Options& options = plan.sizes.options;
  uint64_t window[kRings];
  uint64_t edges[kRings];
  for (uint32_t ring = 0; ring < kRings; ++ring) {
    window[ring] = power_of_two(needs.tasks[ring] + 1);
    edges[ring] = needs.edges[ring] + 1;
  }
  raise(options.task_window, window, plan.is_short[static_cast<uint32_t>(Resource::kWindow)]);
  raise(options.dep_pool, edges, plan.is_short[static_cast<uint32_t>(Resource::kEdges)]);
  size_heaps(plan, history);
  if (needs.tensor_map > options.tensor_map_pool) {
    options.tensor_map_pool = needs.tensor_map;
    plan.is_short[static_cast<uint32_t>(Resource::kTensorMap)][0] = true;
  }
  if (needs.clusters > sizes.blocks) {
    plan.sizes.blocks = needs.clusters;
    plan.is_short[static_cast<uint32_t>(Resource::kCluster)][0] = true;
  }
  return plan;
}

namespace {

void keep_most(uint64_t& most, uint64_t value) {
  if (value > most) most = value;
}

}  // namespace

void Planner::enter(Rings& rings, const Sizes& sizes) {
  rings_ = &rings;
  sizes_ = sizes;
  needs_ = {};
  tasks_ = 0;
  is_lower_bound_ = false;
  clusters_held_ = 0;
  std::memset(cluster_depths_, 0, sizeof cluster_depths_);
  for (uint32_t index = 0; index < kRings; ++index) {
    real_[index] = {rings.ring[index].records, rings.ring[index].window};
    released(index);
  }
  is_planning_ = true;
}

bool Planner::reserve_slots(uint32_t index, uint32_t count) {
  TaskRing& ring = rings_->ring[index];
  tasks_ += count;
  if (tasks_ > kMaxTasks) {
    cut_short();
    return false;
  }
  const int64_t alive = ring.next - ring.watermark.load(std::memory_order_relaxed) + count;
  if (alive >= static_cast<int64_t>(ring.window) && !grow(index, alive)) {
    cut_short();
    return false;
  }
  keep_most(needs_.tasks[index], static_cast<uint64_t>(alive));
  return true;
}

bool Planner::grow(uint32_t index, int64_t alive) {
  TaskRing& ring = rings_->ring[index];
  TaskRing larger_window;
  larger_window.window = ring.window;
  while (alive >= static_cast<int64_t>(larger_window.window)) larger_window.window *= 2;
  const size_t bytes = larger_window.window * sizeof(RingTask);
  larger_window.records = static_cast<RingTask*>(context_.memory.reserve(bytes));
  if (larger_window.records == nullptr) return false;
  for (int64_t task = ring.watermark.load(std::memory_order_relaxed); task < ring.next; ++task) {
    larger_window.record(task) = ring.record(task);
  }
  release_planned_records(index);
  ring.records = larger_window.records;
  ring.window = larger_window.window;
  return true;
}

void Planner::release_planned_records(uint32_t index) {
  TaskRing& ring = rings_->ring[index];
  if (ring.records == real_[index].records) return;
  context_.memory.release(ring.records, ring.window * sizeof(RingTask));
}

void Planner::released(uint32_t index) {
  TaskRing& ring = rings_->ring[index];
  const int64_t released = ring.scope_released.load(std::memory_order_relaxed);
  ring.watermark.store(released, std::memory_order_release);
}

uint64_t Planner::reserve_outputs(uint64_t bytes) {
  const Chunk* last = chunk_count_ == 0 ? nullptr : &chunks_[chunk_count_ - 1];
  if (last == nullptr || last->bytes - last->used < bytes) {
    if (!add_chunk(bytes > kChunkBytes ? bytes : kChunkBytes)) {
      cut_short();
      return 0;
    }
  }
  Chunk& chunk = chunks_[chunk_count_ - 1];
  const uint64_t address = reinterpret_cast<uint64_t>(chunk.memory) + chunk.used;
  chunk.used += bytes;
  return address;
}

bool Planner::add_chunk(size_t bytes) {
  if (chunk_count_ == kMaxChunks) return false;
  void* memory = context_.memory.reserve(bytes);
  if (memory == nullptr) return false;
  chunks_[chunk_count_++] = {memory, bytes, 0};
  return true;
}

void Planner::needs_edges(uint32_t ring, uint64_t entries) {
  keep_most(needs_.edges[ring], entries);
}

void Planner::needs_tensor_map(uint64_t entries) {
  keep_most(needs_.tensor_map, entries);
}

int32_t Planner::allocate_cluster(uint32_t depth, uint32_t real) {
  for (uint32_t index = 0; index < kMaxClusters; ++index) {
    const bool is_real = index < PTO_MAX_BLOCKS && (real >> index & 1) != 0;
    if (is_real || cluster_depths_[index] != 0) continue;
    cluster_depths_[index] = depth + 1;
    const uint32_t held = static_cast<uint32_t>(__builtin_popcount(real));
    keep_most(needs_.clusters, held + ++clusters_held_);
    return static_cast<int32_t>(index);
  }
  cut_short();
  return -1;
}

bool Planner::is_allocated(int32_t cluster) const {
  if (cluster < 0 || cluster >= static_cast<int32_t>(kMaxClusters)) return false;
  return cluster_depths_[cluster] != 0;
}

void Planner::free_cluster(int32_t cluster) {
  cluster_depths_[cluster] = 0;
  --clusters_held_;
}

void Planner::end_scope(uint32_t depth) {
  for (uint32_t index = 0; clusters_held_ > 0 && index < kMaxClusters; ++index) {
    if (cluster_depths_[index] <= depth) continue;
    free_cluster(static_cast<int32_t>(index));
  }
}

Plan Planner::finish(const History& history) {
  leave();
  Plan plan = smallest_sizes(sizes_, needs_, history);
  if (is_lower_bound_ || is_data_touched()) plan.is_lower_bound = true;
  return plan;
}

void Planner::leave() {
  is_planning_ = false;
  for (uint32_t index = 0; index < kRings; ++index) {
    release_planned_records(index);
    rings_->ring[index].records = real_[index].records;
    rings_->ring[index].window = real_[index].window;
  }
}

// Return whether the orchestration has read planned outputs. It then received zeroes instead of the
// results of kernels, so the plan is a lower bound.
bool Planner::is_data_touched() const {
  const pto_platform* platform = context_.platform;
  for (uint32_t index = 0; index < chunk_count_; ++index) {
    const Chunk& chunk = chunks_[index];
    if (platform->touched(platform->self, chunk.memory, chunk.used) > 0) return true;
  }
  return false;
}

void Planner::end() {
  if (is_planning_) leave();
  while (chunk_count_ > 0) {
    const Chunk& chunk = chunks_[--chunk_count_];
    context_.memory.release(chunk.memory, chunk.bytes);
  }
}

}  // namespace pto::ring_buffer
