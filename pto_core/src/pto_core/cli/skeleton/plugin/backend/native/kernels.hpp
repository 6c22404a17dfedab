// Loaded kernels and libraries: here, shared libraries of the host and functions of this process.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "pto/abi/backend.h"

namespace pto_backend_template {

// Throws LOAD with the system's words, which name the file.
uint64_t open_library(const char* path);
void close_library(uint64_t library);
// Null when the library does not export it.
void* symbol_of(uint64_t library, const char* symbol);

class Kernels {
 public:
  // Gives what payloads call it by, an address that is no kernel's but ours. Throws LOAD.
  uint64_t load(const pto_kernel_source& source);
  // Throws ADDRESS for what is not loaded.
  void unload(uint64_t address);

  // Runs the kernel of `payload`. `error` is filled, and the answer not 0, when it fails.
  static int32_t run(pto_payload& payload, uint32_t core, pto_error* error);

 private:
  struct Library {
    void operator()(void* handle) const { close_library(reinterpret_cast<uint64_t>(handle)); }
  };
  struct Kernel {
    pto_kernel_callback callback = nullptr;
    void* context = nullptr;  // of the callback
    std::unique_ptr<void, Library> library;
    void (*entry)(uint64_t* args) = nullptr;  // of the library
  };

  std::map<uint64_t, std::unique_ptr<Kernel>> kernels_;
};

}  // namespace pto_backend_template
