// Which memory of this process is a shared mapping, and of which file.
//
// Read from /proc/self/maps. The copy of the process is read again for an address that is in none
// of its ranges. Memory that was unmapped since, except by a SharedMapping, may still be in it.
// Used with the GIL held.
#pragma once

#include <cstdint>
#include <vector>

namespace pto::hierarchy {

enum class Sharing { kShared, kPrivate, kUnmapped };

// Begin and end of some addresses.
struct AddressSpan {
  uint64_t begin;
  uint64_t end;
};

class SharedRanges {
 public:
  // Of `bytes` bytes from `address`; the least of its pages.
  Sharing of(uint64_t address, uint64_t bytes);

  // The one of this process; a child of a fork starts with what its parent knew.
  static SharedRanges& of_process();

  // Memory that was shared has been unmapped.
  void forget();
  // How often forget() was called.
  uint64_t version() const { return version_; }

  // Of the memory at an address: whether a SharedMapping made it.
  bool is_own(uint64_t address) const;

  void read();
  // Drops what lies outside of `kept`.
  void keep_only(const std::vector<AddressSpan>& kept);

  // The addresses around `address` up to which this and `other` have the same shared memory; empty:
  // they differ at `address`. `is_own`: whether a SharedMapping made it.
  AddressSpan common(const SharedRanges& other, uint64_t address, bool* is_own) const;

 private:
  struct Range {
    uint64_t begin;
    uint64_t end;
    bool is_shared;
    bool is_own;      // of a SharedMapping
    uint64_t device;  // of the file; 0 for private memory, as are the next two
    uint64_t inode;
    uint64_t file_begin;  // the address at which byte 0 of the file would lie

    bool continues(const Range& other) const;
    bool is_same_memory(const Range& other) const;
  };

  const Range* range_at(uint64_t address) const;
  Sharing look_up(uint64_t address, uint64_t end) const;
  void add(const char* line);

  std::vector<Range> ranges_;  // in order; neighbours of one kind are one range
  uint64_t last_begin_ = 0;    // the shared range that was asked for last
  uint64_t last_end_ = 0;
  uint64_t version_ = 0;
};

}  // namespace pto::hierarchy
