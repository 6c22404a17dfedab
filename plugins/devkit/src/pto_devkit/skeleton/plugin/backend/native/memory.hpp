// Device memory. Here it is memory of this process, and its addresses are meaningful only to the
// device.
//
// Any thread may copy at any time, so one lock guards everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "pto/host/backend_table.hpp"

namespace pto_backend_template {

using pto::host::refuse;

// The owner of a buffer. The caller frees its own buffers. The buffers of a run are freed at the
// latest when the run ends.
enum class Owner { kCaller, kRun };

class Memory {
 public:
  explicit Memory(size_t capacity) : capacity_(capacity) {}

  // Returns an address that is aligned to 1024 bytes. `bytes` may be 0. Throws MEMORY.
  uint64_t allocate(size_t bytes, Owner owner);
  // Throws ADDRESS for an address that is not a live buffer.
  void free(uint64_t address);
  // Throw ADDRESS unless all `bytes` lie in one live buffer.
  void copy_in(uint64_t address, const void* host, size_t bytes);
  void copy_out(void* host, uint64_t address, size_t bytes);

  // Resets the counters; the counts between begin_run() and end_run() are those of the run.
  void begin_run();
  // Frees the remaining buffers of the run, and writes the counts.
  void end_run(pto_run_report& report);
  // Returns the buffers that were not freed.
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
  Buffers buffers_;  // key: the address
  pto_run_report counts_{};
};

}  // namespace pto_backend_template
