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

namespace pto::worker {

enum class Sharing { kShared, kPrivate, kUnmapped };

// A range of addresses.
struct AddressSpan {
  uint64_t begin;
  uint64_t end;
};

// The shared mappings of this process, and their files.
//
// The ranges come from /proc/self/maps, which is read again for an address outside of all known
// ranges. The list may contain a range that the program has unmapped since. A SharedMapping reports
// its own unmapping with forget(). Use with the GIL held.
class SharedRanges {
 public:
  // Return the kind of the memory [address, address + bytes). If its pages differ, return the most
  // restricted kind.
  Sharing of(uint64_t address, uint64_t bytes);

  // Return the instance of this process. A forked child starts with a copy of its parent's data.
  static SharedRanges& of_process();

  // Record that shared memory was unmapped.
  void forget();
  // Return the number of calls of forget().
  uint64_t version() const { return version_; }

  // Return whether a SharedMapping created the memory at an address.
  bool is_own(uint64_t address) const;

  void read();
  // Drop all ranges outside `kept`.
  void keep_only(const std::vector<AddressSpan>& kept);

  // Return the range around `address` in which this object and `other` have the same shared memory.
  // The range is empty if they differ at `address`. `is_own`: whether a SharedMapping created the
  // memory.
  AddressSpan common(const SharedRanges& other, uint64_t address, bool* is_own) const;

 private:
  struct Range {
    uint64_t begin;
    uint64_t end;
    bool is_shared;
    bool is_own;      // whether a SharedMapping created the memory
    uint64_t device;  // device of the file; for private memory, this member and the next two are 0
    uint64_t inode;
    uint64_t file_begin;  // the address at which byte 0 of the file would be

    bool continues(const Range& other) const;
    bool is_same_memory(const Range& other) const;
  };

  const Range* range_at(uint64_t address) const;
  Sharing look_up(uint64_t address, uint64_t end) const;
  void add(const char* line);

  std::vector<Range> ranges_;  // in order; neighbours of one kind are merged
  uint64_t last_begin_ = 0;    // the shared range of the last query
  uint64_t last_end_ = 0;
  uint64_t version_ = 0;
};

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

}  // namespace pto::worker
