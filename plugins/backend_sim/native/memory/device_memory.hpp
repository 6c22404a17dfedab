// The memory of one device: buffers with an owner, counted copies, and the checks of checking mode.
//
// Any thread may call any method.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>

#include "memory/arena.hpp"
#include "pto/abi/arguments.h"
#include "pto/abi/backend.h"

namespace pto::sim {

// The owner of a buffer. The caller frees its buffers itself. end_run() frees the buffers of the
// run. end_runtime() frees the rings of the runtime. Rings are large and sparse; no function here
// accesses their content.
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
  // `has_gaps`: leave unused memory before and after each buffer, as large as the buffer itself
  // within limits. A measured access beyond the end of a buffer then reaches no other buffer.
  explicit DeviceMemory(bool check, bool has_gaps = false) noexcept
      : check_(check), has_gaps_(has_gaps) {}

  pto_status open(size_t bytes, pto_error* error);

  pto_status allocate(size_t bytes, Owner owner, uint64_t* address, pto_error* error);
  pto_status free(uint64_t address, pto_error* error);
  pto_status copy_in(uint64_t address, const void* host, size_t bytes, pto_error* error);
  pto_status copy_out(void* host, uint64_t address, size_t bytes, pto_error* error);

  // Resets the peak of the memory in use, and the counters of copies.
  void begin_run() noexcept;
  // Frees the buffers that the run allocated.
  void end_run();
  // Frees the rings of a detached runtime.
  void end_runtime();

  CopyCounts copies() const noexcept;
  // The peak number of bytes that the run used, without rings: the runtime reports the use of its
  // rings.
  uint64_t peak_bytes() const;
  // The buffers that the caller has not freed.
  pto_leak_report leaks() const;

  // The address and the size of all device memory.
  std::pair<uint64_t, size_t> whole() const noexcept { return {arena_.base(), arena_.bytes()}; }
  // Finds the buffer that contains `address`. Returns false if there is none.
  bool find_buffer(uint64_t address, uint64_t* begin, uint64_t* end) const;

  // For checking mode only; see pto_platform.check_value.
  pto_status check_value(uint64_t value, const pto_host_range* ranges, uint32_t count,
                         pto_error* error) const;
  // See pto_platform.check_range.
  pto_status check_range(uint64_t address, size_t bytes, const pto_host_range* ranges,
                         uint32_t count, pto_error* error) const;
  // See pto_platform.lend.
  pto_status lend(uint64_t address, size_t bytes, pto_error* error);
  // Checks the zones of the buffer to which `address` points, if any.
  pto_status check_buffer(uint64_t address, pto_error* error) const;
  // Checks the zones of every live buffer, and the content of freed buffers.
  pto_status check_all(pto_error* error) const;

  bool checking() const noexcept { return check_; }

 private:
  struct List {
    Block* head = nullptr;
  };
  // The value of Block::owner for a block in quarantine.
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
  pto_status check_block(const Block& block, pto_error* error) const;
  pto_status check_all_locked(pto_error* error) const;
  void link(Block* block) noexcept;
  void unlink(Block* block) noexcept;
  pto_status drop(Block* block, pto_error* error);
  pto_status quarantine(Block* block, pto_error* error);
  pto_status shrink_quarantine(size_t bytes, pto_error* error);
  void give_back(Block* block) noexcept;

  const bool check_;
  const bool has_gaps_;
  mutable std::mutex mutex_;
  // mutex_ guards all members below, except the counters of copies.
  // larger than limit_bytes_ in checking mode and with gaps, because zones and gaps do not count
  Arena arena_;
  size_t limit_bytes_ = 0;  // the size of the device's memory
  List lists_[3];           // the live buffers of each owner
  Slabs slabs_;             // buffers lent in this run, in checking mode
  size_t used_bytes_ = 0;   // bytes in use, including rings
  size_t ring_bytes_ = 0;
  size_t peak_bytes_ = 0;
  size_t untrimmed_bytes_ = 0;  // bytes freed since the last trim, in blocks that kept their pages
  // buffers freed in checking mode and not reused yet, oldest first
  std::deque<Block*> quarantine_;
  size_t quarantine_bytes_ = 0;

  std::atomic<uint64_t> bytes_in_{0};
  std::atomic<uint64_t> bytes_out_{0};
  std::atomic<uint64_t> copies_in_{0};
  std::atomic<uint64_t> copies_out_{0};
  std::atomic<uint64_t> copy_ns_{0};
};

}  // namespace pto::sim
