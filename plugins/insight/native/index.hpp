// A region index for one analysis, over the memory of the host.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>

#include "pto/engine/region_index.hpp"

namespace pto::insight {

// A platform for the region index on the host; it provides memory and nothing else.
class HostMemory {
 public:
  HostMemory() : platform_{}, memory_(&platform_) {
    platform_.reserve = [](void*, size_t bytes) -> void* {
      void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      return memory == MAP_FAILED ? nullptr : memory;
    };
    platform_.release = [](void*, void* memory, size_t bytes) { munmap(memory, bytes); };
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  engine::Memory& memory() { return memory_; }

 private:
  pto_platform platform_;
  engine::Memory memory_;
};

template <class Value>
class HostIndex {
 public:
  // Throws std::bad_alloc.
  explicit HostIndex(uint32_t capacity) {
    if (!index_.create(memory_.memory(), std::max<uint32_t>(capacity, 16))) {
      index_.destroy();
      throw std::bad_alloc();
    }
    index_.restart();
  }
  ~HostIndex() { index_.destroy(); }
  HostIndex(const HostIndex&) = delete;
  HostIndex& operator=(const HostIndex&) = delete;

  engine::RegionIndex<Value>* operator->() { return &index_; }

 private:
  HostMemory memory_;
  engine::RegionIndex<Value> index_;
};

}  // namespace pto::insight
