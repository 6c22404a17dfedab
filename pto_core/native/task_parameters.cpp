#include "task_parameters.hpp"

#include <bit>

#include "device_array.hpp"
#include "errors.hpp"

namespace pto::core {
namespace {

std::string parameter_text(const LoadedKernel& kernel, size_t position) {
  std::string text = "argument " + std::to_string(position);
  if (position < kernel.task.parameters.size())
    text += " ('" + kernel.task.parameters[position].name + "')";
  return text + " of a task of kernel '" + kernel.name + "'";
}

uint32_t tag_of(Direction direction) {
  switch (direction) {
    case Direction::kIn:
      return PTO_TAG_INPUT;
    case Direction::kOut:
      return PTO_TAG_OUTPUT;
    case Direction::kInOut:
      return PTO_TAG_INOUT;
    case Direction::kOutExisting:
      return PTO_TAG_OUTPUT_EXISTING;
    case Direction::kNoDep:
      return PTO_TAG_NO_DEP;
    case Direction::kScalar:
    case Direction::kUnspecified:
      break;
  }
  return PTO_TAG_SCALAR;
}

// Convert a Python number to a scalar of the declared type. Other objects are returned unchanged.
Scalar scalar_of_type(const LoadedKernel& kernel, size_t position, PyObject* number, int code) {
  const bool is_float = PyFloat_CheckExact(number);
  const ScalarKind kind = scalar_kind_of(static_cast<uint8_t>(code));
  const bool wants_float = kind >= ScalarKind::kFloat16;
  if (is_float && !wants_float) {
    raise_usage(
        parameter_text(kernel, position) + " is " + shown(number) +
        ", but its signature declares an integer; declare Scalar('float32') or Scalar('float64'), "
        "or pass an int");
  }
  if (!wants_float) return {scalar_of(number)->bits, kind};
  const double value = PyFloat_AsDouble(number);
  if (value == -1.0 && PyErr_Occurred()) throw nb::python_error();
  if (kind == ScalarKind::kFloat64) return {std::bit_cast<uint64_t>(value), kind};
  if (kind == ScalarKind::kFloat32) {
    return {std::bit_cast<uint32_t>(static_cast<float>(value)), kind};
  }
  uint64_t bits = 0;
  if (PyFloat_Pack2(value, reinterpret_cast<char*>(&bits), 1) != 0) throw nb::python_error();
  return {bits, kind};
}

// An argument whose direction the call states, for example In(a).
struct Directed {
  PyObject* object;
  Direction direction;
  nb::object keep;
};

Directed directed_of(PyObject* object) {
  static PyObject* const value_name = PyUnicode_InternFromString("value");
  static PyObject* const direction_name = PyUnicode_InternFromString("direction");
  nb::object value = nb::steal(PyObject_GetAttr(object, value_name));
  nb::object direction =
      value.is_valid() ? nb::steal(PyObject_GetAttr(object, direction_name)) : nb::object();
  if (!direction.is_valid() || Py_TYPE(value.ptr()) != DeviceArray::type) {
    PyErr_Clear();
    return {object, Direction::kUnspecified, {}};
  }
  const auto number = static_cast<uint8_t>(PyLong_AsLong(direction.ptr()));
  return {value.ptr(), static_cast<Direction>(number), std::move(value)};
}

}  // namespace

void TaskParameters::take(PyObject* const* arguments, size_t count, size_t appended) {
  check_count(count, appended);
  for (size_t i = 0; i < count; ++i) take_one(i, arguments[i]);
  if (tensors_ > PTO_MAX_TASK_TENSORS) refuse(tensors_, PTO_MAX_TASK_TENSORS, " tensors");
  if (scalars_ + appended > PTO_MAX_TASK_SCALARS)
    refuse(scalars_, PTO_MAX_TASK_SCALARS - appended, " scalars");
  count_ = count;
}

bool TaskParameters::fits(size_t count) const {
  const TaskSignature& task = kernel_.task;
  return count >= task.required && (task.takes_more || count <= task.parameters.size());
}

// The arguments may match with or without the block numbers that a submit appends, because a
// signature may list or omit them.
void TaskParameters::check_count(size_t count, size_t appended) const {
  const TaskSignature& task = kernel_.task;
  if (count > PTO_MAX_KERNEL_ARGS) refuse(count, PTO_MAX_KERNEL_ARGS, " arguments");
  if (fits(count) || fits(count + appended)) return;
  const size_t most = task.parameters.size();
  const std::string more = task.takes_more         ? " or more"
                           : most != task.required ? " to " + std::to_string(most)
                                                   : "";
  raise_usage("a task of kernel '" + kernel_.name + "' has " + std::to_string(count) +
              " arguments" + (appended ? " and the two numbers of its block" : "") +
              ", but its signature accepts " + std::to_string(task.required) + more +
              "; pass as many arguments as it accepts");
}

void TaskParameters::refuse(size_t count, size_t limit, const char* what) const {
  nb::dict fields;
  fields["value"] = count;
  fields["limit"] = limit;
  raise_error("CapacityError",
              "a task of kernel '" + kernel_.name + "' has " + std::to_string(count) + what +
                  ", but a task accepts at most " + std::to_string(limit) + "; pass fewer",
              fields);
}

void TaskParameters::take_one(size_t position, PyObject* object) {
  Direction direction = kernel_.task.rest;
  int code = -1;
  if (position < kernel_.task.parameters.size()) {
    direction = kernel_.task.parameters[position].direction;
    code = kernel_.task.parameters[position].code;
  }
  if (Py_TYPE(object) == DeviceArray::type) {
    take_array(position, *nb::inst_ptr<DeviceArray>(object), direction);
  } else if (auto scalar = scalar_of(object)) {
    take_scalar(position, object, *scalar, direction, code);
  } else {
    take_directed(position, object);
  }
}

void TaskParameters::take_directed(size_t position, PyObject* object) {
  const Directed directed = directed_of(object);
  if (directed.direction == Direction::kUnspecified) {
    raise_usage(parameter_text(kernel_, position) + " is " + shown(object) + " of type " +
                type_text(object) +
                "; pass a device array (an argument of the orchestration or rt.tensor), an int, "
                "a float or a ctypes scalar");
  }
  take_array(position, *nb::inst_ptr<DeviceArray>(directed.object), directed.direction);
}

void TaskParameters::take_array(size_t position, DeviceArray& array, Direction direction) {
  if (!array.belongs_to(&device_)) array.require(&device_);
  const uint32_t tag = tag_of(direction);
  pto_tensor_data& tensor = array.tensor();
  const bool is_odd = tag == PTO_TAG_SCALAR || array.is_read_only() || tensor.buffer.addr == 0;
  if (is_odd) check_unusual(position, array, direction, tag);
  params_[position].tag = tag;
  params_[position].value.tensor = &tensor;
  specs_[position] = kTensorSpec;
  ++tensors_;
}

// Handle an unusual array argument: refuse an invalid array, and accept an array whose memory the
// submit allocates.
void TaskParameters::check_unusual(size_t position, DeviceArray& array, Direction direction,
                                   uint32_t tag) {
  if (direction == Direction::kScalar) {
    raise_usage(
        parameter_text(kernel_, position) +
        " is a device array, but its signature declares scalar; pass a number or change the "
        "signature");
  }
  if (tag == PTO_TAG_SCALAR) {
    raise_usage(parameter_text(kernel_, position) +
                " is a device array, and its direction is unknown; annotate "
                "the parameter In, Out or InOut (a C++ kernel: signature=...), or pass In(array)");
  }
  if (array.is_read_only() && tag != PTO_TAG_INPUT && tag != PTO_TAG_NO_DEP) {
    raise_usage(
        parameter_text(kernel_, position) +
        " is written by the task, but the run only reads this array: the orchestration declares it "
        "In, or it is read-only on the host; declare it InOut or Out, pass a writable array, "
        "or use an rt.tensor");
  }
  if (array.tensor().buffer.addr != 0) return;
  if (tag != PTO_TAG_OUTPUT) {
    raise_usage(parameter_text(kernel_, position) +
                " is read by the task, but no earlier task has written it; submit it as Out first");
  }
  for (size_t i = 0; i < fresh_count_; ++i) {
    if (&fresh_[i]->buffer() != &array.buffer()) continue;
    raise_usage(parameter_text(kernel_, position) +
                " shares its new memory with another Out of the same task; pass it once");
  }
  fresh_[fresh_count_++] = &array;
}

void TaskParameters::take_scalar(size_t position, PyObject* object, Scalar scalar,
                                 Direction direction, int code) {
  if (direction != Direction::kScalar && direction != Direction::kUnspecified) {
    raise_usage(
        parameter_text(kernel_, position) + " is " + shown(object) +
        ", but its signature declares an array; pass a device array or change the signature");
  }
  if (code >= 0 && (PyLong_CheckExact(object) || PyFloat_CheckExact(object)))
    scalar = scalar_of_type(kernel_, position, object, code);
  params_[position].tag = PTO_TAG_SCALAR;
  params_[position].value.scalar = scalar.bits;
  specs_[position] = spec_of(scalar.kind);
  ++scalars_;
}

}  // namespace pto::core
