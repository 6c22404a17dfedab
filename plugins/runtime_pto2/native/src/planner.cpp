#include "planner.hpp"

#include <cstring>

namespace pto::ring_buffer {
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
  const size_t bytes = larger_window.window * sizeof(TaskRecord);
  larger_window.records = static_cast<TaskRecord*>(context_.memory.reserve(bytes));
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
  context_.memory.release(ring.records, ring.window * sizeof(TaskRecord));
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
