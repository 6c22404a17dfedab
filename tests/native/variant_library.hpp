// Loads the library of a variant as the core does.
#pragma once

#include <dlfcn.h>

#include <string>

#include "check.hpp"
#include "pto/abi/runtime.h"

inline pto_runtime_entry_fn load_entry(const std::string& name) {
  const std::string path = std::string(PTO_VARIANT_DIRECTORY) + "/libpto_" + name + ".so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) check::fail(__FILE__, __LINE__, dlerror());
  void* symbol = dlsym(library, PTO_RUNTIME_ENTRY_SYMBOL);
  CHECK(symbol != nullptr);
  return reinterpret_cast<pto_runtime_entry_fn>(symbol);
}

inline const pto_runtime_api* load_variant(const std::string& name) {
  const pto_runtime_api* api = load_entry(name)(name.c_str());
  CHECK(api != nullptr);
  return api;
}
