// The Python class Orchestrator, with which a graph function submits its tasks. Its submits are
// called once per task, so they use the vectorcall convention, which builds no argument tuple.

#include <nanobind/nanobind.h>

#include "arguments/python_type.hpp"
#include "bindings.hpp"
#include "driver/task_handle.hpp"
#include "driver/worker_driver.hpp"
#include "errors.hpp"

namespace pto::worker {
namespace {

struct Orchestrator {
  RunObject& run() const { return *reinterpret_cast<RunObject*>(object.ptr()); }
  Submits& submits() const { return run().driver->submits(); }

  nb::object object;  // a RunObject: the run or capture to which this object submits
};

struct Scope {
  Orchestrator orchestrator;
};

enum class Form { kNextLevel, kNextLevelGroup, kSub, kSubGroup };

constexpr bool is_group(Form form) {
  return form == Form::kNextLevelGroup || form == Form::kSubGroup;
}
constexpr bool is_sub(Form form) {
  return form == Form::kSub || form == Form::kSubGroup;
}
constexpr const char* name_of(Form form) {
  constexpr const char* kNames[] = {"submit_next_level", "submit_next_level_group", "submit_sub",
                                    "submit_sub_group"};
  return kNames[static_cast<int>(form)];
}

PyObject** place_of(Form form, SubmitCall& call, PyObject* name) {
  const auto is = [name](const char* word) {
    return PyUnicode_CompareWithASCIIString(name, word) == 0;
  };
  if (is("handle")) return &call.handle;
  if (is(is_group(form) ? "args_list" : "args")) return &call.args;
  if (!is_sub(form) && is("config")) return &call.config;
  if (is(is_group(form) ? "workers" : "worker")) return &call.workers;
  if (is("retries")) return &call.retries;
  if (is("timeout_s")) return &call.timeout_s;
  if (is("hint")) return &call.hint;
  if (is("after")) return &call.after;
  return nullptr;
}

bool take_names(Form form, PyObject* const* values, PyObject* names, SubmitCall& call) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    PyObject** place = place_of(form, call, name);
    if (place && !*place) {
      *place = values[i];
      continue;
    }
    PyErr_Format(PyExc_TypeError,
                 place ? "%s() got multiple values for argument %R"
                       : "%s() got an unexpected keyword argument %R",
                 name_of(form), name);
    return false;
  }
  return true;
}

bool read_arguments(Form form, PyObject* const* values, Py_ssize_t count, PyObject* names,
                    SubmitCall& call) {
  const Py_ssize_t most = is_sub(form) ? 2 : 3;
  if (count > most) {
    PyErr_Format(PyExc_TypeError,
                 "%s() takes at most %zd positional arguments, but %zd were "
                 "passed",
                 name_of(form), most, count);
    return false;
  }
  if (count > 0) call.handle = values[0];
  if (count > 1) call.args = values[1];
  if (count > 2) call.config = values[2];
  return !names || take_names(form, values + count, names, call);
}

template <Form kForm>
PyObject* submit(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return or_raise([&]() -> PyObject* {
    const Orchestrator& orchestrator = *nb::inst_ptr<Orchestrator>(self);
    SubmitCall call(orchestrator.run(), is_sub(kForm) ? Kind::kSub : Kind::kNextLevel,
                    is_group(kForm));
    if (!read_arguments(kForm, values, count, names, call)) return nullptr;
    return orchestrator.submits().submit(call);
  });
}

// Return a new handle of each task that uses the memory and has not completed.
nb::list users(const Orchestrator& self, uint64_t address, uint64_t bytes) {
  RunObject& run = self.run();
  Driver& driver = run.driver->driver();
  nb::list made;
  if (!run.outcomes) return made;  // the tasks of a capture do not run
  const auto found = driver.ask()->core.book.users({address, address + bytes}, *run.outcomes);
  for (const int64_t task : found) {
    const nb::object handle = nb::steal(make_task_handle(task, &run));
    if (!handle.is_valid()) throw nb::python_error();
    made.append(handle);
  }
  return made;
}

PyMethodDef orchestrator_methods[] = {
    {"submit_next_level", method_of(&submit<Form::kNextLevel>), METH_FASTCALL | METH_KEYWORDS,
     "submit_next_level($self, handle, args, config=None, *, worker=-1, retries=0, "
     "timeout_s=None, hint=False, after=())\n--\n\nSubmit a task for a chip, or for a Worker of "
     "the level below, and return its TaskHandle.\n\n`args`: a TaskArgs, whose tags determine the "
     "tasks that this one waits for. `config`: None takes that of the run. `worker`: the child "
     "that runs the task, -1 for any child; with `hint`, the preferred child. `retries`: how "
     "often the task may run again; a value above 0 declares that repeating it is safe. "
     "`timeout_s`: the time limit of the task. `after`: handles of additional tasks that it waits "
     "for, and whose failure poisons it. The call waits while a heap ring is full, and raises "
     "DeadlockError if that would never end."},
    {"submit_next_level_group", method_of(&submit<Form::kNextLevelGroup>),
     METH_FASTCALL | METH_KEYWORDS,
     "submit_next_level_group($self, handle, args_list, config=None, *, workers=None, retries=0, "
     "timeout_s=None, hint=False, after=())\n--\n\n"
     "Submit one task that runs on as many children at once as `args_list` has members."},
    {"submit_sub", method_of(&submit<Form::kSub>), METH_FASTCALL | METH_KEYWORDS,
     "submit_sub($self, handle, args=None, *, worker=-1, retries=0, timeout_s=None, "
     "hint=False, after=())\n--\n\n"
     "Submit a task for a SUB child: a Python function. It is called without arguments if `args` "
     "is None."},
    {"submit_sub_group", method_of(&submit<Form::kSubGroup>), METH_FASTCALL | METH_KEYWORDS,
     "submit_sub_group($self, handle, args_list, *, workers=None, retries=0, timeout_s=None, "
     "hint=False, after=())\n--\n\n"
     "Submit one task that runs on as many SUB children at once as `args_list` has members."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot orchestrator_slots[] = {{Py_tp_methods, orchestrator_methods}, {0, nullptr}};

void bind_scope(nb::module_& module) {
  nb::class_<Scope>(module, "Scope", "A scope of a graph, as a context manager.")
      .def("__enter__",
           [](Scope& scope) { scope.orchestrator.submits().scope_begin(scope.orchestrator.run()); })
      .def(
          "__exit__",
          [](Scope& scope, nb::args) {
            scope.orchestrator.submits().scope_end(scope.orchestrator.run());
          },
          nb::sig("def __exit__(self, *args: object) -> None"));
}

}  // namespace

void bind_orchestrator(nb::module_& module) {
  bind_scope(module);
  nb::class_<Orchestrator>(module, "Orchestrator", nb::type_slots(orchestrator_slots),
                           "The object with which a graph function submits the tasks of its run.")
      .def(
          "submit_sub_many",
          [](Orchestrator& self, nb::handle handle, nb::handle args, nb::handle scalars) {
            SubmitCall call(self.run(), Kind::kSub, false);
            call.handle = handle.ptr();
            call.args = args.ptr();
            return self.submits().submit_many(call, scalars.ptr());
          },
          nb::arg("handle").none(), nb::arg("args").none(), nb::arg("scalars").none() = nb::none(),
          nb::sig("def submit_sub_many(self, handle: CallableHandle, args: TaskArgs, scalars: "
                  "object | None = None) -> range"),
          "Submit a task for each part of the arguments: task i gets the i-th part of each tensor "
          "along its first dimension, the scalars of `args`, and row i of `scalars`, an array or "
          "a list of numbers, each with the bits that add_scalar() gives it. Return the range of "
          "task numbers; tasks that another thread submits "
          "meanwhile have numbers in it too.")
      .def(
          "submit_next_level_many",
          [](Orchestrator& self, nb::handle handle, nb::handle args, nb::handle scalars,
             nb::handle config) {
            SubmitCall call(self.run(), Kind::kNextLevel, false);
            call.handle = handle.ptr();
            call.args = args.ptr();
            call.config = config.ptr();
            return self.submits().submit_many(call, scalars.ptr());
          },
          nb::arg("handle").none(), nb::arg("args").none(), nb::arg("scalars").none() = nb::none(),
          nb::arg("config").none() = nb::none(),
          nb::sig("def submit_next_level_many(self, handle: CallableHandle, args: TaskArgs, "
                  "scalars: object | None = None, config: object | None = None) -> range"),
          "Do the same as submit_sub_many for the children of submit_next_level.")
      .def(
          "alloc",
          [](Orchestrator& self, nb::handle shape, nb::handle dtype) {
            return self.submits().allocate(self.run(), shape, dtype);
          },
          nb::arg("shape").none(), nb::arg("dtype").none(),
          nb::sig("def alloc(self, shape: int | collections.abc.Sequence[int], dtype: object) -> "
                  "ContinuousTensor"),
          "Allocate a tensor from the heap ring of the innermost scope. It is valid until the "
          "scope has ended and no task uses it.")
      .def(
          "users", &users, nb::arg("address"), nb::arg("nbytes"),
          nb::sig("def users(self, address: int, nbytes: int) -> list[TaskHandle]"),
          "Return a handle of each task of the run that uses this memory of the host, and that has "
          "not completed: it has not ended, has failed, or did not run.")
      .def(
          "scope", [](Orchestrator& self) { return Scope{self}; },
          "Return a context manager. Memory that is allocated inside is freed after it has ended.");
}

nb::object make_orchestrator(nb::object run) {
  return nb::cast(Orchestrator{std::move(run)});
}

}  // namespace pto::worker
