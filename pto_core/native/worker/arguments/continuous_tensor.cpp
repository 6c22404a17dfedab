#include "arguments/continuous_tensor.hpp"

#include <cstdio>
#include <memory>
#include <string>

#include "arguments/blob.hpp"
#include "arguments/items.hpp"
#include "arguments/python_type.hpp"
#include "arguments/visible_memory.hpp"
#include "data_types.hpp"
#include "errors.hpp"
#include "host_array.hpp"
#include "pto/engine/tensor_region.hpp"
#include "views.hpp"

namespace pto::worker {
namespace {

using core::raise_usage;

constexpr uint64_t kLargestExtent = UINT32_MAX;
constexpr size_t kDataTypes = sizeof engine::kElementBytes;

void set_shape(pto_tensor& tensor, const npy_intp* shape, size_t dims) {
  if (dims > PTO_MAX_DIMS)
    raise_usage("an array with " + std::to_string(dims) +
                " dimensions was passed; a task accepts at most " + std::to_string(PTO_MAX_DIMS) +
                ", so reshape it");
  tensor.ndims = static_cast<uint32_t>(dims);
  for (size_t i = 0; i < dims; ++i) {
    if (static_cast<uint64_t>(shape[i]) > kLargestExtent)
      raise_usage("an array whose dimension " + std::to_string(i) + " has " +
                  std::to_string(shape[i]) + " elements was passed; a task accepts at most " +
                  std::to_string(kLargestExtent) + " in one dimension, so reshape it");
    tensor.shapes[i] = static_cast<uint32_t>(shape[i]);
  }
}

bool take_numpy(PyObject* object, pto_tensor& tensor) {
  auto* array = as<PyArrayObject>(object);
  const auto code = core::code_of(PyArray_DESCR(array));
  if (!code || !PyArray_IS_C_CONTIGUOUS(array)) return false;
  tensor.data = reinterpret_cast<uint64_t>(PyArray_DATA(array));
  tensor.dtype = *code;
  set_shape(tensor, PyArray_DIMS(array), static_cast<size_t>(PyArray_NDIM(array)));
  return true;
}

void free_host_array(PyObject* capsule) {
  delete static_cast<core::HostArray*>(PyCapsule_GetPointer(capsule, nullptr));
}

// Create the tensor of an array that is not a plain NumPy array, or raise an error that states why
// a NumPy array cannot be used. The buffer stays exported, so that its owner cannot resize it.
ContinuousTensor* tensor_of_export(PyObject* object) {
  auto host = std::make_unique<core::HostArray>(
      object, false, [] { return "the tensor"; }, core::Advice::kPassSharedMemory);
  pto_tensor tensor{};
  tensor.data = reinterpret_cast<uint64_t>(host->data);
  tensor.dtype = host->code;
  set_shape(tensor, host->shape.data(), host->shape.size());
  const bool is_read_only = !host->writable;
  nb::object owner = nb::steal(PyCapsule_New(host.get(), nullptr, &free_host_array));
  if (!owner.is_valid()) throw nb::python_error();
  host.release();
  return make_tensor(tensor, Origin::kArray, owner.ptr(), is_read_only);
}

// Return the member of DataType, as a borrowed reference.
PyObject* data_type_of(uint8_t code) {
  static PyObject* members[kDataTypes] = {};
  if (!members[code]) {
    nb::object type = nb::module_::import_("pto_core.kernels.data_type").attr("DataType");
    members[code] = type(code).release().ptr();
  }
  return members[code];
}

std::string named(const pto_tensor& tensor, int64_t index) {
  const std::string place = " at address " + hex(tensor.data);
  return index < 0 ? "the tensor" + place : "tensor " + std::to_string(index) + place;
}

constexpr char kPrivateMemory[] = "is not in shared memory, so other processes cannot access it";
constexpr char kNoMemory[] =
    "is not in shared memory, and this process has no memory at this address";

[[noreturn]] void raise_memory(const pto_tensor& tensor, uint64_t bytes, int64_t index,
                               const char* fault) {
  raise_usage(named(tensor, index) + ", " + std::to_string(bytes) + " bytes, " + fault +
              "; make it with Worker.shared_array(shape, dtype), or with orch.alloc(shape, dtype) "
              "in a graph");
}

void check_sharing(const pto_tensor& tensor, uint64_t bytes, int64_t index) {
  const Sharing sharing = SharedRanges::of_process().of(tensor.data, bytes);
  if (sharing == Sharing::kShared) return;
  raise_memory(tensor, bytes, index, sharing == Sharing::kPrivate ? kPrivateMemory : kNoMemory);
}

const char* fault_of(VisibleMemory::Answer answer) {
  switch (answer) {
    case VisibleMemory::Answer::kPrivate:
      return kPrivateMemory;
    case VisibleMemory::Answer::kMappedLater:
      return "is in shared memory that was mapped after the Worker started, so that its children "
             "do not have it";
    case VisibleMemory::Answer::kNotAttached:
      return "is in shared memory that children started with start_method='spawn' do not have";
    default:
      return kNoMemory;
  }
}

void check_memory(const pto_tensor& tensor, uint64_t bytes, PyObject* base, int64_t index) {
  if (tensor.child_memory)
    raise_usage(named(tensor, index) +
                "is in the memory of a chip child, so this process cannot access it; copy it to "
                "the host with Worker.copy_from");
  if (bytes == 0 || base) return;
  if (tensor.data == 0)
    raise_usage(named(tensor, index) +
                " has no memory yet: memory is allocated when a task with the tag OUTPUT is "
                "submitted");
  check_sharing(tensor, bytes, index);
}

}  // namespace

namespace python_tensor {

ContinuousTensor* self_of(PyObject* self) {
  return as<ContinuousTensor>(self);
}

void deallocate(PyObject* self) {
  Py_XDECREF(self_of(self)->owner);
  delete self_of(self)->box;
  free_object(self);
}

PyObject* from_array(PyObject*, PyObject* array) {
  return or_raise([&] { return reinterpret_cast<PyObject*>(tensor_of_array(array)); });
}

PyObject* from_pointer(PyObject*, PyObject* arguments, PyObject* names) {
  static const char* keywords[] = {"address", "shape", "dtype", "child_memory", nullptr};
  PyObject *address = nullptr, *shape = nullptr, *dtype = nullptr;
  int is_child_memory = 0;
  if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOO|p:from_pointer",
                                   const_cast<char**>(keywords), &address, &shape, &dtype,
                                   &is_child_memory))
    return nullptr;
  return or_raise([&]() -> PyObject* {
    const nb::object integer = nb::steal(PyNumber_Index(address));
    const uint64_t value = integer.is_valid() ? PyLong_AsUnsignedLongLong(integer.ptr()) : 0;
    if (PyErr_Occurred()) {
      PyErr_Clear();
      raise_usage("address is " + core::shown(address) + "; pass an integer from 0 to 2**64 - 1");
    }
    const pto_tensor tensor = tensor_at(value, shape, dtype, is_child_memory != 0);
    return reinterpret_cast<PyObject*>(make_tensor(tensor, Origin::kPointer, nullptr));
  });
}

PyObject* get_address(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(self_of(self)->data.data);
}

PyObject* get_shape(PyObject* self, void*) {
  const pto_tensor& tensor = self_of(self)->data;
  PyObject* shape = PyTuple_New(tensor.ndims);
  for (uint32_t i = 0; shape && i < tensor.ndims; ++i)
    PyTuple_SET_ITEM(shape, i, PyLong_FromUnsignedLong(tensor.shapes[i]));
  return shape;
}

PyObject* get_dtype(PyObject* self, void*) {
  return or_raise([&] { return Py_NewRef(data_type_of(self_of(self)->data.dtype)); });
}

PyObject* get_nbytes(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(self_of(self)->bytes);
}

PyObject* get_child_memory(PyObject* self, void*) {
  return PyBool_FromLong(self_of(self)->data.child_memory);
}

PyObject* to_numpy(PyObject* self, PyObject*) {
  const ContinuousTensor* tensor = self_of(self);
  return or_raise(
      [&] { return array_over(tensor->data, tensor->owner, -1, tensor->is_read_only); });
}

// Read a tuple of the box's numbers. Return their count.
uint32_t read_sizes(PyObject* tuple, uint64_t* sizes) {
  const auto count = static_cast<uint32_t>(PyTuple_GET_SIZE(tuple));
  for (uint32_t i = 0; i < count && i < kMaxDims; ++i)
    sizes[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(tuple, i));
  if (PyErr_Occurred()) throw nb::python_error();
  return count;
}

PyObject* part(PyObject* self, PyObject* arguments) {
  unsigned long long offset = 0;
  PyObject *shape = nullptr, *dtype = nullptr, *raw = nullptr, *low = nullptr, *extent = nullptr;
  if (!PyArg_ParseTuple(arguments, "KOO|O!O!O!:part", &offset, &shape, &dtype, &PyTuple_Type, &raw,
                        &PyTuple_Type, &low, &PyTuple_Type, &extent))
    return nullptr;
  return or_raise([&] {
    const ContinuousTensor* whole = self_of(self);
    const pto_tensor tensor =
        tensor_at(whole->data.data + offset, shape, dtype, whole->data.child_memory != 0);
    auto box = raw ? std::make_unique<Box>() : nullptr;
    if (box) {
      box->element_bytes = 1;
      box->dims = read_sizes(raw, box->raw);
      if (read_sizes(low, box->low) != box->dims || read_sizes(extent, box->extent) != box->dims ||
          box->dims > kMaxDims)
        raise_usage("the three tuples of a box have different lengths, or more than 5 numbers");
      box->base = tensor.data;
      for (uint64_t dim = 0, stride = 1; dim < box->dims; stride *= box->raw[dim++])
        box->base -= box->low[dim] * stride;
    }
    ContinuousTensor* made = make_tensor(tensor, whole->origin, whole->owner, whole->is_read_only);
    made->box = box.release();
    return reinterpret_cast<PyObject*>(made);
  });
}

PyObject* get_box(PyObject* self, void*) {
  return or_raise([&] {
    const Box* box = self_of(self)->box;
    if (!box) return Py_NewRef(Py_None);
    const auto listed = [&](const uint64_t* sizes) {
      return nb::steal(scalar_tuple({sizes, box->dims}));
    };
    return nb::make_tuple(box->base, listed(box->raw), listed(box->low), listed(box->extent))
        .release()
        .ptr();
  });
}

PyObject* show(PyObject* self) {
  return or_raise([&] {
    nb::object shape = nb::steal(get_shape(self, nullptr));
    const pto_tensor& tensor = self_of(self)->data;
    const std::string text =
        "ContinuousTensor(address=" + hex(tensor.data) + ", shape=" + core::shown(shape) +
        ", dtype=" + nb::cast<std::string>(nb::handle(data_type_of(tensor.dtype)).attr("name")) +
        (tensor.child_memory ? ", child_memory=True)" : ")");
    return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  });
}

PyObject* subscript(PyObject* self, PyObject* key) {
  return or_raise([&] {
    const nb::object part_of = nb::module_::import_("pto_core.worker.parts").attr("part_of");
    return PyObject_CallFunctionObjArgs(part_of.ptr(), self, key, nullptr);
  });
}

PyMethodDef methods[] = {
    {"from_array", &from_array, METH_O | METH_STATIC,
     "from_array(array, /)\n--\n\nCreate the tensor for an array, without a copy.\n\n`array`: a "
     "NumPy or torch array, or an object with the buffer protocol or DLPack; C-contiguous, with at "
     "most 5 dimensions. The tensor keeps it alive. Children can access the memory only if it is "
     "shared: Worker.shared_array creates such arrays. Raises UsageError."},
    {"from_pointer", method_of(&from_pointer), METH_VARARGS | METH_KEYWORDS | METH_STATIC,
     "from_pointer(address, shape, dtype, child_memory=False)\n--\n\nCreate the tensor for memory "
     "at an address.\n\nAny non-zero address orders tasks, even if it belongs to no memory. A "
     "submit with address 0 and the tag OUTPUT allocates memory. `child_memory`: the address "
     "belongs to the memory of a chip child. Raises UsageError."},
    {"numpy", &to_numpy, METH_NOARGS,
     "numpy($self, /)\n--\n\nReturn a NumPy array over the memory. Raises UsageError if this "
     "process cannot access it."},
    {"part", &part, METH_VARARGS,
     "part($self, offset, shape, dtype, raw=..., low=..., extent=..., /)\n--\n\nReturn a tensor of "
     "other shape and data type in the memory of this one, `offset` bytes after its begin.\n\nWith "
     "`raw`, `low` and `extent`, tasks use only this box of it: in each dimension of a buffer, the "
     "fastest first and in bytes, its size, and begin and size of the box. The tensor begins with "
     "the box."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"address", &get_address, nullptr,
     "The address of the first byte; 0 if no memory is "
     "allocated yet.",
     nullptr},
    {"shape", &get_shape, nullptr, "The extents, slowest dimension first.", nullptr},
    {"dtype", &get_dtype, nullptr, "The DataType.", nullptr},
    {"nbytes", &get_nbytes, nullptr, "The number of bytes; 0 for a key, which only orders tasks.",
     nullptr},
    {"child_memory", &get_child_memory, nullptr, "Whether the memory belongs to a chip child.",
     nullptr},
    {"box", &get_box, nullptr,
     "The address of the buffer, and raw, low and extent of :meth:`part`; None without a box.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace python_tensor

PyTypeObject* continuous_tensor_type = nullptr;

void check_visible(VisibleMemory& memory, const ContinuousTensor& tensor, int64_t index) {
  if (tensor.bytes == 0) return;
  const auto answer = memory.of(tensor.data.data, tensor.bytes);
  if (answer != VisibleMemory::Answer::kVisible)
    raise_memory(tensor.data, tensor.bytes, index, fault_of(answer));
}

ContinuousTensor* make_tensor(const pto_tensor& data, Origin origin, PyObject* owner,
                              bool is_read_only) {
  uint64_t bytes = 0;
  if (!count_bytes(data, &bytes))
    raise_usage("a tensor at address " + hex(data.data) +
                " exceeds the address space; pass a smaller shape");
  auto* tensor = make_object<ContinuousTensor>(continuous_tensor_type);
  if (!tensor) throw nb::python_error();
  tensor->data = data;
  tensor->bytes = bytes;
  tensor->owner = Py_XNewRef(owner);
  tensor->box = nullptr;
  tensor->origin = origin;
  tensor->is_read_only = is_read_only;
  return tensor;
}

ContinuousTensor* tensor_of_array(PyObject* array) {
  if (is_continuous_tensor(array)) return as<ContinuousTensor>(Py_NewRef(array));
  pto_tensor tensor{};
  if (!PyArray_Check(array) || !take_numpy(array, tensor)) return tensor_of_export(array);
  return make_tensor(tensor, Origin::kArray, array, !PyArray_ISWRITEABLE(as<PyArrayObject>(array)));
}

uint8_t code_of_dtype(nb::handle dtype) {
  if (!PyLong_Check(dtype.ptr())) return core::code_of_object(dtype);
  int overflow = 0;
  const long code = PyLong_AsLongAndOverflow(dtype.ptr(), &overflow);
  if (overflow == 0 && code >= 0 && code < static_cast<long>(kDataTypes))
    return static_cast<uint8_t>(code);
  raise_usage("data type code " + core::shown(dtype) + " does not exist; pass a DataType");
}

pto_tensor tensor_at(uint64_t address, nb::handle shape, nb::handle dtype, bool is_child_memory) {
  pto_tensor tensor{};
  tensor.data = address;
  tensor.dtype = code_of_dtype(dtype);
  tensor.child_memory = is_child_memory;
  const std::vector<npy_intp> extents = core::shape_of_object(shape);
  set_shape(tensor, extents.data(), extents.size());
  return tensor;
}

PyObject* array_over(const pto_tensor& tensor, PyObject* base, int64_t index, bool is_read_only) {
  uint64_t bytes = 0;
  count_bytes(tensor, &bytes);
  check_memory(tensor, bytes, base, index);
  npy_intp shape[PTO_MAX_DIMS];
  for (uint32_t i = 0; i < tensor.ndims; ++i) shape[i] = tensor.shapes[i];
  PyArray_Descr* descriptor = core::descriptor_of(tensor.dtype);
  const bool is_aligned =
      tensor.data % static_cast<uint64_t>(PyDataType_ALIGNMENT(descriptor)) == 0;
  const int flags = NPY_ARRAY_C_CONTIGUOUS | (is_aligned ? NPY_ARRAY_ALIGNED : 0) |
                    (is_read_only ? 0 : NPY_ARRAY_WRITEABLE);
  // For an empty tensor pass null: NumPy then provides a valid pointer, so its address may be 0.
  void* memory = bytes == 0 ? nullptr : reinterpret_cast<void*>(tensor.data);
  Py_INCREF(descriptor);
  PyObject* array = PyArray_NewFromDescr(&PyArray_Type, descriptor, static_cast<int>(tensor.ndims),
                                         shape, nullptr, memory, memory ? flags : 0, nullptr);
  if (!array) throw nb::python_error();
  if (memory && base && PyArray_SetBaseObject(as<PyArrayObject>(array), Py_NewRef(base)) != 0) {
    Py_DECREF(array);
    throw nb::python_error();
  }
  return array;
}

void bind_continuous_tensor(nb::module_& module) {
  continuous_tensor_type = make_type<ContinuousTensor>(
      module, {"pto_core._worker.ContinuousTensor", "The address, shape and data type of an array.",
               &python_tensor::deallocate, &python_tensor::show, python_tensor::methods,
               python_tensor::properties, nullptr, nullptr, &python_tensor::subscript});
}

}  // namespace pto::worker
