// The records of selected tasks (pto/abi/dump.h), which the host copies after the run.
//
// The scheduler thread of a core calls before() and after(). One thread at a time reserves the
// place of a record, and then fills it alone.
#pragma once

#include <atomic>
#include <cstdint>

#include "abi/launch.h"
#include "device/access.hpp"
#include "device/pool.hpp"
#include "pto/abi/dump.h"

namespace pto::a2a3 {

class DeviceDump {
 public:
  // Between runs. `address` is that of a pto_a2a3_dump, or 0.
  void begin(uint64_t address, Pool& pool);
  // Drops the dump from the cache: its memory becomes that of other data after the run.
  void end();
  bool is_on() const { return dump_ != nullptr; }
  // Whether the run fails without its access log. A dump of arrays only lacks the numbers of tasks.
  bool needs_log() const { return !is_on() || dump_->level == PTO_DUMP_HASHES; }

  // The slot of the core has the task, which does not run yet.
  void before(const pto_a2a3_slot& slot, uint32_t core, bool is_together);
  // The task has ended, and is still in the slot.
  void after(const pto_a2a3_slot& slot, uint32_t core, bool has_failed);

  // What a call names, for engine::DumpedCall.
  bool contains(uint64_t begin, uint64_t end) const;
  bool find_buffer(uint64_t address, uint64_t* begin, uint64_t* end) const;
  void invalidate(const pto_dump_tensor& view) const;

 private:
  struct alignas(PTO_A2A3_LINE) Call {
    pto_dump_record* before;  // if only failures are kept: the place of the newest such record
    uint64_t bytes;           // of that place
    bool is_selected;
    bool is_together;
  };

  bool selects(const pto_payload& payload) const;
  void write(const pto_a2a3_slot& slot, uint32_t core, uint32_t phase);
  pto_dump_record* reserve(uint64_t bytes);
  static void set_phase(pto_dump_record& record, uint32_t phase);

  pto_a2a3_dump* dump_ = nullptr;  // null: no task is dumped
  Pool* pool_ = nullptr;
  const uint64_t* kernels_ = nullptr;
  const uint64_t* tasks_ = nullptr;
  const pto_a2a3_range* buffers_ = nullptr;
  std::atomic<bool> locked_{false};  // the lock of the members below
  uint64_t end_ = 0, lost_ = 0;
  Call calls_[PTO_MAX_CORES];
};

}  // namespace pto::a2a3
