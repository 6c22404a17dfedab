// The clusters of cores that an orchestration allocates and frees.
//
// Each cluster has a count of holds: one hold for its allocation, and one for each uncompleted task
// on it. The thread that drops the last hold makes the cluster free, so free() never waits.
//
// Only the orchestrator calls these methods, except completed().
#pragma once

#include <atomic>
#include <cstdint>

#include "pto/abi/topology.h"
#include "pto/engine/context.hpp"
#include "rings.hpp"

namespace pto::ring_buffer {

class Clusters {
 public:
  static constexpr int32_t kNone = -1;

  Clusters(Context& context, Rings& rings) : context_(context), rings_(rings) {}

  void begin(uint32_t blocks);

  // Allocate the lowest free cluster for a scope of `depth`, and return it; kNone if none is free.
  int32_t allocate(uint32_t depth);
  bool is_any_free() const { return free_.load(std::memory_order_acquire) != 0; }

  // Drop the allocation's hold. No task can be submitted to the cluster afterwards.
  void free(int32_t cluster);
  // Free the clusters that scopes of `depth` and deeper have allocated.
  void end_scope(uint32_t depth) {
    if (allocated_ != 0) free_from(depth);
  }

  bool is_allocated(int32_t cluster) const {
    return cluster >= 0 && cluster < PTO_MAX_BLOCKS && (allocated_ >> cluster & 1) != 0;
  }
  // Return the number of the cluster's current allocation. With it, the tasks of one allocation can
  // be distinguished from those of the next.
  int32_t group(int32_t cluster) const { return slots_[cluster].group; }
  uint32_t depth(int32_t cluster) const { return slots_[cluster].depth; }

  // Count one more task on an allocated cluster. Called before the task is published.
  void submitted(int32_t cluster) { slots_[cluster].holds.fetch_add(1, std::memory_order_relaxed); }

  // Called by a scheduler when a task of the cluster has completed.
  void completed(int32_t cluster) {
    if (slots_[cluster].holds.fetch_sub(1, std::memory_order_acq_rel) == 1) put_back(cluster);
  }

  // Return the depth of the outermost scope that holds a cluster; 0 if no scope does.
  uint32_t outermost_depth() const;

  uint32_t blocks() const { return blocks_; }
  uint64_t allocations() const { return static_cast<uint64_t>(next_group_); }
  // Return the number of clusters that are not free: they are allocated, or have uncompleted tasks.
  uint32_t taken() const;
  uint32_t allocated() const { return allocated_; }  // a bit for each cluster
  uint32_t peak() const { return peak_; }

 private:
  struct alignas(64) Slot {
    std::atomic<uint32_t> holds;
    uint32_t depth;
    int32_t group;
  };

  void free_from(uint32_t depth);
  void put_back(int32_t cluster);

  Context& context_;
  Rings& rings_;
  uint32_t blocks_ = 0;
  uint32_t allocated_ = 0;  // bit i is set if cluster i is allocated
  uint32_t peak_ = 0;
  int32_t next_group_ = 0;
  alignas(64) std::atomic<uint32_t> free_{0};
  Slot slots_[PTO_MAX_BLOCKS];
};

}  // namespace pto::ring_buffer
