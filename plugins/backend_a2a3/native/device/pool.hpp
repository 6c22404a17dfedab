// The device memory of runs and of the attached variant: one range that the host allocated.
//
// Blocks start at multiples of 1024 and are at least 1024 bytes apart, although the range starts at
// a multiple of 64 only. The list of blocks is in memory of the AICPU process, so no kernel can
// damage it. Blocks of the run are freed at its end. Any AICPU thread may call every method.
#pragma once

#include <atomic>
#include <cstdint>

#include "device/array.hpp"
#include "pto/abi/backend.h"

namespace pto::a2a3 {

enum class Owner : uint32_t { run, variant };

class Pool {
 public:
  static constexpr uint64_t kAlignment = 1024;

  void open(uint64_t address, uint64_t bytes);
  // Returns PTO_ERROR_MEMORY if no gap is large enough.
  pto_status allocate(uint64_t bytes, Owner owner, uint64_t* address);
  // Returns PTO_ERROR_ADDRESS if no block starts at `address`.
  pto_status free(uint64_t address);
  void free_all(Owner owner);
  // Returns whether a block contains `address`. The block ends with the bytes that were asked for.
  bool find(uint64_t address, uint64_t* begin, uint64_t* end);
  bool contains(uint64_t begin, uint64_t end) const { return begin >= begin_ && end <= end_; }

  uint64_t bytes() const { return end_ - begin_; }
  uint64_t used() const { return used_; }
  // The largest value of used() since the last call of restart_peak().
  uint64_t peak() const { return peak_; }
  void restart_peak() { peak_ = used_; }
  // The copies of the current run, made by one thread at a time; the other members are not used.
  pto_run_report& copies() { return copies_; }

 private:
  struct Block {
    uint64_t address;
    uint64_t bytes;  // a multiple of kAlignment
    uint64_t asked;
    Owner owner;
  };
  class Lock;

  // Returns the index of the first block that does not start before `address`.
  uint32_t find_first(uint64_t address) const;
  void remove(uint32_t index);

  std::atomic<bool> locked_{false};
  uint64_t begin_ = 0, end_ = 0;
  uint64_t used_ = 0, peak_ = 0;
  pto_run_report copies_{};
  Array<Block> blocks_;  // by address
};

}  // namespace pto::a2a3
