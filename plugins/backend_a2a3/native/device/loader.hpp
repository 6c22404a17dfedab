// Libraries that the host sends as bytes: variants, orchestrations, and natively kernels.
//
// The bytes are written to a file of their own, so each load gets static variables of its own, and
// several variants can be loaded side by side. The file is removed once the library is loaded. One
// AICPU thread at a time changes the list.
#pragma once

#include <cstdint>

#include "abi/launch.h"
#include "device/array.hpp"

namespace pto::a2a3 {

class Loader {
 public:
  ~Loader();

  // `directory`: where to write files; empty: the built-in folders are tried. It stays valid.
  void open(int32_t device_id, const char* directory);
  // Answers the handle, and for a kernel the address of its symbol.
  pto_status load(const pto_a2a3_library& library, uint64_t* handle, uint64_t* address,
                  pto_error& error);
  pto_status unload(uint64_t handle, pto_error& error);
  // Returns NULL if the handle is none, or the library does not export the symbol.
  void* find(uint64_t handle, const char* symbol) const;

 private:
  struct Entry {
    uint64_t handle;
    uint32_t kind;
  };

  uint32_t index_of(uint64_t handle) const;
  void name_file(const char* folder, char* path, size_t capacity) const;

  int32_t device_id_ = 0;
  const char* directory_ = "";
  Array<Entry> entries_;
};

}  // namespace pto::a2a3
