#include "device/loader.hpp"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "abi/dispatcher.h"
#include "device/access.hpp"
#include "device/error.hpp"
#include "device/files.hpp"
#include "pto/engine/text.hpp"

// A new C library has a version of these functions that an older device does not have. Old and new
// libraries have the first version.
#if defined(__aarch64__) && defined(__GLIBC__)
__asm__(
    ".symver dlopen, dlopen@GLIBC_2.17\n"
    ".symver dlsym, dlsym@GLIBC_2.17\n"
    ".symver dlclose, dlclose@GLIBC_2.17\n"
    ".symver dlerror, dlerror@GLIBC_2.17\n");
#endif

namespace pto::a2a3 {
namespace {

constexpr const char* kKernelSymbol = "kernel_entry";
constexpr const char* kFolders[] = {PTO_A2A3_LIBRARY_FOLDER, "/var/tmp", "/tmp", "/dev/shm"};

}  // namespace

Loader::~Loader() {
  for (uint32_t i = 0; i < entries_.count(); ++i) {
    dlclose(reinterpret_cast<void*>(entries_[i].handle));
  }
}

void Loader::open(int32_t device_id, const char* directory) {
  device_id_ = device_id;
  directory_ = directory;
}

pto_status Loader::load(const pto_a2a3_library& library, uint64_t* handle, uint64_t* address,
                        pto_error& error) {
  from_host<char>(library.image, library.image_bytes);
  const char* given[] = {directory_};
  const bool is_given = directory_[0] != '\0';
  const char* const* folders = is_given ? given : kFolders;
  const uint32_t count = is_given ? 1 : sizeof kFolders / sizeof *kFolders;
  const char* reason = "";
  void* loaded = nullptr;
  for (uint32_t i = 0; i < count && loaded == nullptr; ++i) {
    char path[512];
    name_file(folders[i], path, sizeof path);
    const auto* image = reinterpret_cast<const char*>(library.image);
    if (const int failure = write_file(path, image, library.image_bytes)) {
      if (reason[0] == '\0') reason = strerror(failure);
      continue;
    }
    loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (loaded == nullptr) reason = dlerror();
    unlink(path);
  }
  if (loaded == nullptr) {
    return fail(error, PTO_ERROR_LOAD, "the device cannot load a library of ", library.image_bytes,
                " bytes: ", reason);
  }
  const char* symbol = library.symbol[0] != '\0' ? library.symbol : kKernelSymbol;
  void* found = library.kind == PTO_A2A3_KERNEL ? dlsym(loaded, symbol) : nullptr;
  if (library.kind == PTO_A2A3_KERNEL && found == nullptr) {
    dlclose(loaded);
    return fail(error, PTO_ERROR_LOAD, "the kernel's library does not export ", symbol);
  }
  *handle = reinterpret_cast<uint64_t>(loaded);
  *address = reinterpret_cast<uint64_t>(found);
  if (entries_.insert(entries_.count(), {*handle, library.kind})) return PTO_OK;
  dlclose(loaded);
  return fail(error, PTO_ERROR_MEMORY, "the device has no memory for its list of libraries");
}

// The name is never used twice: the loader takes a library with the path of a loaded one for it.
void Loader::name_file(const char* folder, char* path, size_t capacity) const {
  engine::Text(path, capacity)
      .add(folder, "/pto_a2a3_", device_id_, "_", static_cast<int32_t>(getpid()), "_",
           Aicpu::now_ns(), ".so");
}

pto_status Loader::unload(uint64_t handle, pto_error& error) {
  const uint32_t index = index_of(handle);
  if (index == entries_.count()) {
    return fail(error, PTO_ERROR_USAGE, "the device has no library with the handle ",
                engine::Address{handle});
  }
  dlclose(reinterpret_cast<void*>(handle));
  entries_.remove(index);
  return PTO_OK;
}

void* Loader::find(uint64_t handle, const char* symbol) const {
  if (index_of(handle) == entries_.count()) return nullptr;
  return dlsym(reinterpret_cast<void*>(handle), symbol);
}

uint32_t Loader::index_of(uint64_t handle) const {
  uint32_t index = 0;
  while (index < entries_.count() && entries_[index].handle != handle) ++index;
  return index;
}

}  // namespace pto::a2a3
