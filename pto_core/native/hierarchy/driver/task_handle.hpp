// TaskHandle: what a submit gives. A Python type by hand: one is made for each task.
//
// Its state is that of its run, which outlives the run for as long as a handle does.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>

#include "driver/outcomes.hpp"

namespace pto::hierarchy {

namespace nb = nanobind;

class WorkerDriver;

// Shared by the handles of a run; itself a Python object, so that they count it.
struct RunObject {
  PyObject_HEAD WorkerDriver* driver;     // as long as driver_object is
  PyObject* driver_object;                // a reference
  std::shared_ptr<RunOutcomes> outcomes;  // null: of a capture, of which nothing runs
};

struct TaskHandle {
  PyObject_HEAD int64_t task;
  RunObject* run;     // a reference
  PyObject* outputs;  // of whoever made a task of it; a reference, or null
};

// New references; nullptr, with the exception set, where memory is exhausted.
RunObject* make_run_object(WorkerDriver* driver, PyObject* driver_object,
                           std::shared_ptr<RunOutcomes> outcomes);
PyObject* make_task_handle(int64_t task, RunObject* run);
// The handle, or nullptr where it is none.
TaskHandle* task_handle_of(PyObject* object);

void bind_task_handle(nb::module_& module);

}  // namespace pto::hierarchy
