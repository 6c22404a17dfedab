// Submits for runtimes that derive the edges from the accesses of the tasks.
#include "submit.hpp"

#include "data_types.hpp"
#include "device.hpp"
#include "device_array.hpp"
#include "errors.hpp"
#include "graph.hpp"
#include "pto/abi/dtype.h"
#include "run.hpp"

namespace pto::core {
namespace {

// An argument whose direction the call states, for example In(a).
struct Directed {
  PyObject* object;
  Tag direction;
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
    return {object, Tag::kAny, {}};
  }
  const auto number = static_cast<uint8_t>(PyLong_AsLong(direction.ptr()));
  return {value.ptr(), static_cast<Tag>(number), std::move(value)};
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
  if (directed.direction == Tag::kAny) {
    raise_usage(kernel_.describe_argument(position) + " is " + shown(object) + " of type " +
                type_text(object) +
                "; pass a device array (an argument of the orchestration or rt.tensor), an int, "
                "a float or a ctypes scalar");
  }
  take_array(position, *nb::inst_ptr<DeviceArray>(directed.object), directed.direction);
}

void TaskParameters::take_array(size_t position, DeviceArray& array, Tag direction) {
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

namespace {

int32_t cluster_id(nb::handle cluster) {
  if (const auto id = integer_of(cluster, 0, INT32_MAX)) return static_cast<int32_t>(*id);
  raise_usage("cluster is " + shown(cluster) +
              "; pass a cluster that rt.allocate_cluster returned");
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
                    " are the only keywords; pass the arguments of the task by position");
      }
    }
    if (is_block && block_dim == 0)
      raise_usage("rt.submit_block needs the number of blocks, as in block_dim=8");
    if (where && where != Py_None) take_clusters(where, is_block);
  }

 private:
  void take_block_dim(PyObject* value) {
    const auto count = integer_of(value, 1, INT32_MAX);
    if (!count) raise_usage("block_dim is " + shown(value) + "; pass at least 1 block");
    block_dim = static_cast<uint32_t>(*count);
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
      raise_usage("clusters is " + shown(where) + "; pass a list of " + std::to_string(block_dim) +
                  " clusters, one for each block");
    }
    for (uint32_t i = 0; i < block_dim; ++i)
      clusters.push_back(cluster_id(PySequence_Fast_GET_ITEM(sequence, i)));
  }
};

}  // namespace

int64_t Graph::submit(PyObject* const* arguments, size_t count, PyObject* names, bool is_block) {
  OpenDevice& device = run().device();
  if (!device.has(PTO_RUNTIME_TENSORS))
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
  const SourcePosition place = callers_.here();
  task.file = place.file;
  task.line = place.line;
  const int64_t id = device.handing_over(
      [&] { return device.runtime_api()->submit_tensors(device.runtime(), &task); });
  if (id < 0) raise_latched();
  parameters.keep_allocations();
  if (!keywords.after) return id;
  if (PyIndex_Check(keywords.after)) {
    add_edge(task_id(keywords.after, "after"), id);
    return id;
  }
  PyObject* before = PySequence_Fast(keywords.after, "");
  const nb::object keep = nb::steal(before);
  PyErr_Clear();
  if (!before) raise_usage("after is " + shown(keywords.after) + "; pass task ids, as in (a, b)");
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
  OpenDevice& device = run_->device();
  const uint8_t code = code_of_object(dtype);
  const std::vector<npy_intp> extents = shape_of_object(shape);
  const View* view = device.views().intern(code, extents.data(), extents.size());
  auto buffer = std::make_shared<Buffer>(&device, view->bytes, mark_);
  return nb::cast(DeviceArray(nb::borrow(run_->device_object()), std::move(buffer), view));
}

nb::object Graph::pipe() {
  require(PTO_RUNTIME_TENSORS, "rt.pipe", "use rt.add_successor");
  OpenDevice& device = run_->device();
  const npy_intp one = 1;
  const View* view = device.views().intern(PTO_DTYPE_UINT8, &one, 1);
  auto buffer = std::make_shared<Buffer>(&device, 0, mark_);
  return nb::cast(DeviceArray::pipe(nb::borrow(run_->device_object()), std::move(buffer), view));
}

void Graph::scope_begin() {
  require(PTO_RUNTIME_SCOPES, "scopes", "remove rt.scope()");
  OpenDevice& device = run_->device();
  const SourcePosition place = callers_.here();
  const pto_status status = device.handing_over(
      [&] { return device.runtime_api()->scope_begin(device.runtime(), place.file, place.line); });
  if (status != PTO_OK) run_->raise_latched(status);
}

bool Graph::scope_end() {
  if (!run_) return true;
  run_->device().require_thread_of_run();
  OpenDevice& device = run_->device();
  return device.handing_over([&] { return device.runtime_api()->scope_end(device.runtime()); }) ==
         PTO_OK;
}

int32_t Graph::allocate_cluster() {
  require(PTO_RUNTIME_CLUSTERS, "clusters", "remove rt.allocate_cluster()");
  OpenDevice& device = run_->device();
  const SourcePosition place = callers_.here();
  const int32_t cluster = device.handing_over([&] {
    return device.runtime_api()->allocate_cluster(device.runtime(), place.file, place.line);
  });
  if (cluster < 0) raise_latched();
  return cluster;
}

bool Graph::free_cluster(nb::handle cluster) {
  require(PTO_RUNTIME_CLUSTERS, "clusters", "remove rt.free_cluster()");
  OpenDevice& device = run_->device();
  const int32_t id = cluster_id(cluster);
  return device.handing_over(
             [&] { return device.runtime_api()->free_cluster(device.runtime(), id); }) == PTO_OK;
}

}  // namespace pto::core
