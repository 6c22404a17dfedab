// The record to which a kernel address points. Only this backend reads it.
#pragma once

#include <cstdint>
#include <string>

#include "pto/abi/backend.h"

namespace pto::sim {

using KernelFunction = void (*)(int64_t* args);

struct Kernel {
  KernelFunction function = nullptr;       // null for a callback
  pto_kernel_callback callback = nullptr;  // null for a function
  void* context = nullptr;
  int32_t func_id = -1;
  std::string name;
  void* library = nullptr;   // library to close when the kernel is unloaded, or null
  bool is_measured = false;  // whether the kernel reports its accesses
  int file = -1;  // memory file of an uploaded binary; open as long as the library is loaded
};

}  // namespace pto::sim
