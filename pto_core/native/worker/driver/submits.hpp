// The submits of a Worker. Converts Python objects to calls of the driver, or of the current
// capture. Any thread may call it with the GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "callable/live_callables.hpp"
#include "driver/captures.hpp"
#include "driver/child_memory.hpp"
#include "driver/driver.hpp"
#include "driver/records.hpp"
#include "driver/submit_call.hpp"
#include "engine/interface.hpp"

namespace pto::worker {

namespace nb = nanobind;

// The source positions of submits. Code objects are identified by numbers. Call with the GIL held.
class SourcePlaces {
 public:
  SourcePlaces();

  // Return the position of the innermost frame outside of this package.
  SubmitPosition of_caller();
  // Set the file and the line, or return false if they are unknown. No Python code runs.
  bool find(const SubmitPosition& place, std::string* file, int* line) const;
  // Return (file, line), or (None, None) if unknown.
  nb::object file_and_line(const SubmitPosition& place) const;

 private:
  uint32_t code_number(PyObject* code);

  const std::string own_folder_;  // the folder of this package
  // code objects of the program, by number; number 0 means unknown
  std::vector<nb::object> codes_{nb::object()};
  // number of each code object; 0 for code of this package
  std::unordered_map<PyObject*, uint32_t> code_numbers_;
  std::vector<nb::object> own_codes_;  // code objects of this package
  PyObject* last_code_ = nullptr;
  uint32_t last_code_number_ = 0;
};

// The numbers by which frames identify the callables and configurations of submits. Call with the
// GIL held.
class CallNumbers {
 public:
  CallNumbers(Driver& driver, const SubmitSettings& settings)
      : driver_(driver), settings_(settings) {}

  // The result of check_handle() for one object, valid until a registration ends.
  struct KnownHandle {
    nb::object handle;
    uint64_t version = 0;
    CallableSpace space = CallableSpace::kLocalChip;
    uint32_t number = 0;
    bool declares_scalars = false;  // the signature of the callable declares types of scalars
  };

  // Return the number of the callable of a handle. Raise UsageError if the object is not a handle
  // for this kind of children. If the callable is for Workers on other hosts, set `workers` to the
  // children that have it; otherwise leave `workers` unchanged.
  const KnownHandle& callable(PyObject* handle, Kind kind, std::vector<int32_t>& workers);
  // Return the number of a configuration. Configurations are compared by value, so a changed
  // configuration gets a new number.
  uint32_t config(PyObject* config);

 private:
  CallableSpace space_of(Kind kind) const {
    return kind == Kind::kSub ? CallableSpace::kLocalPython : settings_.next_level_space;
  }
  // Return whether children of this kind run callables of that namespace.
  bool is_run_by(Kind kind, CallableSpace space) const;
  const CallableHandle& check_handle(PyObject* handle, Kind kind) const;
  uint32_t intern_config(nb::handle config);

  Driver& driver_;
  const SubmitSettings& settings_;
  std::array<KnownHandle, 64> known_handles_;
  nb::object last_config_, last_version_;
  uint32_t last_config_number_ = 0;
  std::unordered_map<std::string, uint32_t> config_numbers_;
};

class WorkerDriver;
struct RunObject;
struct TaskHandle;

class Submits {
 public:
  Submits(WorkerDriver& worker, Driver& driver, const SubmitSettings& settings, ChildMemory& memory,
          ChildPlaces& children, Captures& captures);
  ~Submits() { drop_kept(INT64_MAX); }
  Submits(const Submits&) = delete;
  Submits& operator=(const Submits&) = delete;

  // Return a new TaskHandle.
  PyObject* submit(SubmitCall& call);
  // Submit tasks. Task i gets the i-th part of each tensor of `call.args` along its first
  // dimension, and row i of `scalars` after its own scalars. Return the range of task numbers.
  nb::object submit_many(SubmitCall& call, PyObject* scalars);
  nb::object allocate(const RunObject& run, nb::handle shape, nb::handle dtype);
  void scope_begin(const RunObject& run);
  void scope_end(const RunObject& run);

  // Drop the owners of memory that only tasks before number `before` use.
  void drop_kept(int64_t before);
  const SourcePlaces& places() const { return places_; }
  ChildPlaces& children() { return children_; }
  uint32_t config_number(nb::handle config) {
    return config.is_none() ? 0 : numbers_.config(config.ptr());
  }

 private:
  struct Kept {
    int64_t task;
    PyObject* owner;  // an owned reference
  };

  // Raise UsageError unless this run or capture is open. Return the capture, or null for a run.
  Capture* check_open(const RunObject& run) const;
  void begin_call(SubmitCall& call);
  void read_workers(SubmitCall& call) const;
  int32_t child_of(PyObject* worker, Kind kind) const;
  void check_present(Kind kind, size_t members) const;
  void read_producers(SubmitCall& call) const;
  int64_t producer_of(const RunObject& run, PyObject* object, const char* text) const;
  static void check_run(const TaskHandle& handle, const RunObject& run);
  void place_by_callable(SubmitCall& call) const;
  // Return the memory that is mapped in all children on which the task may run.
  VisibleMemory& memory_for(const SubmitCall& call) const {
    return settings_.attached ? memory_among(call) : *settings_.memory;
  }
  VisibleMemory& memory_among(const SubmitCall& call) const;
  int64_t submit_call(const SubmitCall& call);
  void submit_each(const SubmitCall& call, int64_t count,
                   const std::function<void(int64_t)>& prepare, TaskRange& made);
  void learn_addresses(const SubmitCall& call, int64_t task);
  void keep(PyObject* owner, int64_t task);

  WorkerDriver& worker_;
  Driver& driver_;
  const SubmitSettings& settings_;
  ChildMemory& memory_;
  ChildPlaces& children_;
  Captures& captures_;
  SourcePlaces places_;
  CallNumbers numbers_;
  std::deque<Kept> kept_;  // owners of the memory of live tasks, ascending by task
};

}  // namespace pto::worker
