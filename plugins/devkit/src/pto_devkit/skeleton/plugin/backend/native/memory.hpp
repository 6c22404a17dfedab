// Device memory. Here it is memory of this process, and its addresses are meaningful only to the
// device.
//
// Any thread may copy at any time, so one lock guards everything.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "pto/host/backend_table.hpp"

namespace pto_backend_template {

using pto::host::refuse;

// The owner of a buffer. The caller frees its own buffers. The buffers of a run are freed at the
// latest when the run ends.
enum class Owner { kCaller, kRun };

class Memory {
 public:
  explicit Memory(size_t capacity) : capacity_(capacity) {}
  Memory(const Memory&) = delete;

  void allocate(size_t bytes, uint64_t* address, pto_error*) {
    *address = allocate_for(Owner::kCaller, bytes);
  }
  // Returns an address that is aligned to 1024 bytes. `bytes` may be 0.
  uint64_t allocate_for(Owner owner, size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes > capacity_ - used_) {
      refuse(PTO_ERROR_MEMORY, std::to_string(bytes) + " bytes do not fit: " +
                                   std::to_string(used_) + " of " + std::to_string(capacity_) +
                                   " are in use; free buffers, or raise template.memory_bytes");
    }
    // Add at least one byte, so that an empty buffer also has a unique address.
    void* memory = std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
    if (memory == nullptr) throw std::bad_alloc();
    const auto address = reinterpret_cast<uint64_t>(memory);
    buffers_.emplace(address, Buffer{{memory, std::free}, bytes, owner});
    used_ += bytes;
    report_.peak_bytes = std::max<uint64_t>(report_.peak_bytes, used_);
    return address;
  }

  void free(uint64_t address, pto_error*) {
    const std::lock_guard lock(mutex_);
    const auto found = buffers_.find(address);
    if (found == buffers_.end()) {
      refuse(PTO_ERROR_ADDRESS,
             "no live buffer begins at " + std::to_string(address) +
                 "; free each buffer once, with the address that allocate returned");
    }
    remove(found);
  }

  void copy_in(uint64_t address, const void* host, size_t bytes, pto_error*) {
    const std::lock_guard lock(mutex_);
    copy(checked(address, bytes), host, bytes);
    report_.bytes_in += bytes;
    ++report_.copies_in;
  }
  void copy_out(void* host, uint64_t address, size_t bytes, pto_error*) {
    const std::lock_guard lock(mutex_);
    copy(host, checked(address, bytes), bytes);
    report_.bytes_out += bytes;
    ++report_.copies_out;
  }

  // Returns the buffers that were not freed.
  pto_leak_report leaks() const {
    if (buffers_.empty()) return {};
    const auto& [address, buffer] = *buffers_.begin();
    return {buffers_.size(), used_, address, buffer.bytes};
  }

 protected:
  void begin_report() {
    const std::lock_guard lock(mutex_);
    report_ = {};
    report_.peak_bytes = used_;
  }

  // Frees the remaining buffers of the run, and returns its report.
  pto_run_report end_report() {
    const std::lock_guard lock(mutex_);
    for (auto buffer = buffers_.begin(); buffer != buffers_.end();) {
      buffer = buffer->second.owner == Owner::kRun ? remove(buffer) : std::next(buffer);
    }
    return report_;
  }

  pto_run_report report_{};  // of the current run; the device adds the counts of its kernels

 private:
  static constexpr size_t kAlignment = 1024;

  struct Buffer {
    std::unique_ptr<void, void (*)(void*)> memory;
    size_t bytes;
    Owner owner;
  };
  using Buffers = std::map<uint64_t, Buffer>;

  // Returns the host address of the bytes, which must lie in one live buffer.
  void* checked(uint64_t address, size_t bytes) {
    auto found = buffers_.upper_bound(address);
    if (found != buffers_.begin()) {
      const auto& [first, buffer] = *--found;
      const uint64_t offset = address - first;
      if (offset <= buffer.bytes && bytes <= buffer.bytes - offset) {
        return reinterpret_cast<void*>(address);
      }
    }
    refuse(PTO_ERROR_ADDRESS,
           std::to_string(bytes) + " bytes at " + std::to_string(address) +
               " do not lie in one live buffer; copy less, or to another address");
  }

  void copy(void* to, const void* from, size_t bytes) {
    const uint64_t start = pto::host::monotonic_ns();
    if (bytes > 0) std::memcpy(to, from, bytes);
    report_.copy_ns += pto::host::monotonic_ns() - start;
  }

  Buffers::iterator remove(Buffers::iterator buffer) {
    used_ -= buffer->second.bytes;
    return buffers_.erase(buffer);
  }

  std::mutex mutex_;
  const size_t capacity_;
  size_t used_ = 0;  // bytes of all buffers
  Buffers buffers_;  // key: the address
};

}  // namespace pto_backend_template
