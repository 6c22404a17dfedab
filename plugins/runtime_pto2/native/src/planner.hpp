// Finds the requirements of an orchestration: the smallest sizes of rings and pools that suffice.
//
// After a proven deadlock, the orchestration continues without kernels, as if each task completed
// at once and every ring were large enough. The planner records the use of resources. From this
// record, and from the history of the heap rings, it computes the smallest sizes.
//
// A full ring gets larger task records; finish() restores the original records. Between enter() and
// finish(), only the orchestrator uses the rings, because schedulers see the proof and return at
// once.
//
// Called by the orchestrator only.
#pragma once

#include <cstdint>

#include "blocked.hpp"
#include "history.hpp"
#include "options.hpp"
#include "pto/engine/context.hpp"
#include "rings.hpp"

namespace pto::ring_buffer {

// The sizes of a run.
struct Sizes {
  Options options;
  uint64_t blocks = 0;  // number of clusters of the device
};

// The requirements of the run. A requirement that the sizes of the run already meet is ignored.
struct Needs {
  uint64_t tasks[kRings];  // maximum number of tasks alive at once
  uint64_t edges[kRings];  // maximum number of dependency entries for one task
  uint64_t tensor_map;     // maximum number of entries alive at once
  uint64_t clusters;       // maximum number of clusters held at once
};

// The smallest sizes that suffice, computed by pure functions, without platform and clock. If the
// four rings have a common size, they keep a common size. Sizes that were large enough do not
// change.
struct Plan {
  Sizes sizes;
  // Which sizes of the run are too small. For the tensor map and the clusters, only the entry of
  // ring 0 is used.
  bool is_short[kResources][kRings];
  // set if planning ended early, planned data was read, or the history is incomplete
  bool is_lower_bound;

  bool is_any_short(Resource resource) const {
    const bool* rings = is_short[static_cast<uint32_t>(resource)];
    return rings[0] || rings[1] || rings[2] || rings[3];
  }
};

Plan smallest_sizes(const Sizes& sizes, const Needs& needs, const History& history);

// Return whether a heap of `bytes` would have been sufficient for the reservations in `history`.
bool is_heap_enough(const History& history, uint32_t ring, uint64_t bytes);

class Planner {
 public:
  // the limit for planned tasks, after which planning ends
  static constexpr int64_t kMaxTasks = int64_t{1} << 22;
  static constexpr uint64_t kChunkBytes = uint64_t{1} << 30;
  static constexpr uint32_t kMaxChunks = 1024;
  static constexpr uint32_t kMaxClusters = 4096;  // number of ids

  explicit Planner(Context& context) : context_(context) {}

  bool is_planning() const { return is_planning_; }

  // Called when a deadlock has been proven and no other thread runs.
  void enter(Rings& rings, const Sizes& sizes);

  // Count the next `count` tasks of the ring before they get their numbers. If the ring is full,
  // enlarge its task records. Return false if the limit is reached; the plan is then a lower bound.
  bool reserve_slots(uint32_t ring, uint32_t count);

  // Called after scope_released of the ring has changed. Advances the watermark to it, because all
  // tasks count as completed.
  void released(uint32_t ring);

  // Return memory for the outputs of one submit: zeroes, whose pages are allocated on first access.
  // `bytes` is a multiple of 1024. Return 0 if memory is exhausted; the plan is then a lower bound.
  uint64_t reserve_outputs(uint64_t bytes);

  // record the number of entries that one task needs
  void needs_edges(uint32_t ring, uint64_t entries);
  void needs_tensor_map(uint64_t entries);  // record the number of live entries over all rings

  // Return the smallest cluster id that is allocated neither in the plan nor in the run (the bits
  // of `real`): programs may rely on small ids. Return -1 if the limit is reached.
  int32_t allocate_cluster(uint32_t depth, uint32_t real);
  bool is_allocated(int32_t cluster) const;
  void free_cluster(int32_t cluster);
  void end_scope(uint32_t depth);  // free the clusters of scopes of `depth` and deeper

  // Record that the plan is a lower bound, because the orchestration was ended early by an error or
  // an abort.
  void cut_short() { is_lower_bound_ = true; }

  // Called at the end of the orchestration. Restore the rings. The memory of outputs stays until
  // end(), because the orchestration may still read it.
  Plan finish(const History& history);
  void end();

 private:
  struct Real {
    RingTask* records;
    uint32_t window;
  };
  struct Chunk {
    void* memory;
    size_t bytes;
    size_t used;
  };

  bool grow(uint32_t ring, int64_t alive);
  void release_planned_records(uint32_t ring);
  bool add_chunk(size_t bytes);
  bool is_data_touched() const;
  void leave();

  Context& context_;
  Rings* rings_ = nullptr;
  bool is_planning_ = false;
  bool is_lower_bound_ = false;
  int64_t tasks_ = 0;
  Sizes sizes_{};
  Needs needs_{};
  Real real_[kRings] = {};
  Chunk chunks_[kMaxChunks] = {};
  uint32_t chunk_count_ = 0;
  uint32_t clusters_held_ = 0;
  // 1 + the depth of the cluster's scope; 0 if the cluster is free
  uint32_t cluster_depths_[kMaxClusters];
};

}  // namespace pto::ring_buffer
