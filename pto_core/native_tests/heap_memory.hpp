// The platform's functions reserve() and release(), implemented with malloc and free.
#pragma once

#include <cstdlib>

#include "pto/engine/memory.hpp"

class HeapMemory {
 public:
  HeapMemory() : platform_{}, memory_(&platform_) {
    platform_.reserve = [](void*, size_t bytes) { return std::calloc(bytes, 1); };
    platform_.release = [](void*, void* memory, size_t) { std::free(memory); };
  }

  pto::engine::Memory& memory() { return memory_; }

 private:
  pto_platform platform_;
  pto::engine::Memory memory_;
};
