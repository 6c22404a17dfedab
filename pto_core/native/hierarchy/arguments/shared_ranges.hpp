// Which memory of this process is a shared mapping: what a parent and its children both see.
//
// A cache of /proc/self/maps, read again when an address is in none of what it holds. What others
// than SharedMapping have unmapped meanwhile may still be in it. Used with the GIL held.
#pragma once

#include <cstdint>
#include <vector>

namespace pto::hierarchy {

enum class Sharing { kShared, kPrivate, kUnmapped };

class SharedRanges {
 public:
  // Of `bytes` bytes from `address`; the least of its pages.
  Sharing of(uint64_t address, uint64_t bytes);

  // The one of this process; a child of a fork starts with what its parent knew.
  static SharedRanges& of_process();

  // Something that was shared is mapped no more.
  void forget();

 private:
  struct Range {
    uint64_t begin;
    uint64_t end;
    bool is_shared;
  };

  const Range* range_at(uint64_t address) const;
  void read();
  Sharing look_up(uint64_t address, uint64_t end) const;

  std::vector<Range> ranges_;  // in order; neighbours of one kind are one range
  uint64_t last_begin_ = 0;    // the shared range that was asked for last
  uint64_t last_end_ = 0;
};

}  // namespace pto::hierarchy
