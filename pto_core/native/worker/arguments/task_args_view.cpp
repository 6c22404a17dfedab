#include <cstdio>
#include <string>
#include <utility>

#include "arguments/items.hpp"
#include "arguments/python_type.hpp"
#include "arguments/task_args.hpp"
#include "data_types.hpp"
#include "errors.hpp"
#include "scalars.hpp"

namespace pto::worker {
namespace python_task_args_view {

TaskArgsView* self_of(PyObject* self) {
  return as<TaskArgsView>(self);
}

void deallocate(PyObject* self) {
  TaskArgsView* view = self_of(self);
  Py_XDECREF(view->source);
  Py_XDECREF(view->tensors);
  PyMem_Free(view->copy);
  free_object(self);
}

// Return a borrowed reference to the tensor that the caller added; null in a child.
ContinuousTensor* source_tensor(const TaskArgsView* view, size_t index) {
  return view->source ? as<TaskArgs>(view->source)->notes[index].tensor : nullptr;
}

PyObject* tensor(PyObject* self, PyObject* index) {
  return or_raise([&] {
    const TaskArgsView* view = self_of(self);
    const size_t i = index_of(index, view->blob.tensors.size(), "tensor");
    const ContinuousTensor* source = source_tensor(view, i);
    return array_over(view->blob.tensors[i], source ? source->owner : nullptr,
                      static_cast<int64_t>(i), source && source->is_read_only);
  });
}

// Read the bits of a scalar as a number of a type. Refuse bits that no number of the type has: a
// Python float has 64 bits and cannot be read as a float32.
PyObject* read_scalar(uint64_t bits, uint8_t code, size_t index) {
  const core::ScalarKind kind = core::scalar_kind_of(code);
  const auto unused = static_cast<uint32_t>(64 - 8 * core::element_bytes(code));
  const uint64_t extended =
      kind == core::ScalarKind::kSigned
          ? static_cast<uint64_t>(static_cast<int64_t>(bits << unused) >> unused)
          : bits << unused >> unused;
  const bool is_bool = kind != core::ScalarKind::kBool || bits <= 1;
  if ((bits == extended || bits << unused >> unused == bits) && is_bool)
    return core::number_of(extended, kind);
  char text[19];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(bits));
  core::raise_usage("scalar " + std::to_string(index) + " has the bits " + text +
                    ", which are no number of the data type " +
                    core::shown(reinterpret_cast<PyObject*>(core::descriptor_of(code))) +
                    "; add a number of that type, such as ctypes.c_float(0.5) for float32");
}

PyObject* scalar(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 1 && count != 2) {
    PyErr_SetString(PyExc_TypeError, "call scalar(index) or scalar(index, dtype)");
    return nullptr;
  }
  return or_raise([&] {
    const Blob& blob = self_of(self)->blob;
    const size_t i = index_of(arguments[0], blob.scalars.size(), "scalar");
    if (count == 1 || arguments[1] == Py_None) return PyLong_FromUnsignedLongLong(blob.scalars[i]);
    return read_scalar(blob.scalars[i], code_of_dtype(arguments[1]), i);
  });
}

PyObject* kinds(PyObject* self, PyObject*) {
  return or_raise([&] {
    const std::span<const uint64_t> scalars = self_of(self)->blob.scalars;
    const size_t total = self_of(self)->blob.tensors.size() + scalars.size();
    const size_t count = total - (total + kKindsPerScalar) / (kKindsPerScalar + 1);
    const size_t packed = kind_scalars(count);
    if (!self_of(self)->has_kinds || packed > scalars.size())
      core::raise_usage("these arguments do not state their kinds");
    const uint64_t* first = scalars.data() + scalars.size() - packed;
    PyObject* found = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(count));
    for (size_t i = 0; found && i < count; ++i)
      PyBytes_AS_STRING(found)[i] =
          static_cast<char>(first[i / kKindsPerScalar] >> 4 * (i % kKindsPerScalar) & 15);
    return found;
  });
}

PyObject* content(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "call content(first, count)");
    return nullptr;
  }
  return or_raise([&] {
    const std::span<const uint64_t> scalars = self_of(self)->blob.scalars;
    const size_t first = index_of(arguments[0], scalars.size(), "scalar");
    const size_t most = scalars.size() - first + 1;
    const std::span found = scalars.subspan(first, index_of(arguments[1], most, "scalar"));
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(found.data()),
                                     static_cast<Py_ssize_t>(found.size_bytes()));
  });
}

PyObject* get_tensor_count(PyObject* self, void*) {
  return PyLong_FromSize_t(self_of(self)->blob.tensors.size());
}

PyObject* get_scalar_count(PyObject* self, void*) {
  return PyLong_FromSize_t(self_of(self)->blob.scalars.size());
}

PyObject* get_has_kinds(PyObject* self, void*) {
  return PyBool_FromLong(self_of(self)->has_kinds);
}

PyObject* make_tensors(const TaskArgsView* view) {
  const auto count = static_cast<Py_ssize_t>(view->blob.tensors.size());
  nb::object tuple = nb::steal(PyTuple_New(count));
  if (!tuple.is_valid()) throw nb::python_error();
  for (Py_ssize_t i = 0; i < count; ++i) {
    const auto index = static_cast<size_t>(i);
    ContinuousTensor* source = source_tensor(view, index);
    PyObject* tensor = reinterpret_cast<PyObject*>(
        source ? source : make_tensor(view->blob.tensors[index], Origin::kPointer, nullptr));
    PyTuple_SET_ITEM(tuple.ptr(), i, source ? Py_NewRef(tensor) : tensor);
  }
  return tuple.release().ptr();
}

PyObject* get_tensors(PyObject* self, void*) {
  return or_raise([&] {
    TaskArgsView* view = self_of(self);
    if (!view->tensors) view->tensors = make_tensors(view);
    return Py_NewRef(view->tensors);
  });
}

PyObject* get_scalars(PyObject* self, void*) {
  return or_raise([&] { return scalar_tuple(self_of(self)->blob.scalars); });
}

PyObject* show(PyObject* self) {
  const Blob& blob = self_of(self)->blob;
  return PyUnicode_FromFormat("TaskArgsView(%zu tensors, %zu scalars)", blob.tensors.size(),
                              blob.scalars.size());
}

PyMethodDef methods[] = {
    {"tensor", &tensor, METH_O,
     "tensor($self, index, /)\n--\n\nReturn a NumPy array over the memory of a tensor; other "
     "processes see values written to it.\n\nRaises UsageError if this process does not have the "
     "memory of the caller."},
    {"scalar", method_of(&scalar), METH_FASTCALL,
     "scalar($self, index, dtype=None, /)\n--\n\nReturn the 64 bits of a scalar as an unsigned "
     "integer, or convert them to a number of a data type.\n\n`dtype`: the type of the value that "
     "was added: int if it may be negative, float for a Python float."},
    {"kinds", &kinds, METH_NOARGS,
     "kinds($self, /)\n--\n\nReturn the bytes that the caller passed to add_kinds()."},
    {"content", method_of(&content), METH_FASTCALL,
     "content($self, first, count, /)\n--\n\nReturn the bytes of consecutive scalars, as "
     "add_bytes() added them."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"tensor_count", &get_tensor_count, nullptr, "The number of tensors of the task.", nullptr},
    {"scalar_count", &get_scalar_count, nullptr, "The number of scalars of the task.", nullptr},
    {"tensors", &get_tensors, nullptr, "The ContinuousTensors, for a submit by this task.",
     nullptr},
    {"scalars", &get_scalars, nullptr, "The scalars as unsigned integers of 64 bits.", nullptr},
    {"has_kinds", &get_has_kinds, nullptr,
     "Whether the last scalars state the kinds of all arguments, as those of a @task do.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace python_task_args_view

PyTypeObject* task_args_view_type = nullptr;

void TaskArgsView::point_at(const Blob& to, bool states_kinds) {
  blob = to;
  has_kinds = states_kinds;
  Py_CLEAR(tensors);
}

bool TaskArgsView::detach() {
  const size_t bytes = blob_bytes(blob.tensors.size(), blob.scalars.size());
  auto* memory = static_cast<std::byte*>(PyMem_Malloc(bytes));
  if (!memory) {
    PyErr_NoMemory();
    blob = {};
    return false;
  }
  encode_blob(blob, memory);
  blob = blob_at(memory);
  PyMem_Free(std::exchange(copy, memory));
  return true;
}

TaskArgsView* make_view() {
  auto* view = make_object<TaskArgsView>(task_args_view_type);
  if (!view) throw nb::python_error();
  view->blob = {};
  view->source = nullptr;
  view->tensors = nullptr;
  view->copy = nullptr;
  view->has_kinds = false;
  return view;
}

TaskArgsView* make_view(TaskArgs* args) {
  TaskArgsView* view = make_view();
  args->take_addresses();
  view->blob = {args->tensors(), args->scalars()};
  view->has_kinds = args->has_kinds;
  view->source = Py_NewRef(reinterpret_cast<PyObject*>(args));
  if (view->detach()) return view;
  Py_DECREF(view);
  throw nb::python_error();
}

void bind_task_args_view(nb::module_& module) {
  task_args_view_type = make_type<TaskArgsView>(
      module,
      {"pto_core._worker.TaskArgsView", "The arguments of a task, for the code that runs it.",
       &python_task_args_view::deallocate, &python_task_args_view::show,
       python_task_args_view::methods, python_task_args_view::properties});
}

}  // namespace pto::worker
