// The memory of one device: buffers with an owner, copies that are counted, and what checking mode
// verifies about both.
//
// Any thread may call any method.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>

#include "memory/arena.hpp"
#include "memory/red_zones.hpp"
#include "memory/slabs.hpp"
#include "pto/abi/arguments.h"
#include "pto/abi/backend.h"

namespace pto::sim {

// Whose a buffer is: the caller's until it frees it, the run's until the run ends, or a ring, the
// runtime's until it is detached. Rings are large and sparse: nothing here touches their content.
enum class Owner : uint32_t { caller, run, runtime };

struct CopyCounts {
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  uint64_t copies_in = 0;
  uint64_t copies_out = 0;
  uint64_t ns = 0;
};

class DeviceMemory {
 public:
  explicit DeviceMemory(bool check) noexcept : check_(check) {}

  pto_status open(size_t bytes, pto_error* error);

  pto_status allocate(size_t bytes, Owner owner, uint64_t* address, pto_error* error);
  pto_status free(uint64_t address, pto_error* error);
  pto_status copy_in(uint64_t address, const void* host, size_t bytes, pto_error* error);
  pto_status copy_out(void* host, uint64_t address, size_t bytes, pto_error* error);

  // Counts copies and the peak from here.
  void begin_run() noexcept;
  // Frees what the run allocated.
  void end_run();
  // Frees the rings of a runtime that is gone.
  void end_runtime();

  CopyCounts copies() const noexcept;
  // Of the run, without rings: what a ring holds is its runtime's to say.
  uint64_t peak_bytes() const;
  // Buffers of the caller.
  pto_leak_report leaks() const;

  // Checking mode only. See pto_platform.check_value for the first.
  pto_status check_value(uint64_t value, const pto_host_range* ranges, uint32_t count,
                         pto_error* error) const;
  // See pto_platform.check_range.
  pto_status check_range(uint64_t address, size_t bytes, const pto_host_range* ranges,
                         uint32_t count, pto_error* error) const;
  // See pto_platform.lend.
  pto_status lend(uint64_t address, size_t bytes, pto_error* error);
  // The zones of the buffer that `address` points into, if any.
  pto_status check_buffer(uint64_t address, pto_error* error) const;
  // Every live buffer's zones, and that freed ones were left alone.
  pto_status check_all(pto_error* error) const;

  bool checking() const noexcept { return check_; }

 private:
  struct List {
    Block* head = nullptr;
  };
  // Marks a quarantined block, in place of its owner.
  static constexpr uint32_t kQuarantined = 3;
  static bool is_ring(const Block& block) noexcept {
    return block.owner == static_cast<uint32_t>(Owner::runtime);
  }

  pto_status exhausted(size_t bytes, pto_error* error) const;
  pto_status copy_range(uint64_t address, size_t bytes, const char* direction,
                        pto_error* error) const;
  Block* take_block(size_t bytes, Owner owner);
  Block* live_block(uint64_t address) const noexcept;
  bool live_buffer(uint64_t address, Extent& found) const noexcept;
  Extent extent(const Block& block) const noexcept;
  pto_status not_a_buffer(uint64_t address, pto_error* error) const;
  pto_status damaged(const Extent& extent, const Damage& damage, bool was_freed,
                     pto_error* error) const;
  pto_status check_block(const Block& block, pto_error* error) const;
  pto_status check_slab(const Extent& slab, pto_error* error) const;
  pto_status check_all_locked(pto_error* error) const;
  void link(Block* block) noexcept;
  void unlink(Block* block) noexcept;
  pto_status drop(Block* block, pto_error* error);
  pto_status quarantine(Block* block, pto_error* error);
  pto_status shrink_quarantine(size_t bytes, pto_error* error);
  void give_back(Block* block) noexcept;

  const bool check_;
  mutable std::mutex mutex_;
  // All below are guarded by mutex_, except the counters of copies.
  Arena arena_;             // in checking mode larger than limit_bytes_: zones and gaps are free
  size_t limit_bytes_ = 0;  // of the device
  List lists_[3];           // live buffers by owner
  Slabs slabs_;             // lent in this run, in checking mode
  size_t used_bytes_ = 0;   // rings included
  size_t ring_bytes_ = 0;
  size_t peak_bytes_ = 0;
  size_t untrimmed_bytes_ = 0;     // freed since the last trim, in blocks that kept their pages
  std::deque<Block*> quarantine_;  // freed in checking mode, oldest first, not reused yet
  size_t quarantine_bytes_ = 0;

  std::atomic<uint64_t> bytes_in_{0};
  std::atomic<uint64_t> bytes_out_{0};
  std::atomic<uint64_t> copies_in_{0};
  std::atomic<uint64_t> copies_out_{0};
  std::atomic<uint64_t> copy_ns_{0};
};

}  // namespace pto::sim
