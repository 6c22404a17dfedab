#include "loader.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "error.hpp"
#include "kernel_hooks.hpp"
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

// Connects a library that was built with the vendor's headers for simulators.
void connect_hooks(Kernel& kernel) {
  using Register = void (*)(void*, void*);
  const auto connect = reinterpret_cast<Register>(dlsym(kernel.library, "pto_sim_register_hooks"));
  kernel.has_hooks = connect != nullptr;
  if (!kernel.has_hooks) return;
  connect(reinterpret_cast<void*>(get_subblock_id), reinterpret_cast<void*>(get_pipe_shared_state));
}

// Connects a library that was built with pto/kernel/print.hpp.
void connect_texts(Kernel& kernel) {
  using Listen = void (*)(decltype(&take_text));
  const auto listen = reinterpret_cast<Listen>(dlsym(kernel.library, "pto_listen_to_texts"));
  kernel.has_texts = listen != nullptr;
  if (kernel.has_texts) listen(take_text);
}

pto_status open_kernel(Kernel& kernel, const char* path, const char* what, const char* symbol,
                       pto_error* error) {
  kernel.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (kernel.library == nullptr) {
    return fail_kernel(kernel, error, what, host::load_failure(path).c_str());
  }
  kernel.function = reinterpret_cast<KernelFunction>(dlsym(kernel.library, symbol));
  connect_recorder(kernel);
  connect_hooks(kernel);
  connect_texts(kernel);
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
    kernel->path = source.path;
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

uint64_t Loader::keep(std::unique_ptr<Kernel> kernel) {
  const uint64_t address = reinterpret_cast<uint64_t>(kernel.get());
  const std::lock_guard lock(mutex_);
  kernels_.emplace(address, std::move(kernel));
  return address;
}

}  // namespace pto::sim
