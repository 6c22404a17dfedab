// Device memory: here, memory of this process that nobody but the device knows the address of.
//
// Any thread may copy at any time, so one lock is around everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "pto/abi/backend.h"

namespace pto_backend_template {

// Who frees a buffer at the latest: its caller, or the device when the run is over.
enum class Owner { kCaller, kRun };

class Memory {
 public:
  explicit Memory(size_t capacity) : capacity_(capacity) {}

  // Aligned to 1024 bytes; `bytes` may be 0. Throws MEMORY.
  uint64_t allocate(size_t bytes, Owner owner);
  // Throws ADDRESS for what is no live buffer.
  void free(uint64_t address);
  // Throw ADDRESS unless all `bytes` lie in one live buffer.
  void copy_in(uint64_t address, const void* host, size_t bytes);
  void copy_out(void* host, uint64_t address, size_t bytes);

  // Counts anew from here; what begin_run() and end_run() enclose is the run's.
  void begin_run();
  // Frees what the run left, and writes the counts.
  void end_run(pto_run_report& report);
  // What nobody freed.
  pto_leak_report leaks();

 private:
  struct Buffer {
    std::unique_ptr<void, void (*)(void*)> memory;
    size_t bytes;
    Owner owner;
  };
  using Buffers = std::map<uint64_t, Buffer>;

  void* checked(uint64_t address, size_t bytes);
  Buffers::iterator remove(Buffers::iterator buffer);

  std::mutex mutex_;
  size_t capacity_;
  size_t used_ = 0;  // bytes of all buffers
  Buffers buffers_;  // by address
  pto_run_report counts_{};
};

}  // namespace pto_backend_template
