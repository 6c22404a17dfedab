// Numbers for the callables and configurations that submits name as objects. With the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "driver/driver.hpp"
#include "driver/submit_words.hpp"

namespace pto::hierarchy {

class CallNumbers {
 public:
  CallNumbers(Driver& driver, const WorkerSettings& settings)
      : driver_(driver), settings_(settings) {}

  // Raises UsageError for what is no handle that children of the kind run.
  uint32_t callable(PyObject* handle, Kind kind);
  // A configuration counts by value: one that has changed since is another.
  uint32_t config(PyObject* config);

 private:
  // What check_handle() found for one object, as long as no registration has ended since.
  struct KnownHandle {
    nb::object handle;
    uint64_t version = 0;
    CallableSpace space = CallableSpace::kLocalChip;
    uint32_t number = 0;
  };

  CallableSpace space_of(Kind kind) const {
    return kind == Kind::kSub ? CallableSpace::kLocalPython : settings_.next_level_space;
  }
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
