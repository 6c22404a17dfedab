// Submits: checks, dependencies and allocations.
//
// All steps that can be refused, block, or run out of memory come before the first change of state.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/core.hpp"
#include "engine/endings.hpp"

namespace pto::worker {

class SubmissionPart {
 public:
  SubmissionPart(EngineState& core, Endings& endings) : core_(core), endings_(endings) {}

  // Accept a task. If the ring of the scope has no free space, change nothing.
  Submitted submit(const Submission& submission);
  // Accept a buffer, as a task that has completed. If the ring of the scope has no free space,
  // change nothing.
  Submitted allocate(uint64_t bytes, uint64_t* address, uint32_t run);
  // Return the edges and owners of the last submit, as task numbers, for a capture.
  void report_found(std::vector<std::pair<int64_t, uint8_t>>* producers,
                    std::vector<int64_t>* owners) const;

 private:
  struct Producer {
    Found found;
    uint8_t why;
  };

  // Fill `accesses_`, `producers_` and `owners_`.
  void find(const Submission& submission);
  void find_overlaps(Access& access, uint8_t why);
  // Use the captured edges instead of a search. Throws kUsage for an edge to a task that is not an
  // earlier task of the run.
  void take_known(const Known& known);
  // Add the edges that the program requests. Throws kUsage for a number that is not an earlier task
  // of the run.
  void find_explicit(std::span<const int64_t> producers);
  Producer producer_of(int64_t number, uint8_t why);
  // Return the slot of the task that owns the region's slab. Throws kUsage for ring memory that no
  // live task owns.
  uint32_t owner_of(const engine::Region& region);
  void merge_producers();
  void merge_owners();
  // Return the number of bytes that the submit allocates.
  static uint64_t bytes_of(const Submission& submission);
  // Assign addresses from the slab at `address`.
  void place(uint32_t index, const Submission& submission, uint64_t address);
  // Return a unique address for a tensor of size 0, which has no memory.
  uint64_t next_key();
  Submitted blocked(uint64_t bytes);
  // Reserve all memory that the tables need for this submit, so that later steps cannot fail.
  void reserve();
  uint32_t take(uint64_t bytes, bool is_kept);
  void describe(uint32_t index, const Submission& submission);
  void link(uint32_t index, const Found& producer, uint8_t why);
  void wait_for(uint32_t index, uint32_t producer, uint8_t why);
  void hold(uint32_t edge);
  uint32_t make_edge(uint32_t consumer, uint32_t producer, uint8_t why);
  void enter_regions(uint32_t index);
  // The heap ring of the innermost scope of the run.
  Heap& ring() { return core_.rings[core_.runs[run_].ring()]; }

  EngineState& core_;
  Endings& endings_;
  // The data of the current submit; the object is kept so that its memory is reused.
  uint32_t run_ = 0;
  Accesses accesses_;
  std::vector<Producer> producers_;
  std::vector<uint32_t> owners_;
};

// Throw kUsage if the task is malformed, or if no child can run it.
void check_submission(const EngineState& core, const Submission& submission);
// Build the region of a tensor that has an address. Throws kUsage if the position or size of its
// box differs from that of the tensor.
void locate(engine::Region& region, const TensorAccess& tensor);

}  // namespace pto::worker
