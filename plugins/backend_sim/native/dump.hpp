// Write the arguments of selected kernel calls to a file; see pto/abi/dump.h.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "loader.hpp"
#include "memory/device_memory.hpp"
#include "pto/abi/dump.h"
#include "pto/abi/payload.h"
#include "pto/abi/topology.h"

namespace pto::sim {

// Each record is written by one system call, on the thread that runs the kernel. So the system
// writes the file to the disk beside the run, and a crash of the process loses no record.
class Dump {
 public:
  explicit Dump(const DeviceMemory& memory) noexcept : memory_(memory) {}
  Dump(const Dump&) = delete;
  Dump& operator=(const Dump&) = delete;
  ~Dump() { end(); }

  // Called between runs. Opens the file that the configuration names, if it switches a dump on.
  pto_status begin(const pto_call_config* config, pto_error* error);
  // Called between runs; a kernel that did not return may still call the functions below.
  void end() noexcept;
  bool is_on() const noexcept { return is_on_; }

  // A call of a kernel, on the thread that runs its core.
  struct Call {
    const pto_payload& payload;
    uint32_t payload_bytes;
    const Kernel& kernel;
    uint32_t core;
    bool is_together;
  };
  bool selects(const Kernel& kernel, uint64_t task) const {
    const bool selects_all = names_.empty() && tasks_.empty();
    return selects_all || names_.contains(kernel.name) || tasks_.contains(task);
  }
  void before(const Call& call) noexcept;
  void after(const Call& call, bool has_failed) noexcept;

 private:
  // The place of the last record before a call on a core, if only failures are kept.
  struct Slot {
    uint64_t at = 0;
    uint64_t bytes = 0;
  };

  void write(const Call& call, uint32_t phase, Slot* slot) noexcept;
  void append(std::vector<char>& record, Slot* slot);
  // Called with the mutex. Whether a record can be written; see append() for `slot`.
  bool fits(uint64_t bytes, const Slot* slot) const noexcept {
    const bool replaces = slot != nullptr && bytes <= slot->bytes;
    return file_ >= 0 && (replaces || bytes <= limit_ - end_);
  }
  void lose(uint32_t error = 0) noexcept;

  const DeviceMemory& memory_;
  bool is_on_ = false;
  int32_t level_ = PTO_DUMP_OFF;
  std::unordered_set<std::string> names_;
  std::unordered_set<uint64_t> tasks_;
  std::array<Slot, PTO_MAX_CORES> slots_;  // each used by the thread that runs the core
  std::mutex mutex_;                       // guards the members below, during a run
  int file_ = -1;
  uint64_t end_ = 0;    // of the file
  uint64_t limit_ = 0;  // end_ stays below it
  pto_dump_header header_{};
};

}  // namespace pto::sim
