// Bindings for endpoints. Tables and ends are passed as addresses, which Driver and ChildLoop
// accept.

#include <dlfcn.h>
#include <nanobind/nanobind.h>

#include <string>

#include "bindings.hpp"
#include "endpoint/python_ends.hpp"
#include "text.hpp"

namespace pto::worker {

namespace {

template <class Type>
uintptr_t address_of(Type* object) {
  return reinterpret_cast<uintptr_t>(object);
}

// The plugin loader has already checked the library. It stays loaded as long as the process lives.
uintptr_t transport_table(const std::string& library, const std::string& name) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* entry = handle ? dlsym(handle, PTO_TRANSPORT_ENTRY) : nullptr;
  const pto_transport_api* api =
      entry ? reinterpret_cast<pto_transport_entry_fn>(entry)(name.c_str()) : nullptr;
  if (api == nullptr) throw nb::value_error(("no transport " + name + " in " + library).c_str());
  return address_of(api);
}

uint64_t memory_needed(uintptr_t table, uint32_t queue_frames, uint32_t queue_bytes) {
  const pto_connection wanted{nullptr, 0, nullptr, nullptr, queue_frames, queue_bytes};
  return at<const pto_transport_api>(table)->memory_needed(&wanted);
}

struct ConnectionPlace {
  uintptr_t memory;
  uint64_t memory_bytes;
  uintptr_t parent_bell;
  uintptr_t child_bell;
  uint32_t queue_frames;
  uint32_t queue_bytes;

  pto_connection connection() const {
    return {at<void>(memory),         memory_bytes, at<pto_bell>(parent_bell),
            at<pto_bell>(child_bell), queue_frames, queue_bytes};
  }
};

uintptr_t opened(void* end) {
  if (end == nullptr) throw std::bad_alloc();
  return address_of(end);
}

}  // namespace

void bind_endpoint(nb::module_& module) {
  nb::class_<ConnectionPlace>(module, "ConnectionPlace")
      .def(nb::init<uintptr_t, uint64_t, uintptr_t, uintptr_t, uint32_t, uint32_t>(),
           nb::arg("memory"), nb::arg("memory_bytes"), nb::arg("parent_bell"),
           nb::arg("child_bell"), nb::arg("queue_frames"), nb::arg("queue_bytes"));
  module.def("transport_table", transport_table, nb::arg("library"), nb::arg("name"));
  module.def("python_transport_table", [] { return address_of(&python_transport()); });
  module.def("connection_memory", memory_needed, nb::arg("table"), nb::arg("queue_frames"),
             nb::arg("queue_bytes"));
  module.def(
      "open_parent",
      [](uintptr_t table, const ConnectionPlace& place) {
        const pto_connection connection = place.connection();
        return opened(at<const pto_transport_api>(table)->open_parent(&connection));
      },
      nb::arg("table"), nb::arg("place"));
  module.def(
      "open_child",
      [](uintptr_t table, const ConnectionPlace& place) {
        const pto_connection connection = place.connection();
        return opened(at<const pto_transport_api>(table)->open_child(&connection));
      },
      nb::arg("table"), nb::arg("place"));
  module.def(
      "open_python_parent",
      [](nb::object end, const ConnectionPlace& place) {
        return opened(
            open_python_parent(std::move(end), at<pto_bell>(place.child_bell), place.queue_bytes));
      },
      nb::arg("end"), nb::arg("place"));
  module.def(
      "open_python_child",
      [](nb::object end, const ConnectionPlace& place) {
        return opened(
            open_python_child(std::move(end), at<pto_bell>(place.parent_bell), place.queue_bytes));
      },
      nb::arg("end"), nb::arg("place"));
}

}  // namespace pto::worker
