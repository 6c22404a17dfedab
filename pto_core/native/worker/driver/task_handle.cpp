#include "driver/task_handle.hpp"

#include <structmember.h>

#include <cstddef>
#include <new>

#include "arguments/python_type.hpp"
#include "driver/worker_driver.hpp"
#include "errors.hpp"

namespace pto::worker {
namespace {

PyTypeObject* run_type = nullptr;
PyTypeObject* base_type = nullptr;
PyTypeObject* handle_type = nullptr;  // base_type, or the class that is derived from it

TaskHandle* handle_of(PyObject* self) {
  return reinterpret_cast<TaskHandle*>(self);
}

void delete_run(PyObject* self) {
  auto* run = reinterpret_cast<RunObject*>(self);
  std::destroy_at(&run->outcomes);
  Py_XDECREF(run->driver_object);
  PyTypeObject* type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(type);
}

void delete_handle(PyObject* self) {
  TaskHandle* handle = handle_of(self);
  Py_DECREF(reinterpret_cast<PyObject*>(handle->run));
  Py_XDECREF(handle->outputs);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

Driver& driver_of(const TaskHandle* handle) {
  return handle->run->driver->driver();
}

void check_runs(const TaskHandle* handle) {
  if (handle->run->outcomes) return;
  core::raise_usage(
      "task " + std::to_string(handle->task) +
      " belongs to a captured graph and has not run: a capture only records submits, and "
      "cannot wait for a task or use its result");
}

bool has_ended(const TaskHandle* handle) {
  check_runs(handle);
  return handle->run->outcomes->is_over ||
         driver_of(handle).ask()->core.book.has_ended(handle->task);
}

PyObject* ended(PyObject* self, void*) {
  return or_raise(
      [&] { return PyBool_FromLong(or_error([&] { return has_ended(handle_of(self)); })); });
}

// Return (result, cause, root) of a task that did not complete, otherwise None.
PyObject* failure(PyObject* self, void*) {
  return or_raise([&]() -> PyObject* {
    const TaskHandle* handle = handle_of(self);
    check_runs(handle);
    int32_t child = 0;
    const auto found = or_error([&] {
      return driver_of(handle).ask()->core.book.ended(handle->task, handle->run->outcomes.get(),
                                                      &child);
    });
    if (!found) Py_RETURN_NONE;
    return Py_BuildValue("(iLL)", static_cast<int>(found->result),
                         static_cast<long long>(found->cause), static_cast<long long>(found->root));
  });
}

PyObject* driver(PyObject* self, void*) {
  return Py_NewRef(handle_of(self)->run->driver_object);
}

// Convert a timeout in seconds to nanoseconds; None means no limit.
uint64_t timeout_ns(PyObject* object) {
  if (!object || object == Py_None) return UINT64_MAX;
  const double seconds = PyFloat_AsDouble(object);
  if (seconds == -1.0 && PyErr_Occurred()) throw nb::python_error();
  if (!(seconds >= 0))
    core::raise_usage("timeout is negative or not a number; pass 0 or more seconds, or None");
  return seconds > 1e9 ? UINT64_MAX : static_cast<uint64_t>(seconds * 1e9);
}

PyObject* wait(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return or_raise([&]() -> PyObject* {
    PyObject* timeout = count > 0 ? values[0] : nullptr;
    const bool is_named =
        names && PyTuple_GET_SIZE(names) == 1 && count == 0 &&
        PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "timeout") == 0;
    if (is_named) timeout = values[0];
    if (count > 1 || (names && PyTuple_GET_SIZE(names) > 0 && !is_named)) {
      PyErr_SetString(PyExc_TypeError, "wait() takes only timeout");
      return nullptr;
    }
    TaskHandle* handle = handle_of(self);
    const uint64_t limit = timeout_ns(timeout);
    return PyBool_FromLong(
        or_error([&] { return has_ended(handle) || driver_of(handle).wait(handle->task, limit); }));
  });
}

PyObject* shown(PyObject* self) {
  return PyUnicode_FromFormat("<TaskHandle %lld>", static_cast<long long>(handle_of(self)->task));
}

PyMethodDef handle_methods[] = {
    {"wait", method_of(&wait), METH_FASTCALL | METH_KEYWORDS,
     "wait($self, timeout=None)\n--\n\nWait until the task has ended, with or without an error; "
     "return False after `timeout` seconds."},
    {nullptr, nullptr, 0, nullptr}};

PyMemberDef handle_members[] = {
    {"task_slot", T_LONGLONG, offsetof(TaskHandle, task), READONLY, "The number of the task."},
    {"outputs", T_OBJECT, offsetof(TaskHandle, outputs), 0,
     "The value that result() returns; None at "
     "first."},
    {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef handle_properties[] = {
    {"has_ended", &ended, nullptr, "Whether the task has ended.", nullptr},
    {"driver", &driver, nullptr, "The Driver to which the task was submitted.", nullptr},
    {"failure", &failure, nullptr,
     "(result, cause, root) of a task that failed or was poisoned, with -1 for no cause or root; "
     "None for other tasks, and while the task runs.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot handle_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(&delete_handle)},
                              {Py_tp_methods, handle_methods},
                              {Py_tp_members, handle_members},
                              {Py_tp_getset, handle_properties},
                              {Py_tp_repr, reinterpret_cast<void*>(&shown)},
                              {Py_tp_doc, const_cast<char*>("A submitted task.")},
                              {0, nullptr}};
PyType_Spec handle_spec = {
    "pto_core._worker.HandleBase", sizeof(TaskHandle), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, handle_slots};

PyType_Slot run_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(&delete_run)}, {0, nullptr}};
PyType_Spec run_spec = {"pto_core._worker._Run", sizeof(RunObject), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, run_slots};

}  // namespace

RunObject* make_run_object(WorkerDriver* driver, PyObject* driver_object,
                           std::shared_ptr<RunOutcomes> outcomes, uint32_t config) {
  RunObject* run = PyObject_New(RunObject, run_type);
  if (!run) return nullptr;
  run->driver = driver;
  run->driver_object = Py_NewRef(driver_object);
  new (&run->outcomes) std::shared_ptr<RunOutcomes>(std::move(outcomes));
  run->config = config;
  return run;
}

PyObject* make_task_handle(int64_t task, RunObject* run) {
  PyObject* made = handle_type->tp_alloc(handle_type, 0);
  if (!made) return nullptr;
  handle_of(made)->task = task;
  Py_INCREF(reinterpret_cast<PyObject*>(run));
  handle_of(made)->run = run;
  return made;
}

TaskHandle* task_handle_of(PyObject* object) {
  return PyObject_TypeCheck(object, base_type) ? handle_of(object) : nullptr;
}

void bind_task_handle(nb::module_& module) {
  run_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&run_spec));
  base_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&handle_spec));
  if (!run_type || !base_type) throw nb::python_error();
  handle_type = base_type;
  const nb::object base = nb::borrow(reinterpret_cast<PyObject*>(base_type));
  module.attr("HandleBase") = base;
  module.def(
      "set_handle_type",
      [](nb::handle type) {
        PyTypeObject* made = reinterpret_cast<PyTypeObject*>(type.ptr());
        if (!PyType_Check(type.ptr()) || !PyType_IsSubtype(made, base_type))
          core::raise_usage("the type of handles is not derived from HandleBase; derive it");
        handle_type = reinterpret_cast<PyTypeObject*>(type.inc_ref().ptr());
      },
      nb::arg("type"), nb::sig("def set_handle_type(type: type[HandleBase]) -> None"),
      "Set the class of the handles that submits return.");
}

}  // namespace pto::worker
