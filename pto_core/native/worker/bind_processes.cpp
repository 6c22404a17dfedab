// Bindings for pto_core.worker.memory and .processes: memory shared with children, and the first
// steps of a child.

#include <nanobind/nanobind.h>
#include <sys/prctl.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>

#include "bindings.hpp"
#include "processes/processes.hpp"
#include "text.hpp"

namespace pto::worker {
namespace {

// Run `call`; convert a std::system_error to an OSError with the same error number.
template <class Call>
auto as_os_error(Call call) {
  try {
    return call();
  } catch (const std::system_error& error) {
    PyErr_SetObject(PyExc_OSError, nb::make_tuple(error.code().value(), error.what()).ptr());
    throw nb::python_error();
  }
}

// An allocated range of a mapping, which contains an array. When the last reference is dropped, the
// range is zeroed, and `note` receives its offset, its size, and False. With `may_keep`, if the
// mapping keeps no other range, the range keeps its pages and its content, and `note` receives
// True. This class is native, because a signal handler could run inside a Python destructor, which
// would drop the handler's exception.
class SharedBlock {
 public:
  SharedBlock(nb::object mapping, uint64_t offset, uint64_t bytes, nb::object note,
              nb::object shape, nb::object type, bool may_keep)
      : mapping_(std::move(mapping)),
        note_(std::move(note)),
        shape_(std::move(shape)),
        type_(std::move(type)),
        offset_(offset),
        bytes_(bytes),
        may_keep_(may_keep) {}

  ~SharedBlock() {
    auto* mapping = nb::inst_ptr<SharedMapping>(mapping_);
    if (!mapping->is_owner())
      return;  // in a forked process: leave the memory unchanged, because the parent still uses it
    const bool is_kept = may_keep_ && mapping->try_keep();
    if (!is_kept) mapping->zero(offset_, bytes_);
    const nb::error_scope caller;
    const nb::object place =
        nb::steal(Py_BuildValue("(KKO)", offset_, bytes_, is_kept ? Py_True : Py_False));
    const nb::object noted = nb::steal(PyObject_CallOneArg(note_.ptr(), place.ptr()));
    if (!noted.is_valid()) PyErr_Clear();
  }
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;

  nb::typed<nb::dict, nb::str, nb::object> array_interface() const {
    nb::dict made;
    made["version"] = 3;
    made["shape"] = shape_;
    made["typestr"] = type_;
    const auto* mapping = nb::inst_ptr<SharedMapping>(mapping_);
    made["data"] = nb::make_tuple(mapping->address() + offset_, false);
    return nb::borrow<nb::typed<nb::dict, nb::str, nb::object>>(made);
  }

 private:
  nb::object mapping_, note_, shape_, type_;
  uint64_t offset_, bytes_;
  bool may_keep_;
};

void bind_block(nb::module_& module) {
  nb::class_<SharedBlock>(module, "SharedBlock")
      .def(
          "__init__",
          [](SharedBlock* self, nb::handle_t<SharedMapping> mapping, uint64_t offset,
             uint64_t bytes, nb::object note, nb::typed<nb::tuple, nb::int_, nb::ellipsis> shape,
             nb::str type, bool may_keep) {
            new (self) SharedBlock(nb::borrow(mapping), offset, bytes, std::move(note),
                                   std::move(shape), std::move(type), may_keep);
          },
          nb::arg("mapping"), nb::arg("offset"), nb::arg("bytes"), nb::arg("note"),
          nb::arg("shape"), nb::arg("typestr"), nb::arg("may_keep") = false)
      .def_prop_ro("__array_interface__", &SharedBlock::array_interface);
}

void bind_mapping(nb::module_& module) {
  nb::class_<SharedMapping>(module, "SharedMapping", nb::is_weak_referenceable())
      .def(
          "__init__",
          [](SharedMapping* self, uint64_t bytes, const std::string& path) {
            as_os_error([&] { new (self) SharedMapping(bytes, path); });
          },
          nb::arg("bytes"), nb::arg("path") = "")
      .def_static(
          "attach",
          [](int descriptor, uint64_t bytes, uint64_t address) {
            return as_os_error([&] { return new SharedMapping(descriptor, bytes, address); });
          },
          nb::arg("descriptor"), nb::arg("bytes"), nb::arg("address"),
          nb::rv_policy::take_ownership)
      .def_prop_ro("address", &SharedMapping::address)
      .def_prop_ro("nbytes", &SharedMapping::bytes)
      .def_prop_ro("descriptor", &SharedMapping::descriptor)
      .def_prop_ro("is_owner", &SharedMapping::is_owner)
      .def_prop_ro("resident_bytes", &SharedMapping::resident_bytes)
      .def("zero", &SharedMapping::zero, nb::arg("offset"), nb::arg("bytes"))
      .def("try_keep", &SharedMapping::try_keep)
      .def("release_kept", &SharedMapping::release_kept);
  nb::class_<AddressReservation>(module, "AddressReservation")
      .def(
          "__init__",
          [](AddressReservation* self, uint64_t bytes) {
            as_os_error([&] { new (self) AddressReservation(bytes); });
          },
          nb::arg("bytes"))
      .def_prop_ro("address", &AddressReservation::address)
      .def_prop_ro("nbytes", &AddressReservation::bytes);
}

}  // namespace

void bind_processes(nb::module_& module) {
  bind_mapping(module);
  bind_block(module);
  module.def(
      "watch_parent", [](int parent) { as_os_error([&] { watch_parent(parent); }); },
      nb::arg("parent"));
  module.def("find_thread_pools", &find_thread_pools);
  module.def(
      "limit_thread_pools",
      [](bool openmp, bool openblas, bool mkl, bool blis, int threads) {
        return limit_thread_pools({openmp, openblas, mkl, blis}, threads);
      },
      nb::kw_only(), nb::arg("openmp"), nb::arg("openblas"), nb::arg("mkl"), nb::arg("blis"),
      nb::arg("threads"));
  module.def("block_signals", [] {
    const std::string saved = block_signals();
    return nb::bytes(saved.data(), saved.size());
  });
  module.def(
      "restore_signals",
      [](const nb::bytes& saved) { restore_signals({saved.c_str(), saved.size()}); },
      nb::arg("saved"));
  module.def("reset_signals", &reset_signals);
  // Set the name that `ps` and /proc show. Only the first 15 bytes are used.
  module.def(
      "set_process_name", [](const std::string& name) { prctl(PR_SET_NAME, name.c_str()); },
      nb::arg("name"));
  // Flush the output of native code. Otherwise a forked process would print buffered output again.
  module.def("flush_streams", [] { std::fflush(nullptr); });
}

}  // namespace pto::worker
