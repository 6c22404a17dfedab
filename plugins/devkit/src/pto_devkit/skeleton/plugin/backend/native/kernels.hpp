// Loads kernels. Here they are shared libraries of the host, or functions of this process.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "pto/host/backend_table.hpp"
#include "pto/host/own_library.hpp"

namespace pto_backend_template {

class Kernels {
 public:
  // `*address` is what payloads contain. Only this backend reads it.
  void load_kernel(const pto_kernel_source* source, uint64_t* address, pto_error*) {
    auto kernel = std::make_unique<Kernel>();
    kernel->callback = source->callback;
    kernel->context = source->context;
    if (source->callback == nullptr) {
      const std::string path = source->path;
      kernel->library.reset(dlopen(source->path, RTLD_NOW | RTLD_LOCAL));
      if (kernel->library == nullptr)
        pto::host::refuse(PTO_ERROR_LOAD, path + ": " + pto::host::load_failure(path));
      const char* symbol = source->symbol != nullptr ? source->symbol : "kernel_entry";
      kernel->entry = reinterpret_cast<void (*)(uint64_t*)>(dlsym(kernel->library.get(), symbol));
      if (kernel->entry == nullptr) {
        pto::host::refuse(PTO_ERROR_LOAD, path + " does not export " + symbol +
                                              "; declare the kernel extern \"C\"");
      }
    }
    *address = reinterpret_cast<uint64_t>(kernel.get());
    kernels_.emplace(*address, std::move(kernel));
  }

  void unload_kernel(uint64_t address) {
    if (kernels_.erase(address) > 0) return;
    pto::host::refuse(PTO_ERROR_ADDRESS, "no kernel is loaded at " + std::to_string(address));
  }

  // Runs the kernel of `payload`. If it fails, fills `error` and returns a value other than 0.
  static int32_t call_kernel(pto_payload& payload, uint32_t core, pto_error* error) {
    const auto& kernel = *reinterpret_cast<const Kernel*>(payload.kernel);
    if (kernel.callback != nullptr) return kernel.callback(kernel.context, &payload, core, error);
    kernel.entry(pto_payload_args(&payload));
    return 0;
  }

 private:
  struct Library {
    void operator()(void* handle) const { dlclose(handle); }
  };
  struct Kernel {
    pto_kernel_callback callback = nullptr;
    void* context = nullptr;  // passed to the callback
    std::unique_ptr<void, Library> library;
    void (*entry)(uint64_t* args) = nullptr;
  };

  std::map<uint64_t, std::unique_ptr<Kernel>> kernels_;
};

}  // namespace pto_backend_template
