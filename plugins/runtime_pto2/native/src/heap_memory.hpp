// The device memory of the heap rings.
//
// The memory of a ring is allocated when a task first needs it, and kept until destroy(). In
// checking mode, the address of an output is twice as far from the start of the ring as its offset,
// and a gap of the output's size follows it.
//
// Called by the orchestrator only.
#pragma once

#include <cstdint>

#include "free_space.hpp"
#include "pto/engine/context.hpp"
#include "rings.hpp"

namespace pto::ring_buffer {

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
  bool is_output_of(const TaskRecord& task, uint64_t address) const {
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

}  // namespace pto::ring_buffer
