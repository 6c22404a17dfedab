// TaskHandle: the result of a submit. Its Python type HandleBase is written with the C API, to be
// fast, because each task creates an object. A class that pto_core derives from it adds the methods
// of a future.
//
// A handle shares the outcomes of its run, which live as long as any handle of the run.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>

#include "driver/records.hpp"

namespace pto::worker {

namespace nb = nanobind;

class WorkerDriver;

// A run or a capture: the data that its handles and its orchestrator share. It is a Python object,
// so that they can count references to it.
struct RunObject {
  PyObject_HEAD WorkerDriver* driver;     // valid as long as driver_object is alive
  PyObject* driver_object;                // an owned reference
  std::shared_ptr<RunOutcomes> outcomes;  // null for a capture
  uint32_t config;  // of tasks of the next level that are submitted without a configuration
};

struct TaskHandle {
  PyObject_HEAD int64_t task;
  RunObject* run;     // an owned reference
  PyObject* outputs;  // an owned reference set by the creator of the task, or null
};

// Create an object and return a new reference, or nullptr, with the exception set, if memory is
// exhausted.
RunObject* make_run_object(WorkerDriver* driver, PyObject* driver_object,
                           std::shared_ptr<RunOutcomes> outcomes, uint32_t config);
PyObject* make_task_handle(int64_t task, RunObject* run);
// Return the handle, or nullptr if the object is not a handle.
TaskHandle* task_handle_of(PyObject* object);

void bind_task_handle(nb::module_& module);

}  // namespace pto::worker
