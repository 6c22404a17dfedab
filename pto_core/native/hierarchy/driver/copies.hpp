// The memory whose content children on other hosts have, as far as the sent tasks show.
//
// The program can write the memory between two runs, and a host can evict it. So the answers only
// serve to choose between children. The parts do not overlap. One thread at a time may use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace pto::hierarchy {

struct ByteRange {
  uint64_t begin;
  uint64_t end;
};

class Copies {
 public:
  // The child reads the range, so it has the content from now on.
  void add(ByteRange range, int32_t child);
  // The child writes the range, so no other child has the content any more. kNone: a child of this
  // host writes it.
  void replace(ByteRange range, int32_t child);
  // The memory of the child is lost.
  void forget(int32_t child);
  // Add to `held[child]` the bytes of the range that the child has, for each child.
  void count(ByteRange range, std::span<uint64_t> held) const;

 private:
  struct Part {
    uint64_t end;
    std::vector<int32_t> children;
  };
  using Parts = std::map<uint64_t, Part>;

  // With more parts, all are dropped. Then tasks are placed as if no child had a copy.
  static constexpr size_t kMost = size_t{1} << 16;

  // Split the part that contains `at`; return the first part that begins at `at` or later.
  Parts::iterator split(uint64_t at);

  Parts parts_;  // by their first address
};

}  // namespace pto::hierarchy
