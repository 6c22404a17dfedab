// Loads kernels and libraries. Here both are shared libraries of the host, and kernels are
// functions of this process.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <map>
#include <memory>

#include "pto/host/backend_table.hpp"
#include "pto/host/own_library.hpp"

namespace pto_backend_template {

using pto::host::refuse;

// The orchestration libraries of one device, which does not share their static variables with other
// devices.
class Libraries {
 public:
  Libraries() = default;
  Libraries(const Libraries&) = delete;
  ~Libraries();

  // Returns the handle of the library. Throws LOAD.
  uint64_t load(const char* path);
  void unload(uint64_t library);
  // Returns null if the library does not export it.
  static void* symbol_of(uint64_t library, const char* symbol);

 private:
  std::map<uint64_t, pto::host::OwnLibrary> libraries_;
};

class Kernels {
 public:
  // Returns the address of the kernel as payloads contain it. It is opaque outside this backend.
  // Throws LOAD.
  uint64_t load(const pto_kernel_source& source);
  // Throws ADDRESS for an address that is not a loaded kernel.
  void unload(uint64_t address);

  // Runs the kernel of `payload`. If it fails, fills `error` and returns a value other than 0.
  static int32_t run(pto_payload& payload, uint32_t core, pto_error* error);

 private:
  struct Library {
    void operator()(void* handle) const { dlclose(handle); }
  };
  struct Kernel {
    pto_kernel_callback callback = nullptr;
    void* context = nullptr;  // passed to the callback
    std::unique_ptr<void, Library> library;
    void (*entry)(uint64_t* args) = nullptr;  // handle of the loaded library
  };

  std::map<uint64_t, std::unique_ptr<Kernel>> kernels_;
};

}  // namespace pto_backend_template
