#include "arguments/task_args.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "arguments/items.hpp"
#include "arguments/python_type.hpp"
#include "errors.hpp"
#include "scalars.hpp"

namespace pto::worker {
namespace python_task_args {

using core::raise_usage;

TaskArgs* self_of(PyObject* self) {
  return as<TaskArgs>(self);
}

PyObject* begin(TaskArgs* args) {
  if (!args) return nullptr;
  args->blob = args->inline_blob;
  args->notes = args->inline_notes;
  args->producers = nullptr;
  args->tensor_count = args->scalar_count = 0;
  args->blob_capacity = TaskArgs::kInlineBytes;
  args->note_capacity = TaskArgs::kInlineTensors;
  args->has_kinds = false;
  new (&args->scalar_kinds) std::string();
  return reinterpret_cast<PyObject*>(args);
}

PyObject* refuse_arguments() {
  PyErr_SetString(PyExc_TypeError, "TaskArgs() takes no arguments; use add_tensor, add_scalar");
  return nullptr;
}

PyObject* construct(PyObject* type, PyObject* const*, size_t count, PyObject* names) {
  if (PyVectorcall_NARGS(count) != 0 || names) return refuse_arguments();
  return begin(make_object<TaskArgs>(as<PyTypeObject>(type)));
}

// An object of a class derived in Python may have a dictionary, so it needs another allocator.
PyObject* construct_subtype(PyTypeObject* type, PyObject* arguments, PyObject* names) {
  const bool has_own_init = type->tp_init != PyBaseObject_Type.tp_init;
  if (!has_own_init && (PyTuple_GET_SIZE(arguments) != 0 || (names && PyDict_GET_SIZE(names) != 0)))
    return refuse_arguments();
  return begin(as<TaskArgs>(type->tp_alloc(type, 0)));
}

void deallocate(PyObject* self) {
  TaskArgs* args = self_of(self);
  for (uint32_t i = 0; i < args->tensor_count; ++i) Py_DECREF(args->notes[i].tensor);
  Py_XDECREF(args->producers);
  if (args->blob != args->inline_blob) PyMem_Free(args->blob);
  if (args->notes != args->inline_notes) PyMem_Free(args->notes);
  std::destroy_at(&args->scalar_kinds);
  free_object(self);
}

// Double the size of an array. `inside` is the inline storage that a small object uses.
template <class Item>
Item* grow(Item* items, const Item* inside, uint32_t& capacity) {
  auto* grown = static_cast<Item*>(PyMem_Malloc(2 * capacity * sizeof(Item)));
  if (!grown) throw std::bad_alloc();
  std::memcpy(grown, items, capacity * sizeof(Item));
  if (items != inside) PyMem_Free(items);
  capacity *= 2;
  return grown;
}

void make_space(TaskArgs* args, size_t tensors, size_t scalars) {
  while (blob_bytes(tensors, scalars) > args->blob_capacity)
    args->blob = grow(args->blob, args->inline_blob, args->blob_capacity);
  if (tensors > args->note_capacity)
    args->notes = grow(args->notes, args->inline_notes, args->note_capacity);
}

Tag tag_of(PyObject* tag, uint32_t index) {
  if (const auto value = core::integer_of(tag, 0, static_cast<int64_t>(Tag::kNoDep)))
    return static_cast<Tag>(*value);
  raise_usage("the tag of tensor " + std::to_string(index) + " is " + core::shown(tag) +
              "; pass TensorArgType.INPUT, OUTPUT, INOUT, OUTPUT_EXISTING or NO_DEP");
}

void check_order(const TaskArgs* args) {
  if (args->scalar_count == 0) return;
  raise_usage("a tensor after " + std::to_string(args->scalar_count) +
              (args->scalar_count == 1 ? " scalar" : " scalars") +
              "; add all tensors before the first scalar");
}

void check_writable(bool is_read_only, Tag tag, uint32_t index) {
  if (is_read_only && writes(tag))
    raise_usage("tensor " + std::to_string(index) +
                " is a read-only array, but its tag declares that the task writes it; pass a "
                "writable array, or tag it INPUT");
}

// Ensure that there is space for one more item.
void place(TaskArgs* args, ContinuousTensor* tensor, Tag tag) {
  const uint32_t index = args->tensor_count++;
  args->tensors()[index] = tensor->data;
  args->notes[index] = {tensor, tag};
  Py_INCREF(tensor);
}

void append(TaskArgs* args, ContinuousTensor* tensor, Tag tag) {
  make_space(args, args->tensor_count + 1, 0);
  place(args, tensor, tag);
}

void add_object(TaskArgs* args, PyObject* object, Tag tag) {
  check_order(args);
  ContinuousTensor* tensor = tensor_of_array(object);
  const nb::object keep = nb::steal(reinterpret_cast<PyObject*>(tensor));
  check_writable(tensor->is_read_only, tag, args->tensor_count);
  append(args, tensor, tag);
}

// Add a tensor in the most frequent case, which cannot fail. Return false in any other case.
bool add_at_once(TaskArgs* args, PyObject* object, Tag tag) {
  if (!is_continuous_tensor(object) || args->scalar_count != 0 ||
      args->tensor_count >= args->note_capacity)
    return false;
  auto* tensor = as<ContinuousTensor>(object);
  if (tensor->is_read_only || blob_bytes(args->tensor_count + 1, 0) > args->blob_capacity)
    return false;
  place(args, tensor, tag);
  return true;
}

bool is_tag(PyObject* name) {
  return PyUnicode_CompareWithASCIIString(name, "tag") == 0;
}

// Handle the call add_tensor(tensor, tag=INPUT), with the tag by position or by name.
PyObject* add_tensor(PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                     PyObject* names) {
  const Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
  if (count < 1 || count + named > 2 || (named != 0 && !is_tag(PyTuple_GET_ITEM(names, 0)))) {
    PyErr_SetString(PyExc_TypeError, "call add_tensor(tensor, tag=TensorArgType.INPUT)");
    return nullptr;
  }
  return or_raise([&] {
    const Tag tag =
        count + named == 2 ? tag_of(arguments[1], self_of(self)->tensor_count) : Tag::kInput;
    if (!add_at_once(self_of(self), arguments[0], tag))
      add_object(self_of(self), arguments[0], tag);
    return Py_NewRef(Py_None);
  });
}

PyObject* add_scalar(PyObject* self, PyObject* value) {
  return or_raise([&] {
    const auto scalar = core::scalar_of(value);
    if (!scalar)
      raise_usage(core::shown(value) + " of type " + core::type_text(value) +
                  " is not a scalar; pass a bool, an int, a float, or a scalar of ctypes or NumPy");
    TaskArgs* args = self_of(self);
    make_space(args, args->tensor_count, args->scalar_count + 1);
    ++args->scalar_count;
    args->scalars().back() = scalar->bits;
    args->scalar_kinds.push_back(static_cast<char>(scalar->kind));
    return Py_NewRef(Py_None);
  });
}

// Append scalars and return them. Their values are undefined.
std::span<uint64_t> append_scalars(TaskArgs* args, size_t count) {
  make_space(args, args->tensor_count, args->scalar_count + count);
  args->scalar_count += static_cast<uint32_t>(count);
  args->scalar_kinds.append(count, static_cast<char>(core::ScalarKind::kUnsigned));
  return args->scalars().last(count);
}

std::string_view bytes_of(PyObject* object) {
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(object, &data, &size) != 0) throw nb::python_error();
  return {data, static_cast<size_t>(size)};
}

PyObject* add_bytes(PyObject* self, PyObject* content) {
  return or_raise([&] {
    const std::string_view bytes = bytes_of(content);
    if (bytes.empty()) return PyLong_FromLong(0);
    const size_t count = (bytes.size() + sizeof(uint64_t) - 1) / sizeof(uint64_t);
    const std::span<uint64_t> added = append_scalars(self_of(self), count);
    added.back() = 0;
    std::memcpy(added.data(), bytes.data(), bytes.size());
    return PyLong_FromSize_t(count);
  });
}

PyObject* add_kinds(PyObject* self, PyObject* kinds) {
  return or_raise([&] {
    const std::string_view bytes = bytes_of(kinds);
    const std::span<uint64_t> added = append_scalars(self_of(self), kind_scalars(bytes.size()));
    std::fill(added.begin(), added.end(), 0);
    for (size_t i = 0; i < bytes.size(); ++i)
      added[i / kKindsPerScalar] |= static_cast<uint64_t>(bytes[i] & 15)
                                    << 4 * (i % kKindsPerScalar);
    self_of(self)->has_kinds = true;
    return Py_NewRef(Py_None);
  });
}

// Store the handles unchecked. The submit checks them, because only the Worker knows which tasks
// are valid.
PyObject* add_dep(PyObject* self, PyObject* const* producers, Py_ssize_t count) {
  TaskArgs* args = self_of(self);
  if (!args->producers) args->producers = PyList_New(0);
  for (Py_ssize_t i = 0; args->producers && i < count; ++i)
    if (PyList_Append(args->producers, producers[i]) != 0) return nullptr;
  return args->producers ? Py_NewRef(Py_None) : nullptr;
}

PyObject* tag(PyObject* self, PyObject* index) {
  return or_raise([&] {
    const TaskArgs* args = self_of(self);
    const size_t i = index_of(index, args->tensor_count, "tensor");
    return nb::cast(args->notes[i].tag).release().ptr();
  });
}

PyObject* view(PyObject* self, PyObject*) {
  return or_raise([&] { return reinterpret_cast<PyObject*>(make_view(self_of(self))); });
}

PyObject* get_tensor_count(PyObject* self, void*) {
  return PyLong_FromUnsignedLong(self_of(self)->tensor_count);
}

PyObject* get_scalar_count(PyObject* self, void*) {
  return PyLong_FromUnsignedLong(self_of(self)->scalar_count);
}

PyObject* get_tensors(PyObject* self, void*) {
  const TaskArgs* args = self_of(self);
  PyObject* tensors = PyTuple_New(args->tensor_count);
  for (uint32_t i = 0; tensors && i < args->tensor_count; ++i)
    PyTuple_SET_ITEM(tensors, i, Py_NewRef(args->notes[i].tensor));
  return tensors;
}

PyObject* get_scalars(PyObject* self, void*) {
  return or_raise([&] { return scalar_tuple(self_of(self)->scalars()); });
}

PyObject* show(PyObject* self) {
  return PyUnicode_FromFormat("TaskArgs(%u tensors, %u scalars)", self_of(self)->tensor_count,
                              self_of(self)->scalar_count);
}

PyMethodDef methods[] = {
    {"add_tensor", method_of(&add_tensor), METH_FASTCALL | METH_KEYWORDS,
     "add_tensor($self, tensor, tag=TensorArgType.INPUT)\n--\n\nAdd a tensor, with a tag that "
     "states what the task does with it.\n\n`tensor`: a ContinuousTensor, or an array from which "
     "one can be created; it is kept alive. Raises UsageError, and adds nothing, after a scalar, "
     "for an object that is not an array, and for a read-only array with a tag for writing."},
    {"add_scalar", &add_scalar, METH_O,
     "add_scalar($self, value, /)\n--\n\nAdd a number as 64 bits: an integer is sign-extended, a "
     "float is added as its bit pattern. If the signature of a chip declares the type of the "
     "scalar, the submit converts the number to that type."},
    {"add_bytes", &add_bytes, METH_O,
     "add_bytes($self, content, /)\n--\n\nAdd bytes as scalars of eight bytes, the last one filled "
     "with zeros; return their number."},
    {"add_kinds", &add_kinds, METH_O,
     "add_kinds($self, kinds, /)\n--\n\nAdd the kinds of all arguments, one byte from 0 to 15 for "
     "each, as the last scalars."},
    {"add_dep", method_of(&add_dep), METH_FASTCALL,
     "add_dep($self, *producers)\n--\n\nMake the next submit of these arguments also wait for "
     "these tasks (TaskHandles).\n\nThe submit removes the handles. It raises UsageError for an "
     "object that is not an earlier task of its run."},
    {"tag", &tag, METH_O, "tag($self, index, /)\n--\n\nReturn the tag of a tensor."},
    {"view", &view, METH_NOARGS,
     "view($self, /)\n--\n\nReturn a view of the current arguments, as a task receives them."},
    {nullptr, nullptr, 0, nullptr},
};

PyObject* get_has_kinds(PyObject* self, void*) {
  return PyBool_FromLong(self_of(self)->has_kinds);
}

PyGetSetDef properties[] = {
    {"tensor_count", &get_tensor_count, nullptr, "The number of tensors that were added.", nullptr},
    {"scalar_count", &get_scalar_count, nullptr, "The number of scalars that were added.", nullptr},
    {"tensors", &get_tensors, nullptr, "The ContinuousTensors.", nullptr},
    {"scalars", &get_scalars, nullptr, "The scalars as unsigned integers of 64 bits.", nullptr},
    {"has_kinds", &get_has_kinds, nullptr, "Whether add_kinds() was called.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace python_task_args

PyTypeObject* task_args_type = nullptr;

void TaskArgs::take_addresses() {
  for (uint32_t i = 0; i < tensor_count; ++i) {
    pto_tensor& tensor = tensors()[i];
    if (tensor.data == 0) tensor.data = notes[i].tensor->data.data;
  }
}

std::span<const std::byte> TaskArgs::bytes() {
  const int32_t counts[2] = {static_cast<int32_t>(tensor_count),
                             static_cast<int32_t>(scalar_count)};
  std::memcpy(blob, counts, sizeof counts);
  return {blob, blob_bytes(tensor_count, scalar_count)};
}

void TaskArgs::set_address(uint32_t index, uint64_t address, Origin origin) {
  tensors()[index].data = address;
  notes[index].tensor->data.data = address;
  notes[index].tensor->origin = origin;
}

void bind_task_args(nb::module_& module) {
  nb::enum_<Tag>(module, "TensorArgType", nb::is_arithmetic(),
                 "What a task does with a tensor. Only the submit uses it.")
      .value("INPUT", Tag::kInput, "The task reads the tensor.")
      .value("OUTPUT", Tag::kOutput,
             "The task overwrites the tensor. Memory is allocated if it "
             "has no address.")
      .value("INOUT", Tag::kInout, "The task reads and writes the tensor.")
      .value("OUTPUT_EXISTING", Tag::kOutputExisting,
             "The task overwrites the tensor without waiting for earlier readers or writers.")
      .value("NO_DEP", Tag::kNoDep, "The tensor is passed to the task and orders no tasks.");
  task_args_type = make_type<TaskArgs>(
      module, {"pto_core._worker.TaskArgs", "The arguments of a task: tensors first, then scalars.",
               &python_task_args::deallocate, &python_task_args::show, python_task_args::methods,
               python_task_args::properties, &python_task_args::construct,
               &python_task_args::construct_subtype});
}

}  // namespace pto::worker
