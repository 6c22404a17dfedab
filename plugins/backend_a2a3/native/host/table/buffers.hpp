// Buffers in device memory, aligned to 1024 bytes; the driver aligns to 64. One thread at a time.
#pragma once

#include <map>

#include "life/card.hpp"
#include "pto/abi/backend.h"

namespace pto::a2a3 {

class Buffers {
 public:
  explicit Buffers(Card& card) : card_(card) {}

  pto_status allocate(size_t bytes, uint64_t* address, pto_error* error);
  pto_status free(uint64_t address, pto_error* error);
  // Frees all buffers. On an unusable card they are forgotten: its reset frees them.
  void free_all();
  pto_leak_report describe() const;

 private:
  struct Buffer {
    uint64_t base;  // as the driver returned it
    uint64_t bytes;
  };

  Card& card_;
  std::map<uint64_t, Buffer> buffers_;  // by address
};

}  // namespace pto::a2a3
