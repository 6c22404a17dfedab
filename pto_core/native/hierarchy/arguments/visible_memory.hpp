// The memory of this process that the children of one Worker have at the same addresses.
//
// Forked children inherit the memory that is shared when the Worker starts. A restarted child may
// inherit more, but is treated like the others. Spawned children have only the mappings that they
// attach. A program may unmap its own shared memory and map other memory at the same address. So
// the first use of such memory in each run reads the memory map of the process again. Use with the
// GIL held.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "arguments/shared_ranges.hpp"

namespace pto::hierarchy {

class VisibleMemory {
 public:
  enum class Answer { kVisible, kPrivate, kUnmapped, kMappedLater, kNotAttached };

  // Create the object before the first child starts. `attached`: the mappings that spawned children
  // attach; none if children are forked.
  explicit VisibleMemory(const std::optional<std::vector<AddressSpan>>& attached);

  // Return whether children see `bytes` bytes from `address` on; `bytes` is not 0.
  Answer of(uint64_t address, uint64_t bytes);

  void begin_run();

 private:
  bool is_same_as_at_start(uint64_t address, uint64_t end);

  const bool is_forked_;
  SharedRanges at_start_;
  // version of the process's memory map at which the next two members were set
  uint64_t version_ = 0;
  uint64_t last_begin_ = 0;  // the visible memory of the last query
  uint64_t last_end_ = 0;
  bool last_is_own_ = false;
  bool is_fresh_ = false;  // whether the process's memory map was read in this run
};

}  // namespace pto::hierarchy
