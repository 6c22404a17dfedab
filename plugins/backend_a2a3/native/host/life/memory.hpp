// Device memory and copies. Any thread may call. Addresses are the driver's; the host never
// dereferences them.
#pragma once

#include "life/session.hpp"

namespace pto::a2a3 {

class CardMemory {
 public:
  explicit CardMemory(Session& session) : session_(session) {}

  // The address is a multiple of 64. The content is undefined.
  pto_status allocate(size_t bytes, uint64_t* address, pto_error* error);
  pto_status free(uint64_t address, pto_error* error);
  // A copy does not wait for launches.
  pto_status copy_in(uint64_t address, const void* host, size_t bytes, pto_error* error);
  pto_status copy_out(void* host, uint64_t address, size_t bytes, pto_error* error);
  pto_status fill(uint64_t address, uint8_t value, size_t bytes, pto_error* error);
  pto_status usage(size_t* unused, size_t* total, pto_error* error);

 private:
  pto_status copy(void* target, const void* source, size_t bytes, int32_t kind, pto_error* error);

  Session& session_;
};

}  // namespace pto::a2a3
