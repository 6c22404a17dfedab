// Kernels and orchestration libraries of one device, loaded with dlopen and kept in a registry.
//
// Any thread may call any method.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "pto/abi/backend.h"
#include "pto/host/own_library.hpp"

namespace pto::sim {

using KernelFunction = void (*)(int64_t* args);

// The record to which a kernel address points. Only this backend reads it.
struct Kernel {
  KernelFunction function = nullptr;       // null for a callback
  pto_kernel_callback callback = nullptr;  // null for a function
  void* context = nullptr;
  int32_t func_id = -1;
  std::string name;
  std::string path;          // of the library; empty for a callback
  void* library = nullptr;   // library to close when the kernel is unloaded, or null
  bool is_measured = false;  // whether the kernel reports its accesses
  bool has_hooks = false;    // whether the library calls the vendor's hooks of kernel_hooks.hpp
  bool has_texts = false;    // whether the kernel uses pto/kernel/print.hpp
  int file = -1;  // memory file of an uploaded binary; open as long as the library is loaded
};

class Loader {
 public:
  Loader() = default;
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();

  pto_status load_kernel(const pto_kernel_source& source, uint64_t* address, pto_error* error);
  pto_status unload_kernel(uint64_t address);
  // Loads a kernel from the bytes of its binary. end_run() unloads it.
  pto_status upload_kernel(int32_t func_id, const void* bytes, size_t length, uint64_t* address,
                           pto_error* error);
  void end_run();

  host::OwnLibraries& libraries() noexcept { return libraries_; }

 private:
  uint64_t keep(std::unique_ptr<Kernel> kernel);

  std::mutex mutex_;
  std::unordered_map<uint64_t, std::unique_ptr<Kernel>> kernels_;
  std::vector<uint64_t> uploaded_;
  host::OwnLibraries libraries_;
};

}  // namespace pto::sim
