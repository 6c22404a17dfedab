// Planning mode: after a proven deadlock the orchestration goes on without kernels, as if each task
// completed at once and every ring were large enough, and the planner keeps what that took. From
// that, and from the history of the heap rings, it finds the smallest sizes that suffice.
//
// Rings that are full get larger records, so that the code of a submit stays the same; leave() puts
// the real ones back. In planning mode only the orchestrator may touch the rings (schedulers see
// the proof and return at once), and it writes no descriptor, no state, no edge and no log entry.
//
// Orchestrator only.
#pragma once

#include <cstdint>

#include "history.hpp"
#include "pto/engine/context.hpp"
#include "rings.hpp"
#include "sizing.hpp"

namespace pto::ring_buffer {

class Planner {
 public:
  static constexpr int64_t kMaxTasks = int64_t{1} << 22;  // planned; then it gives up
  static constexpr uint64_t kChunkBytes = uint64_t{1} << 30;
  static constexpr uint32_t kMaxChunks = 1024;
  static constexpr uint32_t kMaxClusters = 4096;  // ids

  explicit Planner(Context& context) : context_(context) {}

  bool is_planning() const { return is_planning_; }

  // The proof stands and everything is quiet.
  void enter(Rings& rings, const Sizes& sizes);

  // Before `count` tasks are given numbers: grows the ring's records where they are full, and
  // counts the tasks. False when the limit is reached: fail the submit quietly, the orchestration
  // ends with the lower bound that it has.
  bool make_room(uint32_t ring, uint32_t count);

  // The ring's scope_released has moved; so does its watermark, since every task counts as done.
  void released(uint32_t ring);

  // Memory for the outputs of one submit, zero and sparse; `bytes` a multiple of 1024. 0 when
  // exhausted, which counts as the limit.
  uint64_t reserve_outputs(uint64_t bytes);

  void needs_edges(uint32_t ring, uint64_t entries);  // of one task
  void needs_tensor_map(uint64_t entries);            // alive, of all rings

  // The smallest id that is neither held here nor real and allocated (the bits of `real`), so that
  // programs that count by it find what they expect; -1 at the limit.
  int32_t allocate_cluster(uint32_t depth, uint32_t real);
  bool is_allocated(int32_t cluster) const;
  void free_cluster(int32_t cluster);
  void end_scope(uint32_t depth);  // frees what scopes of `depth` and deeper allocated

  // The planning ended early for a reason of its own: an error in the orchestration, an abort.
  void cut_short() { is_lower_bound_ = true; }

  // At the end of the orchestration. The rings are the real ones again afterwards; the memory for
  // outputs stays until end(), since the orchestration may still look at it.
  Plan finish(const History& history);
  void end();

 private:
  struct Real {
    TaskRecord* records;
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
  uint32_t cluster_depths_[kMaxClusters];  // 1 + the depth of its scope; 0: free
};

}  // namespace pto::ring_buffer
