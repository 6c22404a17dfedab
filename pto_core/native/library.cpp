#include "library.hpp"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdlib>
#include <memory>

#include "errors.hpp"

namespace pto::core {
namespace {

void* symbol_of(const std::string& path, const char* symbol) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    raise_error("PluginLoadError", "the native library " + path + " cannot be loaded: " +
                                       (reason ? reason : "unknown reason") +
                                       "; reinstall its plugin");
  }
  void* found = dlsym(library, symbol);
  if (!found) {
    raise_error("PluginLoadError", "the native library " + path + " does not export " + symbol +
                                       "; it is not a plugin library of this family");
  }
  return found;
}

[[noreturn]] void raise_version(const std::string& path, const char* what, uint64_t wanted,
                                uint64_t found) {
  nb::dict fields;
  fields["wanted"] = wanted;
  fields["found"] = found;
  raise_error("PluginVersionError",
              "the native library " + path + " was built with " + what + " " +
                  std::to_string(found) + ", but this core needs " + std::to_string(wanted) +
                  "; install a plugin and a ptorun-core that were built for each other",
              fields);
}

// Return the table if it has the right version and size. Check the version first, because a table
// of another version may have another size.
template <class Table>
const Table* checked(const std::string& path, const Table* table, const char* kind) {
  if (table->abi_version != PTO_ABI_VERSION)
    raise_version(path, "native ABI version", PTO_ABI_VERSION, table->abi_version);
  if (table->struct_size != sizeof(Table))
    raise_version(path, kind, sizeof(Table), table->struct_size);
  return table;
}

}  // namespace

const pto_backend_api* load_backend_library(const std::string& path) {
  auto entry = reinterpret_cast<pto_backend_entry_fn>(symbol_of(path, PTO_BACKEND_ENTRY_SYMBOL));
  const pto_backend_api* table = entry();
  if (!table) raise_error("PluginLoadError", path + " returns no backend table; reinstall it");
  return checked(path, table, "a backend table of size");
}

const pto_runtime_api* load_runtime_library(const std::string& path, const std::string& variant) {
  auto entry = reinterpret_cast<pto_runtime_entry_fn>(symbol_of(path, PTO_RUNTIME_ENTRY_SYMBOL));
  const pto_runtime_api* table = entry(variant.c_str());
  if (!table) {
    raise_error("PluginLoadError",
                path + " has no runtime variant '" + variant +
                    "', so the plugin and its native library do not match; reinstall the plugin");
  }
  return checked(path, table, "a runtime table of size");
}

std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  return name ? name.get() : symbol;
}

}  // namespace pto::core
