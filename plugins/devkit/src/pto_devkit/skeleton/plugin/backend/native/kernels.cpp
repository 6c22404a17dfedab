#include "kernels.hpp"

#include <string>

namespace pto_backend_template {

Libraries::~Libraries() {
  for (const auto& [handle, library] : libraries_) pto::host::close_own_library(library);
}

uint64_t Libraries::load(const char* path) {
  std::string reason;
  const pto::host::OwnLibrary library = pto::host::open_own_library(path, reason);
  if (library.handle == nullptr) refuse(PTO_ERROR_LOAD, std::string(path) + ": " + reason);
  const auto handle = reinterpret_cast<uint64_t>(library.handle);
  libraries_.emplace(handle, library);
  return handle;
}

void Libraries::unload(uint64_t library) {
  const auto found = libraries_.find(library);
  if (found == libraries_.end()) return;
  pto::host::close_own_library(found->second);
  libraries_.erase(found);
}

void* Libraries::symbol_of(uint64_t library, const char* symbol) {
  return dlsym(reinterpret_cast<void*>(library), symbol);
}

uint64_t Kernels::load(const pto_kernel_source& source) {
  auto kernel = std::make_unique<Kernel>();
  kernel->callback = source.callback;
  kernel->context = source.context;
  if (source.callback == nullptr) {
    kernel->library.reset(dlopen(source.path, RTLD_NOW | RTLD_LOCAL));
    if (kernel->library == nullptr) refuse(PTO_ERROR_LOAD, dlerror());
    const char* symbol = source.symbol != nullptr ? source.symbol : "kernel_entry";
    kernel->entry = reinterpret_cast<void (*)(uint64_t*)>(dlsym(kernel->library.get(), symbol));
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
