#include "driver/call_numbers.hpp"

#include "errors.hpp"
#include "text.hpp"

namespace pto::hierarchy {

bool CallNumbers::is_run_by(Kind kind, CallableSpace space) const {
  if (space == space_of(kind)) return true;
  return space == CallableSpace::kRemoteTaskDispatcher && kind == Kind::kNextLevel;
}

const CallableHandle& CallNumbers::check_handle(PyObject* object, Kind kind) const {
  const CallableHandle& handle = settings_.callables->check(object ? object : Py_None);
  if (is_run_by(kind, handle.space)) return handle;
  const char* call = call_of(kind);
  core::raise_usage(
      "'" + handle.name + "' is " +
      (handle.space == CallableSpace::kLocalChip ? "a chip callable" : "a Python function") +
      ", which the children of " + call + " do not run; use " +
      call_of(kind == Kind::kSub ? Kind::kNextLevel : Kind::kSub));
}

uint32_t CallNumbers::callable(PyObject* object, Kind kind, std::vector<int32_t>& workers) {
  KnownHandle& known = known_handles_[(reinterpret_cast<uintptr_t>(object) >> 5) % 64];
  const uint64_t version = settings_.callables->version();
  if (known.handle.ptr() == object && object && known.version == version &&
      known.space == space_of(kind)) {
    return known.number;
  }
  const CallableHandle handle = check_handle(object, kind);  // add_callable() may release the GIL
  {
    const Role role = driver_.ask();
    DriverCore& core = role->core;
    const uint32_t callables = core.catalogue.callables();
    known.number = core.catalogue.add_callable(handle.digest, handle.name);
    if (core.catalogue.callables() > callables) core.tracer.callable_added(handle.name);
  }
  known.space = handle.space;
  known.version = version;
  known.handle = nb::borrow(object);
  if (handle.space == CallableSpace::kRemoteTaskDispatcher) {
    const auto found = settings_.callables->workers_of(handle);
    workers.assign(found.begin(), found.end());
  }
  return known.number;
}

uint32_t CallNumbers::config(PyObject* config) {
  static PyObject* const version_name = PyUnicode_InternFromString("_version");
  const nb::object version = nb::steal(PyObject_GetAttr(config, version_name));
  if (!version.is_valid()) PyErr_Clear();
  if (config == last_config_.ptr() && version.is_valid() && version.is(last_version_))
    return last_config_number_;
  const uint32_t number = intern_config(config);
  last_config_ = nb::borrow(config);
  last_version_ = version;
  last_config_number_ = number;
  return number;
}

uint32_t CallNumbers::intern_config(nb::handle config) {
  if (!nb::hasattr(config, "pack")) {
    core::raise_usage("config is " + core::shown(config) + "; pass a CallConfig, or None for the " +
                      "run's");
  }
  const nb::bytes packed = nb::cast<nb::bytes>(config.attr("pack")());
  const std::string key(packed.c_str(), packed.size());
  const nb::object dumps = nb::module_::import_("pickle").attr("dumps");
  // Other threads may add configurations at the same time.
  while (true) {
    const auto found = config_numbers_.find(key);
    if (found != config_numbers_.end()) return found->second;
    const uint32_t number = driver_.ask()->core.catalogue.next_config();
    const auto frame =
        nb::cast<nb::bytes>(dumps(nb::make_tuple("config", nb::make_tuple(number, packed))));
    if (driver_.ask()->core.catalogue.add_config(number, std::string(frame.c_str(), frame.size())))
      return config_numbers_.try_emplace(key, number).first->second;
  }
}

}  // namespace pto::hierarchy
