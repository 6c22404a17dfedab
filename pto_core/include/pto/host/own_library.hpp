// Loads a shared library so that its static variables belong to one device.
//
// The dynamic loader loads a file once for each process, so two devices that load one orchestration
// would share its static variables. A library that is loaded already is therefore loaded again,
// from a copy of its file in memory. For backends that load libraries into the host process.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>

#include "pto/engine/error_record.hpp"

namespace pto::host {

struct OwnLibrary {
  void* handle = nullptr;  // NULL if the library could not be loaded
  // Descriptor of the copy, or -1. The dynamic loader identifies a library by its path, and the
  // path of the copy contains the descriptor, so it stays open as long as the library.
  int file = -1;
};

// The path of a memory file. A debugger can open it, too.
inline std::string path_of_memory_file(int file) {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file);
}

inline void close_own_library(const OwnLibrary& library) {
  if (library.handle != nullptr) dlclose(library.handle);
  if (library.file >= 0) close(library.file);
}

// Returns the reason why dlopen(path) failed, without the path at its beginning, and with advice
// for an undefined symbol.
inline std::string load_failure(const std::string& path) {
  std::string text = dlerror();
  const std::string prefix = path + ": ";
  if (text.compare(0, prefix.size(), prefix) == 0) text.erase(0, prefix.size());
  if (text.rfind("undefined symbol: ", 0) == 0)
    text += ", which no library defines; define it in that source, or make it inline in a header";
  return text;
}

// Copies a file to memory. Returns a descriptor, or -1 with errno.
inline int copy_to_memory(const char* path) {
  const int source = open(path, O_RDONLY | O_CLOEXEC);
  if (source < 0) return -1;
  const int copy = memfd_create("library", MFD_CLOEXEC);
  ssize_t copied = copy < 0 ? -1 : 1;
  while (copied > 0) copied = sendfile(copy, source, nullptr, size_t{1} << 30);
  const int reason = errno;
  close(source);
  if (copied == 0) return copy;
  if (copy >= 0) close(copy);
  errno = reason;
  return -1;
}

// Whether this process has loaded the file.
inline bool is_loaded(const char* path) {
  void* library = dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (library != nullptr) dlclose(library);
  return library != nullptr;
}

// Loads the library at `path`. Without a handle, `reason` states why it cannot be loaded.
inline OwnLibrary open_own_library(const char* path, std::string& reason) {
  static std::mutex loading;  // otherwise two devices may both find that the file is not loaded
  const std::lock_guard<std::mutex> lock(loading);
  OwnLibrary library;
  std::string own = path;
  if (is_loaded(path)) {
    library.file = copy_to_memory(path);
    if (library.file < 0) {
      reason = std::string("it cannot be copied to memory: ") + std::strerror(errno);
      return {};
    }
    own = path_of_memory_file(library.file);
  }
  library.handle = dlopen(own.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle != nullptr) return library;
  reason = load_failure(own);
  close_own_library(library);
  return {};
}

// The orchestration libraries of one device, by handle. Any thread may call.
class OwnLibraries {
 public:
  OwnLibraries() = default;
  OwnLibraries(const OwnLibraries&) = delete;
  ~OwnLibraries() {
    for (const auto& [handle, library] : libraries_) close_own_library(library);
  }

  pto_status load(const char* path, uint64_t* library, pto_error* error) {
    std::string reason;
    const OwnLibrary loaded = open_own_library(path, reason);
    if (loaded.handle == nullptr) {
      return engine::fail(error, PTO_ERROR_LOAD, "cannot load library %s: %s", path,
                          reason.c_str());
    }
    *library = reinterpret_cast<uint64_t>(loaded.handle);
    const std::lock_guard<std::mutex> lock(mutex_);
    libraries_.emplace(*library, loaded);
    return PTO_OK;
  }

  pto_status unload(uint64_t library) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = libraries_.find(library);
    if (found == libraries_.end()) return PTO_ERROR_USAGE;
    close_own_library(found->second);
    libraries_.erase(found);
    return PTO_OK;
  }

  // See pto_platform.resolve.
  pto_status resolve(uint64_t library, const char* symbol, void** address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (libraries_.find(library) == libraries_.end()) return PTO_ERROR_USAGE;
    *address = dlsym(reinterpret_cast<void*>(library), symbol);
    return *address != nullptr ? PTO_OK : PTO_ERROR_LOAD;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<uint64_t, OwnLibrary> libraries_;
};

}  // namespace pto::host
