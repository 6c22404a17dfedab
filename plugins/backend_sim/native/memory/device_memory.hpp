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
#include "pto/abi/arguments.h"
#include "pto/abi/backend.h"

namespace pto::sim {

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

  CopyCounts copies() const noexcept;
  uint64_t peak_bytes() const;
  pto_leak_report leaks() const;

  // Checking mode only. See pto_platform.check_value for the first.
  pto_status check_value(uint64_t value, const pto_host_range* ranges, uint32_t count,
                         pto_error* error) const;
  // The zones of the buffer that `address` points into, if any.
  pto_status check_buffer(uint64_t address, pto_error* error) const;
  // Every live buffer's zones, and that freed ones were left alone.
  pto_status check_all(pto_error* error) const;

  bool checking() const noexcept { return check_; }

 private:
  struct List {
    Block* head = nullptr;
  };

  pto_status copy_range(uint64_t address, size_t bytes, const char* direction,
                        pto_error* error) const;
  Block* take_block(size_t bytes);
  Block* live_block(uint64_t address) const noexcept;
  pto_status not_a_buffer(uint64_t address, pto_error* error) const;
  pto_status damaged(const Block& block, const Damage& damage, bool was_freed,
                     pto_error* error) const;
  pto_status check_block(const Block& block, pto_error* error) const;
  pto_status check_all_locked(pto_error* error) const;
  void link(Block* block) noexcept;
  void unlink(Block* block) noexcept;
  pto_status drop(Block* block, pto_error* error);
  pto_status shrink_quarantine(size_t bytes, pto_error* error);
  void give_back(Block* block) noexcept;

  const bool check_;
  mutable std::mutex mutex_;
  // All below are guarded by mutex_, except the counters of copies.
  Arena arena_;
  List lists_[3];  // live buffers by owner
  size_t used_bytes_ = 0;
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
