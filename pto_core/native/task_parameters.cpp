#include "task_parameters.hpp"

#include "device_array.hpp"
#include "errors.hpp"

namespace pto::core {
namespace {

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
  if (count > PTO_MAX_KERNEL_ARGS) refuse(count, PTO_MAX_KERNEL_ARGS, " arguments");
  kernel_.check_count(count, appended);
  for (size_t i = 0; i < count; ++i) take_one(i, arguments[i]);
  if (tensors_ > PTO_MAX_TASK_TENSORS) refuse(tensors_, PTO_MAX_TASK_TENSORS, " tensors");
  if (scalars_ + appended > PTO_MAX_TASK_SCALARS)
    refuse(scalars_, PTO_MAX_TASK_SCALARS - appended, " scalars");
  count_ = count;
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
  if (Py_TYPE(object) == DeviceArray::type) {
    take_array(position, *nb::inst_ptr<DeviceArray>(object), kernel_.direction(position));
  } else if (const auto scalar = kernel_.scalar(position, object)) {
    params_[position].tag = PTO_TAG_SCALAR;
    params_[position].value.scalar = scalar->bits;
    specs_[position] = spec_of(scalar->kind);
    ++scalars_;
  } else {
    take_directed(position, object);
  }
}

void TaskParameters::take_directed(size_t position, PyObject* object) {
  const Directed directed = directed_of(object);
  if (directed.direction == Direction::kUnspecified) {
    raise_usage(kernel_.describe_argument(position) + " is " + shown(object) + " of type " +
                type_text(object) +
                "; pass a device array (an argument of the orchestration or rt.tensor), an int, "
                "a float or a ctypes scalar");
  }
  take_array(position, *nb::inst_ptr<DeviceArray>(directed.object), directed.direction);
}

void TaskParameters::take_array(size_t position, DeviceArray& array, Direction direction) {
  if (!array.belongs_to(&device_)) array.require(&device_);
  const auto tag = static_cast<uint32_t>(direction);
  pto_tensor_data& tensor = array.tensor();
  const bool is_odd = tag >= PTO_TAG_SCALAR || array.is_read_only() || tensor.buffer.addr == 0;
  if (is_odd) check_unusual(position, array, tag);
  params_[position].tag = tag;
  params_[position].value.tensor = &tensor;
  specs_[position] = kTensorSpec;
  ++tensors_;
}

// Handle an unusual array argument: refuse an invalid array, and accept an array whose memory the
// submit allocates.
void TaskParameters::check_unusual(size_t position, DeviceArray& array, uint32_t tag) {
  kernel_.check_array(position);
  if (tag >= PTO_TAG_SCALAR) {
    raise_usage(kernel_.describe_argument(position) +
                " is a device array, and its direction is unknown; annotate "
                "the parameter In, Out or InOut (a C++ kernel: signature=...), or pass In(array)");
  }
  if (array.is_read_only() && tag != PTO_TAG_INPUT && tag != PTO_TAG_NO_DEP) {
    raise_usage(
        kernel_.describe_argument(position) +
        " is written by the task, but the run only reads this array: the orchestration declares it "
        "In, or it is read-only on the host; declare it InOut or Out, pass a writable array, "
        "or use an rt.tensor");
  }
  if (array.tensor().buffer.addr != 0) return;
  if (tag != PTO_TAG_OUTPUT) {
    raise_usage(kernel_.describe_argument(position) +
                " is read by the task, but no earlier task has written it; submit it as Out first");
  }
  for (size_t i = 0; i < fresh_count_; ++i) {
    if (&fresh_[i]->buffer() != &array.buffer()) continue;
    raise_usage(kernel_.describe_argument(position) +
                " shares its new memory with another Out of the same task; pass it once");
  }
  fresh_[fresh_count_++] = &array;
}

}  // namespace pto::core
