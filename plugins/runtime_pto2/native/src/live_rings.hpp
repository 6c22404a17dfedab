// The rings of the run, as a submit uses them. A submit waits while a ring is full, and writes its
// tasks for the schedulers. PlannedRings has the same functions for a plan.
//
// A function returns false if the run has failed or a deadlock has been proven. After a proven
// deadlock, the caller repeats the call on the planned rings; see current_rings.hpp.
//
// Called by the orchestrator only.
#pragma once

#include <cstdint>

#include "draft.hpp"
#include "edges.hpp"
#include "free_space.hpp"
#include "history.hpp"
#include "pto/engine/context.hpp"
#include "rings.hpp"
#include "run_state.hpp"
#include "space_wait.hpp"

namespace pto::ring_buffer {

// The dependency pools of the rings. A task gets entries for its edges when it is published.
//
// Called by the orchestrator only.
class EdgePool {
 public:
  EdgePool(RunState& run, SpaceWait& wait) : run_(run), wait_(wait) {}

  // Write the edges of the newest task to the pool, and store their position in its descriptor.
  // Edges to producers that have retired are removed from the list. Return false if the wait for
  // free entries has failed.
  bool place(const HeldTask& held, EdgeList& edges);

 private:
  uint32_t reserve(uint32_t ring, uint32_t count);
  [[gnu::cold]] bool wait_for_entries(const HeldTask& held, EdgeList& edges, uint32_t* first);
  [[gnu::cold]] bool wait_for_fewer(const HeldTask& held, EdgeList& edges, const Blocked& blocked);
  [[gnu::cold]] bool reject_too_many(const HeldTask& held, const EdgeList& edges);
  void write(const HeldTask& held, EdgeList& edges, uint32_t first);
  void announce(const EdgeList::Item& item, SlotRef consumer);

  RunState& run_;
  SpaceWait& wait_;
};

// The device memory of the heap rings.
//
// The memory of a ring is allocated when a task first needs it, and kept until destroy(). In
// checking mode, the address of an output is twice as far from the start of the ring as its offset,
// and a gap of the output's size follows it.
//
// Called by the orchestrator only.
class HeapMemory {
 public:
  HeapMemory(Context& context, Rings& rings, FreeSpace& space)
      : context_(context), rings_(rings), space_(space) {}

  void create() { gap_shift_ = context_.platform->checking != 0 ? 1 : 0; }
  void destroy();

  bool is_open(uint32_t ring) const { return bases_[ring] != 0; }
  // Allocates the memory of the ring. Returns PTO_ERROR_MEMORY, or another status of the platform,
  // if device memory is exhausted.
  pto_status open(uint32_t ring);

  uint64_t address(uint32_t ring, uint64_t position) const {
    return bases_[ring] + (position << gap_shift_);
  }
  // The address of an output with the offset `offset` is offset << gap_shift() bytes after the
  // start of the ring's memory.
  uint32_t gap_shift() const { return gap_shift_; }

  // Find the heap ring that contains the address. Return false if there is none.
  bool find_ring(uint64_t address, uint32_t* ring) const {
    return address - low_ < span_ && find_ring_of(address, ring);
  }
  // Return the live task whose outputs contain the address; kNoTask if there is none.
  int64_t owner_of(uint32_t ring, uint64_t address) const;
  bool is_output_of(const RingTask& task, uint64_t address) const {
    return address - task.heap_address < (task.heap_end - task.heap_begin) << gap_shift_;
  }

 private:
  bool find_ring_of(uint64_t address, uint32_t* ring) const;

  Context& context_;
  Rings& rings_;
  FreeSpace& space_;
  uint64_t bases_[kRings] = {};  // device addresses; 0: not allocated yet
  // The addresses of all heaps, with their gaps, are in [low_, low_ + span_).
  uint64_t low_ = 0;
  uint64_t span_ = 0;
  uint32_t gap_shift_ = 0;
};

class LiveRings {
 public:
  LiveRings(RunState& run, SpaceWait& wait, History& history)
      : run_(run),
        wait_(wait),
        history_(history),
        heaps_(run.context, run.rings, run.space),
        edges_(run, wait) {}

  HeapMemory& heaps() { return heaps_; }

  // Wait until enough slots for the task are free. The caller then takes them.
  bool reserve_slots(const Draft& draft) {
    return run_.space.has_slots(draft.ring, draft.count) || wait_for_slots(draft);
  }
  // Reserve draft.output_bytes in the heap, and set heap_address, heap_begin and gap_shift.
  bool reserve_outputs(Draft& draft);
  // In checking mode, report the memory of an output to the platform.
  bool lend_output(const Draft& draft, uint32_t parameter);
  // Wait until the tensor map has space for draft.entries more entries.
  bool reserve_entries(const Draft& draft) {
    return run_.space.map().has_space(draft.entries) || wait_for_entries(draft);
  }
  // Write the payload and the descriptors of the task.
  bool write(Draft& draft);
  // Write the edges of the newest task to the pool, and append the task to the stream.
  bool publish(const HeldTask& held, EdgeList& edges);

  // In checking mode: ask the platform whether the memory is valid. If it is not, `cause` receives
  // the reason.
  pto_status check_range(uint64_t address, uint64_t bytes, pto_error* cause) const {
    const pto_platform* platform = run_.context.platform;
    return platform->check_range(platform->self, address, bytes, cause);
  }
  bool is_output_of(const RingTask& task, uint64_t address) const {
    return heaps_.is_output_of(task, address);
  }

  bool allocate_cluster(uint32_t depth, CallSite at, int32_t* cluster);
  bool is_cluster_allocated(int32_t cluster) const { return run_.clusters.is_allocated(cluster); }
  void free_cluster(int32_t cluster) { run_.clusters.free(cluster); }
  // Called at the end of the scope of this depth. Frees its clusters.
  void end_scope(uint32_t depth) { run_.clusters.end_scope(depth); }
  // Called after scope_released of the ring has changed.
  void released(uint32_t) {}

 private:
  [[gnu::cold]] bool wait_for_slots(const Draft& draft);
  [[gnu::cold]] bool wait_for_entries(const Draft& draft);
  [[gnu::cold]] bool open_heap(const Draft& draft);
  [[gnu::cold]] bool reject_outputs(const Draft& draft);
  bool write_payload(Draft& draft);
  bool write_chip_payload(Draft& draft);
  pto_payload* take_payload(Draft& draft);
  static void write_header(const Draft& draft, uint32_t num_args, uint64_t relative);
  void write_descriptor(const Draft& draft, uint32_t block);
  [[gnu::cold]] void trace_submit(const Draft& draft);
  Blocked blocked_on(Resource what, const Draft& draft, uint64_t needed) const;

  RunState& run_;
  SpaceWait& wait_;
  History& history_;
  HeapMemory heaps_;
  EdgePool edges_;
};

}  // namespace pto::ring_buffer
