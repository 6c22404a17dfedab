// The record at a kernel address. The address is opaque outside this backend.
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
  void* library = nullptr;  // library to close when the kernel is unloaded, or null
  int file = -1;            // memory file of an uploaded binary, kept open as long as the library
};

}  // namespace pto::sim
