#include "loader.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "error.hpp"
#include "pto/host/own_library.hpp"
#include "recorder.hpp"

namespace pto::sim {
namespace {

constexpr const char* kKernelSymbol = "kernel_entry";

void close_kernel(const Kernel& kernel) {
  host::close_own_library({kernel.library, kernel.file});
}

bool write_all(int file, const char* bytes, size_t length) {
  while (length > 0) {
    const ssize_t written = write(file, bytes, length);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes += written;
    length -= static_cast<size_t>(written);
  }
  return true;
}

// Adds advice to the reason of a failed dlopen() for known errors.
std::string with_advice(const std::string& reason) {
  if (reason.rfind("undefined symbol: ", 0) != 0) return reason;
  return reason +
         ", which no library defines; define it in that source, or make it inline in a header";
}

pto_status fail_kernel(const Kernel& kernel, pto_error* error, const char* what,
                       const char* detail) {
  std::string label = kernel.name;
  if (kernel.func_id >= 0) label += " (func_id " + std::to_string(kernel.func_id) + ")";
  fail(error, PTO_ERROR_LOAD, "cannot load kernel %s from %s: %s", label.c_str(), what, detail);
  if (error != nullptr) error->func_id = kernel.func_id;
  return PTO_ERROR_LOAD;
}

// Connects a library that was built with measured_kernel.hpp.
void connect_recorder(Kernel& kernel) {
  using Listen = void (*)(void (*)(uint64_t, uint64_t, int32_t));
  const auto listen = reinterpret_cast<Listen>(dlsym(kernel.library, "pto_listen_to_accesses"));
  kernel.is_measured = listen != nullptr;
  if (kernel.is_measured) listen(record_access);
}

pto_status open_kernel(Kernel& kernel, const char* path, const char* what, const char* symbol,
                       pto_error* error) {
  kernel.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (kernel.library == nullptr) {
    return fail_kernel(kernel, error, what, with_advice(host::load_failure(path)).c_str());
  }
  kernel.function = reinterpret_cast<KernelFunction>(dlsym(kernel.library, symbol));
  connect_recorder(kernel);
  if (kernel.function != nullptr) return PTO_OK;
  char detail[256];
  std::snprintf(detail, sizeof detail,
                "it does not export %s; declare it extern \"C\" void %s(int64_t* args)", symbol,
                symbol);
  return fail_kernel(kernel, error, what, detail);
}

// The path of a memory file contains its descriptor and is unique only while the descriptor is
// open. So the kernel keeps the descriptor.
pto_status open_bytes(Kernel& kernel, const void* bytes, size_t length, pto_error* error) {
  kernel.file = memfd_create(kernel.name.c_str(), MFD_CLOEXEC);
  if (kernel.file < 0 || !write_all(kernel.file, static_cast<const char*>(bytes), length)) {
    return fail_kernel(kernel, error, "memory", std::strerror(errno));
  }
  const std::string path = host::path_of_memory_file(kernel.file);
  return open_kernel(kernel, path.c_str(), "the uploaded bytes", kKernelSymbol, error);
}

}  // namespace

Loader::~Loader() {
  for (const auto& [address, kernel] : kernels_) close_kernel(*kernel);
  for (const auto& [library, file] : libraries_) host::close_own_library({library, file});
}

pto_status Loader::load_kernel(const pto_kernel_source& source, uint64_t* address,
                               pto_error* error) {
  auto kernel = std::make_unique<Kernel>();
  kernel->func_id = source.func_id;
  kernel->name = source.name != nullptr ? source.name : "kernel";
  kernel->callback = source.callback;
  kernel->context = source.context;
  if (source.path == nullptr && source.callback == nullptr) {
    return fail_kernel(*kernel, error, "an empty source", "pass a library or a callback");
  }
  if (source.path != nullptr) {
    const char* symbol = source.symbol != nullptr ? source.symbol : kKernelSymbol;
    const pto_status status = open_kernel(*kernel, source.path, source.path, symbol, error);
    if (status != PTO_OK) {
      close_kernel(*kernel);
      return status;
    }
  }
  *address = keep(std::move(kernel));
  return PTO_OK;
}

pto_status Loader::unload_kernel(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = kernels_.find(address);
  if (found == kernels_.end()) return PTO_ERROR_USAGE;
  close_kernel(*found->second);
  kernels_.erase(found);
  return PTO_OK;
}

pto_status Loader::upload_kernel(int32_t func_id, const void* bytes, size_t length,
                                 uint64_t* address, pto_error* error) {
  auto kernel = std::make_unique<Kernel>();
  kernel->func_id = func_id;
  kernel->name = "uploaded_" + std::to_string(func_id);
  const pto_status status = open_bytes(*kernel, bytes, length, error);
  if (status != PTO_OK) {
    close_kernel(*kernel);
    return status;
  }
  *address = keep(std::move(kernel));
  const std::lock_guard lock(mutex_);
  uploaded_.push_back(*address);
  return PTO_OK;
}

void Loader::end_run() {
  std::vector<uint64_t> uploaded;
  {
    const std::lock_guard lock(mutex_);
    uploaded.swap(uploaded_);
  }
  for (const uint64_t address : uploaded) unload_kernel(address);
}

pto_status Loader::load_library(const char* path, uint64_t* library, pto_error* error) {
  std::string reason;
  const host::OwnLibrary own = host::open_own_library(path, reason);
  if (own.handle == nullptr) {
    return fail(error, PTO_ERROR_LOAD, "cannot load library %s: %s", path,
                with_advice(reason).c_str());
  }
  const std::lock_guard lock(mutex_);
  libraries_.emplace(own.handle, own.file);
  *library = reinterpret_cast<uint64_t>(own.handle);
  return PTO_OK;
}

pto_status Loader::unload_library(uint64_t library) {
  void* handle = reinterpret_cast<void*>(library);
  const std::lock_guard lock(mutex_);
  const auto found = libraries_.find(handle);
  if (found == libraries_.end()) return PTO_ERROR_USAGE;
  host::close_own_library({handle, found->second});
  libraries_.erase(found);
  return PTO_OK;
}

pto_status Loader::resolve(uint64_t library, const char* symbol, void** address) {
  void* handle = reinterpret_cast<void*>(library);
  const std::lock_guard lock(mutex_);
  if (libraries_.find(handle) == libraries_.end()) return PTO_ERROR_USAGE;
  *address = dlsym(handle, symbol);
  return *address != nullptr ? PTO_OK : PTO_ERROR_LOAD;
}

void Loader::abandon() {
  const std::lock_guard lock(mutex_);
  for (auto& [address, kernel] : kernels_) static_cast<void>(kernel.release());
  kernels_.clear();
  libraries_.clear();
}

uint64_t Loader::keep(std::unique_ptr<Kernel> kernel) {
  const uint64_t address = reinterpret_cast<uint64_t>(kernel.get());
  const std::lock_guard lock(mutex_);
  kernels_.emplace(address, std::move(kernel));
  return address;
}

}  // namespace pto::sim
