#include "host_array.hpp"

#include "data_types.hpp"
#include "dlpack.hpp"
#include "errors.hpp"
#include "pto/abi/dtype.h"
#include "scalars.hpp"
#include "views.hpp"

namespace pto::core {
namespace {

[[noreturn]] void refuse_type(const Describe& describe, const std::string& type) {
  raise_usage(describe() + " has data type " + type + ", which a device does not support; " +
              kSupported);
}

// Refuse an array and advise the user to pass a copy. `copy` names the kind of copy.
[[noreturn]] void refuse_in_place(const Describe& describe, const std::string& fault,
                                  const std::string& copy, Advice advice) {
  std::string remedy = "pass " + copy;
  if (advice == Advice::kPassAndCopyBack) {
    remedy += ", and copy the result back if it is an output";
  } else if (advice == Advice::kPassSharedMemory) {
    remedy =
        "copy it to an array of Worker.shared_array(shape, dtype) and pass that array; if a task "
        "writes to it, copy the result back";
  }
  raise_usage(describe() + " " + fault + "; " + remedy);
}

[[noreturn]] void refuse_byte_order(const Describe& describe, const std::string& type,
                                    Advice advice) {
  refuse_in_place(describe,
                  "has data type " + type + ", whose byte order is not that of this machine",
                  "a copy in the byte order of this machine", advice);
}

[[noreturn]] void refuse_layout(const Describe& describe, Advice advice) {
  refuse_in_place(describe, "is not C-contiguous", "a C-contiguous copy", advice);
}

// Return whether the array is C-contiguous. Strides are in elements (`unit` 1) or in bytes. The
// strides of dimensions with extent 0 or 1 are ignored.
template <class Shape, class Stride>
bool is_contiguous(int dimensions, const Shape* shape, const Stride* strides, int64_t unit) {
  if (!strides) return true;
  int64_t expected = unit;
  for (int i = 0; i < dimensions; ++i)
    if (shape[i] == 0) return true;
  for (int i = dimensions - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

std::optional<uint8_t> code_of_dlpack(const dlpack::DlpackTensor& tensor) {
  if (tensor.type_lanes != 1 || tensor.type_bits % 8 != 0) return std::nullopt;
  const size_t bytes = tensor.type_bits / 8;
  switch (tensor.type_code) {
    case dlpack::kInt:
      return code_of_format("b", bytes);
    case dlpack::kUInt:
      return code_of_format("B", bytes);
    case dlpack::kFloat:
      return code_of_format("f", bytes);
    case dlpack::kComplex:
      return code_of_format("Zf", bytes);
    case dlpack::kBfloat:
      return bytes == 2 ? std::optional<uint8_t>(PTO_DTYPE_BFLOAT16) : std::nullopt;
    case dlpack::kFloat8E4m3fn:
      return bytes == 1 ? std::optional<uint8_t>(PTO_DTYPE_FLOAT8_E4M3FN) : std::nullopt;
    case dlpack::kFloat8E5m2:
      return bytes == 1 ? std::optional<uint8_t>(PTO_DTYPE_FLOAT8_E5M2) : std::nullopt;
    case dlpack::kBool:
      return bytes == 1 ? std::optional<uint8_t>(PTO_DTYPE_BOOL) : std::nullopt;
    default:
      return std::nullopt;
  }
}

template <class Managed>
void give_back(Managed* managed) {
  if (managed->deleter) managed->deleter(managed);
}

std::string dlpack_type_name(const dlpack::DlpackTensor& tensor) {
  return "DLPack code " + std::to_string(tensor.type_code) + " with " +
         std::to_string(tensor.type_bits) + " bits";
}

}  // namespace

HostArray::HostArray(nb::handle object, bool must_write, const Describe& describe, Advice advice,
                     const std::string& others) {
  if (PyArray_Check(object.ptr())) {
    take_numpy(object, describe, advice);
  } else if (PyObject_TypeCheck(object.ptr(), &PyGenericArrType_Type) || scalar_of(object)) {
    // Some of them export their memory, so they would pass as arrays.
    raise_usage(describe() + " is " + shown(object) + " of type " + type_text(object) +
                ", which is no array; pass an array, or declare Scalar for a number");
  } else if (!take_buffer(object, describe, advice) && !take_dlpack(object, describe, advice)) {
    raise_usage(describe() + " is " + shown(object) + " of type " + type_text(object) +
                "; pass a NumPy array, or an object with the buffer protocol or DLPack" + others);
  }
  finish(object, must_write, describe);
}

void HostArray::take_numpy(nb::handle object, const Describe& describe, Advice advice) {
  auto* array = reinterpret_cast<PyArrayObject*>(object.ptr());
  auto found = code_of(PyArray_DESCR(array));
  if (!found) {
    const std::string type = shown(reinterpret_cast<PyObject*>(PyArray_DESCR(array)));
    if (!PyArray_ISNBO(PyArray_DESCR(array)->byteorder)) refuse_byte_order(describe, type, advice);
    refuse_type(describe, type);
  }
  if (!PyArray_IS_C_CONTIGUOUS(array)) refuse_layout(describe, advice);
  Py_INCREF(array);
  hold_ = std::shared_ptr<void>(array, [](PyArrayObject* held) { Py_DECREF(held); });
  data = PyArray_DATA(array);
  code = *found;
  writable = PyArray_ISWRITEABLE(array);
  shape.assign(PyArray_DIMS(array), PyArray_DIMS(array) + PyArray_NDIM(array));
}

bool HostArray::take_buffer(nb::handle object, const Describe& describe, Advice advice) {
  if (!PyObject_CheckBuffer(object.ptr())) return false;
  auto empty = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(object.ptr(), empty.get(), PyBUF_RECORDS_RO) != 0) {
    PyErr_Clear();
    return false;
  }
  Py_buffer* buffer = empty.release();
  hold_ = std::shared_ptr<void>(buffer, [](Py_buffer* held) {
    PyBuffer_Release(held);
    delete held;
  });
  auto found = code_of_format(buffer->format, static_cast<size_t>(buffer->itemsize));
  if (!found) {
    const std::string type = "buffer format " + std::string(buffer->format);
    if (*buffer->format == '>' || *buffer->format == '!') refuse_byte_order(describe, type, advice);
    refuse_type(describe, type);
  }
  if (!is_contiguous(buffer->ndim, buffer->shape, buffer->strides, buffer->itemsize))
    refuse_layout(describe, advice);
  data = buffer->buf;
  code = *found;
  writable = !buffer->readonly;
  shape.assign(buffer->shape, buffer->shape + buffer->ndim);
  return true;
}

// Request DLPack version 1, or version 0 if the exporter does not know the argument max_version.
nb::object HostArray::take_capsule(nb::handle object, const Describe& describe) {
  nb::object method = nb::getattr(object, "__dlpack__");
  nb::dict keywords;
  keywords["max_version"] = nb::make_tuple(1, 0);
  PyObject* capsule = PyObject_Call(method.ptr(), nb::tuple().ptr(), keywords.ptr());
  if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    capsule = PyObject_CallNoArgs(method.ptr());
  }
  if (!capsule) {
    nb::object cause = take_exception();
    raise_usage(describe() + " cannot be imported by DLPack: " + type_text(cause) + ": " +
                nb::cast<std::string>(nb::str(cause)));
  }
  return nb::steal(capsule);
}

bool HostArray::take_dlpack(nb::handle object, const Describe& describe, Advice advice) {
  if (!nb::hasattr(object, "__dlpack__") || PyType_Check(object.ptr())) return false;
  nb::object capsule = take_capsule(object, describe);
  const dlpack::DlpackTensor* tensor = nullptr;
  writable = true;
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    auto* managed = static_cast<dlpack::ManagedVersioned*>(
        PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
    hold_ = std::shared_ptr<void>(managed, give_back<dlpack::ManagedVersioned>);
    if (managed->major > 1) {
      raise_usage(describe() + " has DLPack version " + std::to_string(managed->major) +
                  "; at most version 1 is supported");
    }
    tensor = &managed->tensor;
    writable = (managed->flags & dlpack::kFlagReadOnly) == 0;
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    auto* managed = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
    PyCapsule_SetName(capsule.ptr(), "used_dltensor");
    hold_ = std::shared_ptr<void>(managed, give_back<dlpack::Managed>);
    tensor = &managed->tensor;
  } else {
    raise_usage(describe() + ": __dlpack__() of " + type_text(object) + " returned " +
                shown(capsule) + ", which is not an unused DLPack capsule");
  }
  if (tensor->device_type != dlpack::kCpu) {
    refuse_in_place(
        describe, "is on a device (DLPack device type " + std::to_string(tensor->device_type) + ")",
        "a copy in the memory of the CPU", advice);
  }
  auto found = code_of_dlpack(*tensor);
  if (!found) refuse_type(describe, dlpack_type_name(*tensor));
  if (!is_contiguous(tensor->ndim, tensor->shape, tensor->strides, 1))
    refuse_layout(describe, advice);
  data = static_cast<char*>(tensor->data) + tensor->byte_offset;
  code = *found;
  shape.assign(tensor->shape, tensor->shape + tensor->ndim);
  return true;
}

void HostArray::finish(nb::handle object, bool must_write, const Describe& describe) {
  bytes = bytes_of(code, shape);
  if (must_write && !writable) {
    raise_usage(describe() + " is read-only (" + type_text(object) +
                "), but it is an output; pass a writable array");
  }
}

}  // namespace pto::core
