#include "graph.hpp"

#include <algorithm>

#include "data_types.hpp"
#include "device.hpp"
#include "device_array.hpp"
#include "errors.hpp"
#include "run.hpp"

namespace pto::core {
namespace {

[[noreturn]] void refuse_argument(const LoadedKernel& kernel, size_t position, nb::handle object) {
  raise_usage("argument " + std::to_string(position) + " of a task of kernel '" + kernel.name +
              "' is " + shown(object) + " of type " + type_text(object) +
              "; pass a device array (an argument of the orchestration or rt.empty), an int, a "
              "float or a ctypes scalar");
}

}  // namespace

Graph::Graph(Run& run) : run_(&run) {}

Run& Graph::run() {
  if (!run_) raise_usage("rt was used after its run; an orchestration must not keep it");
  run_->device().require_thread_of_run();
  run_->require_time();
  return *run_;
}

int64_t Graph::add_task(nb::handle kernel, nb::handle arguments) {
  Device& device = run().device();
  Use& use = kernel.ptr() == last_kernel_ ? *last_use_ : use_of(kernel);
  if (!PyTuple_CheckExact(arguments.ptr()) && !PyList_CheckExact(arguments.ptr())) {
    raise_usage("the arguments of a task of kernel '" + use.kernel->name + "' are " +
                shown(arguments) + "; give a tuple, as in rt.add_task(kernel, (a, b))");
  }
  const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(arguments.ptr()));
  const size_t hidden = use.kernel->is_python() ? 1 : 0;
  if (count + hidden > device.max_task_arguments()) {
    nb::dict fields;
    fields["value"] = count;
    fields["limit"] = device.max_task_arguments() - hidden;
    raise_error("CapacityError",
                "a task of kernel '" + use.kernel->name + "' has " + std::to_string(count) +
                    " arguments, the runtime takes at most " +
                    std::to_string(device.max_task_arguments() - hidden) +
                    (hidden ? " (and one more for the types and shapes of a Python kernel)" : "") +
                    "; pass fewer",
                fields);
  }
  uint64_t values[PTO_MAX_KERNEL_ARGS];
  ArgumentSpec specs[PTO_MAX_KERNEL_ARGS];
  PyObject** items = PySequence_Fast_ITEMS(arguments.ptr());
  for (size_t i = 0; i < count; ++i) {
    if (Py_TYPE(items[i]) == DeviceArray::type) {
      const auto* array = nb::inst_ptr<DeviceArray>(items[i]);
      if (!array->belongs_to(&device)) array->require(&device);
      values[i] = array->address();
      specs[i] = spec_of(&array->view());
    } else if (auto scalar = scalar_of(items[i])) {
      values[i] = scalar->bits;
      specs[i] = spec_of(scalar->kind);
    } else {
      refuse_argument(*use.kernel, i, items[i]);
    }
  }
  if (hidden) values[count] = signature_index(use, specs, count);
  pto_task task{};
  task.func_id = use.func_id;
  task.core_type = use.kernel->core_type;
  task.num_args = static_cast<uint32_t>(count + hidden);
  task.args = values;
  task.kernel = use.kernel->address;
  return submit(task);
}

int64_t Graph::submit(const pto_task& task) {
  Device& device = run_->device();
  const int64_t id =
      device.handing_over([&] { return device.runtime_api()->submit(device.runtime(), &task); });
  if (id < 0) run_->raise_latched(PTO_ERROR_INTERNAL);
  return id;
}

uint64_t Graph::signature_index(Use& use, const ArgumentSpec* specs, size_t count) {
  if (use.has_signature) {
    const CallSignature& last = *signatures_[use.signature];
    if (last.size() == count && std::equal(specs, specs + count, last.begin()))
      return use.signature;
  }
  CallSignature wanted(specs, specs + count);
  const auto [found, is_new] = signature_indices_.try_emplace(wanted, signatures_.size());
  if (is_new) signatures_.push_back(std::make_unique<CallSignature>(std::move(wanted)));
  use.signature = found->second;
  use.has_signature = true;
  return found->second;
}

Graph::Use& Graph::use_of(nb::handle kernel) {
  if (PyLong_Check(kernel.ptr())) return use_of_id(kernel);
  auto found = uses_.find(kernel.ptr());
  Use& use = found != uses_.end() ? found->second : first_use(kernel);
  last_kernel_ = kernel.ptr();
  last_use_ = &use;
  return use;
}

Graph::Use& Graph::first_use(nb::handle kernel) {
  const LoadedKernel* loaded = run_->device().loaded(kernel);
  Use use;
  use.kernel = loaded;
  use.func_id = -1;
  for (const Child& child : run_->program().children)
    if (child.kernel == loaded) use.func_id = child.func_id;
  if (use.func_id < 0) use.func_id = free_func_id();
  kept_.push_back(nb::borrow(kernel));
  return uses_.emplace(kernel.ptr(), use).first->second;
}

Graph::Use& Graph::use_of_id(nb::handle func_id) {
  const long long id = PyLong_AsLongLong(func_id.ptr());
  if (id == -1 && PyErr_Occurred()) PyErr_Clear();
  auto found = uses_by_id_.find(id);
  if (found != uses_by_id_.end()) return found->second;
  const LoadedKernel* loaded = run_->program().child(id);
  if (!loaded) {
    raise_usage("no kernel has func_id " + shown(func_id) + " in chip '" + run_->program().name +
                "'; give one of its children's ids or a @kernel");
  }
  Use use;
  use.kernel = loaded;
  use.func_id = static_cast<int32_t>(id);
  return uses_by_id_.emplace(id, use).first->second;
}

int32_t Graph::free_func_id() const {
  int32_t next = 0;
  for (const Child& child : run_->program().children) next = std::max(next, child.func_id + 1);
  for (const auto& [key, use] : uses_) next = std::max(next, use.func_id + 1);
  return next;
}

std::string Graph::kernel_name(int32_t func_id) const {
  for (const auto& [key, use] : uses_)
    if (use.func_id == func_id) return use.kernel->name;
  return "";
}

int64_t Graph::task_id(nb::handle task, const char* what) const {
  const long long id = PyLong_Check(task.ptr()) ? PyLong_AsLongLong(task.ptr()) : -1;
  if (id >= 0) return id;
  if (PyErr_Occurred()) PyErr_Clear();
  raise_usage(std::string(what) + " is " + shown(task) + "; give a task id that add_task returned");
}

void Graph::add_successor(nb::handle from, nb::handle to) {
  Device& device = run().device();
  const int64_t first = task_id(from, "the first task of an edge");
  const int64_t second = task_id(to, "the second task of an edge");
  const pto_status status = device.handing_over(
      [&] { return device.runtime_api()->add_edge(device.runtime(), first, second); });
  if (status != PTO_OK) run_->raise_latched(status);
}

void Graph::publish(nb::handle task) {
  Device& device = run().device();
  const int64_t id = task_id(task, "the task to publish");
  const pto_status status =
      device.handing_over([&] { return device.runtime_api()->publish(device.runtime(), id); });
  if (status != PTO_OK) run_->raise_latched(status);
}

nb::object Graph::empty(nb::handle shape, nb::handle dtype) {
  Device& device = run().device();
  const uint8_t code = code_of_object(dtype);
  const std::vector<npy_intp> extents = shape_of_object(shape);
  const View* view = device.views().intern(code, extents.data(), extents.size());
  std::shared_ptr<Buffer> buffer = device.allocate(view->bytes, true);
  run_->keep_temporary(buffer);
  const uint64_t address = buffer->address;
  return nb::cast(DeviceArray(nb::borrow(run_->device_object()), std::move(buffer), view, address));
}

void Graph::scope() {
  raise_error("UnsupportedError", std::string("runtime '") + run().device().runtime_api()->variant +
                                      "' has no scopes; remove rt.scope()");
}

void bind_graph(nb::module_& module) {
  nb::class_<Graph>(module, "Graph",
                    "The task graph that an orchestration builds, valid during its run only.")
      .def("add_task", &Graph::add_task, nb::arg("kernel").none(), nb::arg("args").none(),
           nb::sig("def add_task(self, kernel: object, args: tuple[typing.Any, ...] | "
                   "list[typing.Any]) -> int"),
           "Add a task of `kernel` (a @kernel, a CoreCallable, or the func_id of a child of the "
           "chip) with device arrays and scalars, and give its id.")
      .def("add_successor", &Graph::add_successor, nb::arg("producer").none(),
           nb::arg("consumer").none(),
           nb::sig("def add_successor(self, producer: int, consumer: int) -> None"),
           "Let task `consumer` start only when task `producer` has completed.")
      .def("publish", &Graph::publish, nb::arg("task").none(),
           nb::sig("def publish(self, task: int) -> None"),
           "Let the schedulers have a task: all its edges from earlier tasks are there. Where the "
           "host builds the graph, everything is published at the end anyway.")
      .def("empty", &Graph::empty, nb::arg("shape").none(), nb::arg("dtype").none(),
           nb::sig("def empty(self, shape: int | collections.abc.Sequence[int], dtype: "
                   "numpy.typing.DTypeLike) -> DeviceArray"),
           "Allocate device memory that the framework frees when the run ends.")
      .def(
          "scope", [](Graph& self) { self.scope(); }, nb::sig("def scope(self) -> typing.NoReturn"),
          "Raise UnsupportedError: the build-graph runtimes have no scopes.");
}

}  // namespace pto::core
