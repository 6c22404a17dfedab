// The numbers by which frames identify the callables and configurations of submits. Call with the
// GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "driver/driver.hpp"
#include "driver/submit_request.hpp"

namespace pto::hierarchy {

class CallNumbers {
 public:
  CallNumbers(Driver& driver, const WorkerSettings& settings)
      : driver_(driver), settings_(settings) {}

  // Return the number of the callable of a handle. Raise UsageError if the object is not a handle
  // for this kind of children. If the callable is for Workers on other hosts, set `workers` to the
  // children that have it; otherwise leave `workers` unchanged.
  uint32_t callable(PyObject* handle, Kind kind, std::vector<int32_t>& workers);
  // Return the number of a configuration. Configurations are compared by value, so a changed
  // configuration gets a new number.
  uint32_t config(PyObject* config);

 private:
  // The result of check_handle() for one object, valid until a registration ends.
  struct KnownHandle {
    nb::object handle;
    uint64_t version = 0;
    CallableSpace space = CallableSpace::kLocalChip;
    uint32_t number = 0;
  };

  CallableSpace space_of(Kind kind) const {
    return kind == Kind::kSub ? CallableSpace::kLocalPython : settings_.next_level_space;
  }
  // Return whether children of this kind run callables of that namespace.
  bool is_run_by(Kind kind, CallableSpace space) const;
  const CallableHandle& check_handle(PyObject* handle, Kind kind) const;
  uint32_t intern_config(nb::handle config);

  Driver& driver_;
  const WorkerSettings& settings_;
  std::array<KnownHandle, 64> known_handles_;
  nb::object last_config_, last_version_;
  uint32_t last_config_number_ = 0;
  std::unordered_map<std::string, uint32_t> config_numbers_;
};

}  // namespace pto::hierarchy
