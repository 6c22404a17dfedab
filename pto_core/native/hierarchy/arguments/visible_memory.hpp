// Which memory of this process the children of one Worker have at the same addresses.
//
// Forked children inherit what is shared when the Worker starts; a child that replaces a lost one
// may have more, and is treated as the others. Spawned children have the mappings that they attach.
// A program may unmap its own shared memory and map other memory at its address: the first use of
// such memory in each run reads the map of the process again. Used with the GIL held.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "arguments/shared_ranges.hpp"

namespace pto::hierarchy {

class VisibleMemory {
 public:
  enum class Answer { kVisible, kPrivate, kUnmapped, kMappedLater, kNotAttached };

  // To be made before the first child. `attached`: by spawned children; none: children are forked.
  explicit VisibleMemory(const std::optional<std::vector<AddressSpan>>& attached);

  // Of `bytes` bytes from `address`; `bytes` is not 0.
  Answer of(uint64_t address, uint64_t bytes);

  void begin_run();

 private:
  bool is_same_as_at_start(uint64_t address, uint64_t end);

  const bool is_forked_;
  SharedRanges at_start_;
  uint64_t version_ = 0;     // of the map of the process, for the next two
  uint64_t last_begin_ = 0;  // the visible memory that was asked for last
  uint64_t last_end_ = 0;
  bool last_is_own_ = false;
  bool is_fresh_ = false;  // the map of the process was read in this run
};

}  // namespace pto::hierarchy
