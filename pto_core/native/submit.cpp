// The submit path of runtimes that find the edges by what tasks read and write.
#include <bit>

#include "caller.hpp"
#include "data_types.hpp"
#include "device.hpp"
#include "device_array.hpp"
#include "errors.hpp"
#include "graph.hpp"
#include "pto/abi/dtype.h"
#include "run.hpp"

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

// A Python number as a scalar of a declared type; others are what they are.
Scalar scalar_of_type(const LoadedKernel& kernel, size_t position, PyObject* number, int code) {
  const bool is_float = PyFloat_CheckExact(number);
  const ScalarKind kind = scalar_kind_of(static_cast<uint8_t>(code));
  const bool wants_float = kind >= ScalarKind::kFloat16;
  if (is_float && !wants_float) {
    raise_usage(parameter_text(kernel, position) + " is " + shown(number) +
                ", its signature says an integer; declare Scalar('float32') or Scalar('float64'), "
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

// An argument with its direction said at the call, as in In(a).
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

// The parameters of one task, as the runtime takes them.
class TaskParameters {
 public:
  TaskParameters(const Device& device, const LoadedKernel& kernel)
      : device_(device), kernel_(kernel), is_python_(kernel.is_python()) {}

  void take(PyObject* const* arguments, size_t count, size_t appended) {
    check_count(count, appended);
    for (size_t i = 0; i < count; ++i) take_one(i, arguments[i]);
    if (tensors_ > PTO_MAX_TASK_TENSORS) refuse(tensors_, PTO_MAX_TASK_TENSORS, " tensors");
    if (scalars_ + appended > PTO_MAX_TASK_SCALARS)
      refuse(scalars_, PTO_MAX_TASK_SCALARS - appended, " scalars");
    count_ = count;
  }

  // After a submit: what it allocated.
  void keep_allocations() {
    for (size_t i = 0; i < fresh_count_; ++i) fresh_[i]->keep_allocation();
  }

  pto_param* data() { return params_; }
  uint32_t size() const { return static_cast<uint32_t>(count_); }
  bool has_scalars() const { return scalars_ != 0; }
  const ArgumentSpec* specs() const { return specs_; }

 private:
  bool fits(size_t count) const {
    const TaskSignature& task = kernel_.task;
    return count >= task.required && (task.takes_more || count <= task.parameters.size());
  }

  // A signature may list the block numbers that a submit appends, or leave them out.
  void check_count(size_t count, size_t appended) const {
    const TaskSignature& task = kernel_.task;
    if (count > PTO_MAX_KERNEL_ARGS) refuse(count, PTO_MAX_KERNEL_ARGS, " arguments");
    if (fits(count) || fits(count + appended)) return;
    const size_t most = task.parameters.size();
    const std::string more = task.takes_more         ? " or more"
                             : most != task.required ? " to " + std::to_string(most)
                                                     : "";
    raise_usage("a task of kernel '" + kernel_.name + "' has " + std::to_string(count) +
                " arguments" + (appended ? " and the two numbers of its block" : "") +
                ", its signature takes " + std::to_string(task.required) + more +
                "; pass as many as it takes");
  }

  [[noreturn]] void refuse(size_t count, size_t limit, const char* what) const {
    nb::dict fields;
    fields["value"] = count;
    fields["limit"] = limit;
    raise_error("CapacityError",
                "a task of kernel '" + kernel_.name + "' has " + std::to_string(count) + what +
                    ", a task takes at most " + std::to_string(limit) + "; pass fewer",
                fields);
  }

  void take_one(size_t position, PyObject* object) {
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

  void take_directed(size_t position, PyObject* object) {
    const Directed directed = directed_of(object);
    if (directed.direction == Direction::kUnspecified) {
      raise_usage(parameter_text(kernel_, position) + " is " + shown(object) + " of type " +
                  type_text(object) +
                  "; pass a device array (an argument of the orchestration or rt.tensor), an int, "
                  "a float or a ctypes scalar");
    }
    take_array(position, *nb::inst_ptr<DeviceArray>(directed.object), directed.direction);
  }

  void take_array(size_t position, DeviceArray& array, Direction direction) {
    if (!array.belongs_to(&device_)) array.require(&device_);
    const uint32_t tag = tag_of(direction);
    pto_tensor_data& tensor = array.tensor();
    const bool is_odd = tag == PTO_TAG_SCALAR || array.is_read_only() || tensor.buffer.addr == 0;
    if (is_odd) look_at_odd(position, array, direction, tag);
    params_[position].tag = tag;
    params_[position].value.tensor = &tensor;
    specs_[position] = kTensorSpec;
    ++tensors_;
  }

  // What is refused, and what the submit will allocate.
  void look_at_odd(size_t position, DeviceArray& array, Direction direction, uint32_t tag) {
    if (direction == Direction::kScalar) {
      raise_usage(parameter_text(kernel_, position) +
                  " is a device array, its signature says scalar; pass a number or change the "
                  "signature");
    }
    if (tag == PTO_TAG_SCALAR) {
      raise_usage(
          parameter_text(kernel_, position) +
          " is a device array, and nothing says what the kernel does with it; annotate "
          "the parameter In, Out or InOut (a C++ kernel: signature=...), or pass In(array)");
    }
    if (array.is_read_only() && tag != PTO_TAG_INPUT && tag != PTO_TAG_NO_DEP) {
      raise_usage(parameter_text(kernel_, position) +
                  " is written, but the array that the run got for it is read-only; pass a "
                  "writable one, or use an rt.tensor");
    }
    if (array.tensor().buffer.addr != 0) return;
    if (tag != PTO_TAG_OUTPUT) {
      raise_usage(parameter_text(kernel_, position) +
                  " is read before a task wrote it; submit it as Out first");
    }
    for (size_t i = 0; i < fresh_count_; ++i) {
      if (&fresh_[i]->buffer() != &array.buffer()) continue;
      raise_usage(parameter_text(kernel_, position) +
                  " shares its new memory with another Out of the same task; pass it once");
    }
    fresh_[fresh_count_++] = &array;
  }

  void take_scalar(size_t position, PyObject* object, Scalar scalar, Direction direction,
                   int code) {
    if (direction != Direction::kScalar && direction != Direction::kUnspecified) {
      raise_usage(parameter_text(kernel_, position) + " is " + shown(object) +
                  ", its signature says an array; pass a device array or change the signature");
    }
    if (code >= 0 && (PyLong_CheckExact(object) || PyFloat_CheckExact(object)))
      scalar = scalar_of_type(kernel_, position, object, code);
    params_[position].tag = PTO_TAG_SCALAR;
    params_[position].value.scalar = scalar.bits;
    specs_[position] = spec_of(scalar.kind);
    ++scalars_;
  }

  const Device& device_;
  const LoadedKernel& kernel_;
  const bool is_python_;
  size_t count_ = 0;
  size_t tensors_ = 0;
  size_t scalars_ = 0;
  size_t fresh_count_ = 0;
  pto_param params_[PTO_MAX_KERNEL_ARGS];
  ArgumentSpec specs_[PTO_MAX_KERNEL_ARGS];
  DeviceArray* fresh_[PTO_MAX_KERNEL_ARGS];
};

int32_t cluster_id(nb::handle cluster) {
  const long long id = PyLong_Check(cluster.ptr()) ? PyLong_AsLongLong(cluster.ptr()) : -1;
  if (id >= 0 && id <= INT32_MAX) return static_cast<int32_t>(id);
  PyErr_Clear();
  raise_usage("cluster is " + shown(cluster) + "; give one that rt.allocate_cluster returned");
}

// The keywords of rt.submit and rt.submit_block.
struct Keywords {
  PyObject* after = nullptr;
  std::vector<int32_t> clusters;
  uint32_t block_dim = 0;

  void take(PyObject* const* values, PyObject* names, bool is_block) {
    PyObject* where = nullptr;
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i) {
      PyObject* name = PyTuple_GET_ITEM(names, i);
      const auto is = [&](const char* word) {
        return PyUnicode_CompareWithASCIIString(name, word) == 0;
      };
      if (is("after")) {
        after = values[i];
      } else if (is(is_block ? "clusters" : "cluster")) {
        where = values[i];
      } else if (is_block && is("block_dim")) {
        take_block_dim(values[i]);
      } else {
        raise_usage("rt.submit" + std::string(is_block ? "_block" : "") + " has no keyword " +
                    shown(name) + "; " +
                    (is_block ? "block_dim, clusters and after" : "cluster and after") +
                    " exist, a task's own arguments come by position");
      }
    }
    if (is_block && block_dim == 0)
      raise_usage("rt.submit_block needs the number of blocks, as in block_dim=8");
    if (where && where != Py_None) take_clusters(where, is_block);
  }

 private:
  void take_block_dim(PyObject* value) {
    const long long count = PyLong_Check(value) ? PyLong_AsLongLong(value) : -1;
    if (count < 1 || count > INT32_MAX) {
      PyErr_Clear();
      raise_usage("block_dim is " + shown(value) + "; give a number of blocks from 1");
    }
    block_dim = static_cast<uint32_t>(count);
  }

  void take_clusters(PyObject* where, bool is_block) {
    if (!is_block) {
      clusters.push_back(cluster_id(where));
      return;
    }
    PyObject* sequence = PySequence_Fast(where, "");
    const nb::object keep = nb::steal(sequence);
    PyErr_Clear();
    if (!sequence || PySequence_Fast_GET_SIZE(sequence) != static_cast<Py_ssize_t>(block_dim)) {
      raise_usage("clusters is " + shown(where) + "; give a list of " + std::to_string(block_dim) +
                  " clusters, one for each block");
    }
    for (uint32_t i = 0; i < block_dim; ++i)
      clusters.push_back(cluster_id(PySequence_Fast_GET_ITEM(sequence, i)));
  }
};

}  // namespace

int64_t Graph::submit(PyObject* const* arguments, size_t count, PyObject* names, bool is_block) {
  Device& device = run().device();
  if (!device.has_tensors())
    require(PTO_RUNTIME_TENSORS, is_block ? "rt.submit_block" : "rt.submit",
            "use rt.add_task and rt.add_successor");
  if (count == 0) raise_usage("rt.submit needs a kernel, as in rt.submit(kernel, a, b)");
  const nb::handle kernel = arguments[0];
  KernelUse& use = kernel.ptr() == last_kernel_ ? *last_use_ : use_of(kernel);
  Keywords keywords;
  if (names || is_block) keywords.take(arguments + count, names, is_block);
  TaskParameters parameters(device, *use.kernel);
  parameters.take(arguments + 1, count - 1, is_block ? 2 : 0);
  pto_tensor_task task{};
  task.func_id = use.func_id;
  task.core_type = use.kernel->core_type;
  task.num_params = parameters.size();
  task.block_dim = keywords.block_dim;
  task.params = parameters.data();
  task.kernel = use.kernel->address;
  if (use.kernel->is_python() && parameters.has_scalars())
    task.cookie = cookie_of(use, parameters.specs(), count - 1);
  if (!keywords.clusters.empty()) task.clusters = keywords.clusters.data();
  task.line = -1;
  const int64_t id = device.handing_over(
      [&] { return device.runtime_api()->submit_tensors(device.runtime(), &task); });
  if (task.was_stuck) run_->keep_stuck_place(place_of_caller());
  if (id < 0) raise_latched();
  parameters.keep_allocations();
  if (!keywords.after) return id;
  if (PyLong_Check(keywords.after)) {
    add_edge(task_id(keywords.after, "after"), id);
    return id;
  }
  PyObject* before = PySequence_Fast(keywords.after, "");
  const nb::object keep = nb::steal(before);
  PyErr_Clear();
  if (!before) raise_usage("after is " + shown(keywords.after) + "; give task ids, as in (a, b)");
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(before); ++i)
    add_edge(task_id(PySequence_Fast_GET_ITEM(before, i), "a task of after"), id);
  return id;
}

void Graph::add_dep(nb::handle from, nb::handle to) {
  require(PTO_RUNTIME_TENSORS, "rt.add_dep", "use rt.add_successor");
  const int64_t first = task_id(from, "the first task of an edge");
  add_edge(first, task_id(to, "the second task of an edge"));
}

nb::object Graph::tensor(nb::handle shape, nb::handle dtype) {
  require(PTO_RUNTIME_TENSORS, "rt.tensor", "use rt.empty");
  Device& device = run_->device();
  const uint8_t code = code_of_object(dtype);
  const std::vector<npy_intp> extents = shape_of_object(shape);
  const View* view = device.views().intern(code, extents.data(), extents.size());
  auto buffer = std::make_shared<Buffer>(&device, view->bytes, mark_);
  return nb::cast(DeviceArray(nb::borrow(run_->device_object()), std::move(buffer), view));
}

nb::object Graph::pipe() {
  require(PTO_RUNTIME_TENSORS, "rt.pipe", "use rt.add_successor");
  Device& device = run_->device();
  const npy_intp one = 1;
  const View* view = device.views().intern(PTO_DTYPE_UINT8, &one, 1);
  auto buffer = std::make_shared<Buffer>(&device, 0, mark_);
  return nb::cast(DeviceArray::pipe(nb::borrow(run_->device_object()), std::move(buffer), view));
}

void Graph::scope_begin() {
  require(PTO_RUNTIME_SCOPES, "scopes", "remove rt.scope()");
  Device& device = run_->device();
  const pto_status status =
      device.handing_over([&] { return device.runtime_api()->scope_begin(device.runtime()); });
  if (status != PTO_OK) run_->raise_latched(status);
}

bool Graph::scope_end() {
  if (!run_) return true;
  run_->device().require_thread_of_run();
  Device& device = run_->device();
  return device.handing_over([&] { return device.runtime_api()->scope_end(device.runtime()); }) ==
         PTO_OK;
}

int32_t Graph::allocate_cluster() {
  require(PTO_RUNTIME_CLUSTERS, "clusters", "remove rt.allocate_cluster()");
  Device& device = run_->device();
  const Place place = place_of_caller();
  const char* file = kept_text(place.file.c_str());
  const int32_t cluster = device.handing_over(
      [&] { return device.runtime_api()->allocate_cluster(device.runtime(), file, place.line); });
  if (cluster < 0) raise_latched();
  return cluster;
}

bool Graph::free_cluster(nb::handle cluster) {
  require(PTO_RUNTIME_CLUSTERS, "clusters", "remove rt.free_cluster()");
  Device& device = run_->device();
  const int32_t id = cluster_id(cluster);
  return device.handing_over(
             [&] { return device.runtime_api()->free_cluster(device.runtime(), id); }) == PTO_OK;
}

}  // namespace pto::core
