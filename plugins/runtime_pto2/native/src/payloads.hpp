// Memory for the payloads of live tasks: blocks of a few sizes that are reused when tasks retire.
//
// The block that was freed last is reused first, because it is still in the cache. A new run clears
// no memory: it divides the same chunks again. Used by the orchestrator only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pto/abi/payload.h"
#include "pto/engine/memory.hpp"

namespace pto::ring_buffer {

class Payloads {
 public:
  static constexpr uint32_t kSmallest = 256;
  static constexpr uint32_t kClasses = 6;  // sizes from 256 to 8192 bytes
  static constexpr uint32_t kLargest = kSmallest << (kClasses - 1);

  bool create(engine::Memory& memory) { return chunks_.create(memory); }
  void destroy() { chunks_.destroy(); }

  void begin() {
    chunks_.restart();
    for (Free*& free : free_) free = nullptr;
  }

  // Return the size class for a length of 1 to kLargest bytes.
  static uint32_t class_of(uint32_t length) {
    const uint32_t blocks = (length - 1) / kSmallest;
    return blocks == 0 ? 0 : 32 - static_cast<uint32_t>(__builtin_clz(blocks));
  }

  // Return a block of the size class; NULL if memory is exhausted.
  pto_payload* take(uint32_t size_class) {
    Free* block = free_[size_class];
    if (block == nullptr) {
      return static_cast<pto_payload*>(chunks_.allocate(size_t{kSmallest} << size_class));
    }
    free_[size_class] = block->next;
    return reinterpret_cast<pto_payload*>(block);
  }

  void give_back(pto_payload* payload, uint32_t size_class) {
    Free* block = reinterpret_cast<Free*>(payload);
    block->next = free_[size_class];
    free_[size_class] = block;
  }

 private:
  struct Free {
    Free* next;
  };

  engine::Arena chunks_;
  Free* free_[kClasses] = {};
};

}  // namespace pto::ring_buffer
