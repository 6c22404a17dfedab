// Submits: what is checked, what a task waits for, and what it takes.
//
// Everything that can be refused, blocked or fail for lack of memory comes before the first change.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/core.hpp"
#include "engine/endings.hpp"

namespace pto::hierarchy {

class SubmissionPart {
 public:
  SubmissionPart(Core& core, Endings& endings) : core_(core), endings_(endings) {}

  // Takes a task, unless its ring has no room.
  Submitted submit(const Submission& submission);
  // Takes a buffer, unless its ring has no room: a task that has already completed.
  Submitted allocate(uint64_t bytes, uint64_t* address);
  // The edges and owners of the last submit, as numbers of tasks, for whoever captures it.
  void tell_found(std::vector<std::pair<int64_t, uint8_t>>* producers,
                  std::vector<int64_t>* owners) const;

 private:
  struct Producer {
    Found found;
    uint8_t why;
  };

  // Fills `accesses_`, `producers_` and `owners_`.
  void find(const Submission& submission);
  void find_overlaps(Access& access, uint8_t why);
  // The same without looking at tensors; throws kUsage for what is no earlier task of the run.
  void take_known(const Known& known);
  // Adds the edges that the program asks for; throws kUsage for what is no earlier task of the run.
  void find_explicit(std::span<const int64_t> producers);
  Producer producer_of(int64_t number, uint8_t why);
  // The slot whose slab the region lies in; throws kUsage for memory of a ring that is nobody's.
  uint32_t owner_of(const engine::Region& region);
  void merge_producers();
  void merge_owners();
  // Of what is to be allocated.
  static uint64_t bytes_of(const Submission& submission);
  // Addresses for what is to be allocated, from a slab at `address`.
  void place(uint32_t index, const Submission& submission, uint64_t address);
  // An address for the next key that has none.
  uint64_t next_key();
  Submitted blocked(uint64_t bytes);
  // Room for everything that a submit takes but its slab.
  void reserve();
  uint32_t take(uint64_t bytes);
  void describe(uint32_t index, const Submission& submission);
  void link(uint32_t index, const Found& producer, uint8_t why);
  void wait_for(uint32_t index, uint32_t producer, uint8_t why);
  void hold(uint32_t edge);
  uint32_t make_edge(uint32_t consumer, uint32_t producer, uint8_t why);
  void enter_regions(uint32_t index);

  Core& core_;
  Endings& endings_;
  // Of the submit in hand; kept for their memory.
  Accesses accesses_;
  std::vector<Producer> producers_;
  std::vector<uint32_t> owners_;
};

// Throws kUsage for a task that no child could ever run, or that is not well formed.
void check_submission(const Core& core, const Submission& submission);
// Makes a new region that of a tensor with an address; throws kUsage where its box lies elsewhere.
void locate(engine::Region& region, const Tensor& tensor);

constexpr bool is_allocated(const Tensor& tensor) {
  return tensor.tag == Tag::kOutput && tensor.address == 0;
}

}  // namespace pto::hierarchy
