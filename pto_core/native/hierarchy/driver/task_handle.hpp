// TaskHandle: the result of a submit. A hand-written Python type, because each task creates one.
//
// It shares the state of its run, which lives as long as a handle does.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>

#include "driver/outcomes.hpp"

namespace pto::hierarchy {

namespace nb = nanobind;

class WorkerDriver;

// Shared by the handles of a run; a Python object, so that they count references.
struct RunObject {
  PyObject_HEAD WorkerDriver* driver;     // as long as driver_object is
  PyObject* driver_object;                // a reference
  std::shared_ptr<RunOutcomes> outcomes;  // null: a task of a capture
};

struct TaskHandle {
  PyObject_HEAD int64_t task;
  RunObject* run;     // a reference
  PyObject* outputs;  // set by the creator of the task; a reference, or null
};

// Return new references; nullptr, with the exception set, if memory is exhausted.
RunObject* make_run_object(WorkerDriver* driver, PyObject* driver_object,
                           std::shared_ptr<RunOutcomes> outcomes);
PyObject* make_task_handle(int64_t task, RunObject* run);
// Return the handle, or nullptr if the object is none.
TaskHandle* task_handle_of(PyObject* object);

void bind_task_handle(nb::module_& module);

}  // namespace pto::hierarchy
