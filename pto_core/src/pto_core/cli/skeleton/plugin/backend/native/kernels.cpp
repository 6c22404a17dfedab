#include "kernels.hpp"

#include <dlfcn.h>

#include <string>

#include "refusal.hpp"

namespace pto_backend_template {

uint64_t open_library(const char* path) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) refuse(PTO_ERROR_LOAD, dlerror());
  return reinterpret_cast<uint64_t>(handle);
}

void close_library(uint64_t library) {
  dlclose(reinterpret_cast<void*>(library));
}

void* symbol_of(uint64_t library, const char* symbol) {
  return dlsym(reinterpret_cast<void*>(library), symbol);
}

uint64_t Kernels::load(const pto_kernel_source& source) {
  auto kernel = std::make_unique<Kernel>();
  kernel->callback = source.callback;
  kernel->context = source.context;
  if (source.callback == nullptr) {
    const uint64_t library = open_library(source.path);
    kernel->library.reset(reinterpret_cast<void*>(library));
    const char* symbol = source.symbol != nullptr ? source.symbol : "kernel_entry";
    kernel->entry = reinterpret_cast<void (*)(uint64_t*)>(symbol_of(library, symbol));
    if (kernel->entry == nullptr) {
      refuse(PTO_ERROR_LOAD, std::string(source.path) + " does not export " + symbol +
                                 "; declare the kernel extern \"C\"");
    }
  }
  const auto address = reinterpret_cast<uint64_t>(kernel.get());
  kernels_.emplace(address, std::move(kernel));
  return address;
}

void Kernels::unload(uint64_t address) {
  if (kernels_.erase(address) == 0) {
    refuse(PTO_ERROR_ADDRESS, "no kernel is loaded at " + std::to_string(address));
  }
}

int32_t Kernels::run(pto_payload& payload, uint32_t core, pto_error* error) {
  const auto& kernel = *reinterpret_cast<const Kernel*>(payload.kernel);
  if (kernel.callback != nullptr) return kernel.callback(kernel.context, &payload, core, error);
  kernel.entry(pto_payload_args(&payload));
  return 0;
}

}  // namespace pto_backend_template
