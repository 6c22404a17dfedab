#include "memory.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

namespace pto_backend_template {
namespace {

constexpr size_t kAlignment = 1024;

uint64_t copy_ns(void* to, const void* from, size_t bytes) {
  const auto start = std::chrono::steady_clock::now();
  if (bytes > 0) std::memcpy(to, from, bytes);
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - start;
  return static_cast<uint64_t>(took.count());
}

}  // namespace

uint64_t Memory::allocate(size_t bytes, Owner owner) {
  const std::lock_guard lock(mutex_);
  if (bytes > capacity_ - used_) {
    refuse(PTO_ERROR_MEMORY, std::to_string(bytes) + " bytes do not fit: " + std::to_string(used_) +
                                 " of " + std::to_string(capacity_) +
                                 " are in use; free buffers, or raise template.memory_bytes");
  }
  // Add at least one byte, so that an empty buffer also has a unique address.
  const size_t size = (bytes / kAlignment + 1) * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, size);
  if (memory == nullptr) throw std::bad_alloc();
  const auto address = reinterpret_cast<uint64_t>(memory);
  buffers_.emplace(address, Buffer{{memory, std::free}, bytes, owner});
  used_ += bytes;
  counts_.peak_bytes = std::max<uint64_t>(counts_.peak_bytes, used_);
  return address;
}

void Memory::free(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = buffers_.find(address);
  if (found == buffers_.end()) {
    refuse(PTO_ERROR_ADDRESS,
           "no live buffer begins at " + std::to_string(address) +
               "; free each buffer once, with the address that allocate returned");
  }
  remove(found);
}

void Memory::copy_in(uint64_t address, const void* host, size_t bytes) {
  const std::lock_guard lock(mutex_);
  counts_.copy_ns += copy_ns(checked(address, bytes), host, bytes);
  counts_.bytes_in += bytes;
  ++counts_.copies_in;
}

void Memory::copy_out(void* host, uint64_t address, size_t bytes) {
  const std::lock_guard lock(mutex_);
  counts_.copy_ns += copy_ns(host, checked(address, bytes), bytes);
  counts_.bytes_out += bytes;
  ++counts_.copies_out;
}

void Memory::begin_run() {
  const std::lock_guard lock(mutex_);
  counts_ = {};
  counts_.peak_bytes = used_;
}

void Memory::end_run(pto_run_report& report) {
  const std::lock_guard lock(mutex_);
  for (auto buffer = buffers_.begin(); buffer != buffers_.end();) {
    buffer = buffer->second.owner == Owner::kRun ? remove(buffer) : std::next(buffer);
  }
  report.copy_ns = counts_.copy_ns;
  report.bytes_in = counts_.bytes_in;
  report.bytes_out = counts_.bytes_out;
  report.copies_in = counts_.copies_in;
  report.copies_out = counts_.copies_out;
  report.peak_bytes = counts_.peak_bytes;
}

pto_leak_report Memory::leaks() {
  const std::lock_guard lock(mutex_);
  if (buffers_.empty()) return {};
  const auto& [address, buffer] = *buffers_.begin();
  return {buffers_.size(), used_, address, buffer.bytes};
}

// Returns the host address of the bytes.
void* Memory::checked(uint64_t address, size_t bytes) {
  auto found = buffers_.upper_bound(address);
  if (found != buffers_.begin()) {
    const auto& [first, buffer] = *--found;
    const uint64_t offset = address - first;
    if (offset <= buffer.bytes && bytes <= buffer.bytes - offset) {
      return reinterpret_cast<void*>(address);
    }
  }
  refuse(PTO_ERROR_ADDRESS, std::to_string(bytes) + " bytes at " + std::to_string(address) +
                                " do not lie in one live buffer; copy less, or to another address");
}

Memory::Buffers::iterator Memory::remove(Buffers::iterator buffer) {
  used_ -= buffer->second.bytes;
  return buffers_.erase(buffer);
}

}  // namespace pto_backend_template
