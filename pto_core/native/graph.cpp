#include "graph.hpp"

#include <algorithm>
#include <cstdint>

#include "data_types.hpp"
#include "device.hpp"
#include "device_array.hpp"
#include "errors.hpp"
#include "run.hpp"
#include "text.hpp"

namespace pto::core {

SourcePosition Callers::here() {
  PyFrameObject* frame = PyEval_GetFrame();
  if (!frame) return {};
  nb::object code = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  const int instruction = PyFrame_GetLasti(frame);
  const auto address = reinterpret_cast<uintptr_t>(code.ptr());
  // A hash of code object and instruction, which drops bits that rarely differ: code objects are at
  // least 64 bytes apart, and each instruction has two bytes.
  Known& known = known_[((address >> 6) ^ static_cast<uintptr_t>(instruction >> 1)) % kRemembered];
  if (known.code.is(code) && known.instruction == instruction) return known.place;
  known.place = look_up(frame, code);
  known.instruction = instruction;
  known.code = std::move(code);
  return known.place;
}

SourcePosition Callers::look_up(PyFrameObject* frame, nb::handle code) {
  const nb::object file = nb::steal(PyObject_GetAttrString(code.ptr(), "co_filename"));
  std::string name;
  if (!file.is_valid() || !encode(file.ptr(), &name)) PyErr_Clear();
  return {files_.insert(name).first->c_str(), PyFrame_GetLineNumber(frame)};
}

namespace {

[[noreturn]] void refuse_argument(const LoadedKernel& kernel, size_t position, nb::handle object) {
  raise_usage(kernel.describe_argument(position) + " is " + shown(object) + " of type " +
              type_text(object) +
              "; pass a device array (an argument of the orchestration or rt.empty), an int, a "
              "float or a ctypes scalar");
}

[[noreturn]] void refuse_count(const LoadedKernel& kernel, size_t count, size_t limit) {
  nb::dict fields;
  fields["value"] = count;
  fields["limit"] = limit;
  raise_error("CapacityError",
              "a task of kernel '" + kernel.name + "' has " + std::to_string(count) +
                  " arguments, but the runtime accepts at most " + std::to_string(limit) +
                  "; pass fewer",
              fields);
}

// Return the address that a kernel without TensorData receives for a device array.
uint64_t address_of(const LoadedKernel& kernel, size_t position, const DeviceArray& array) {
  if (!array.is_contiguous() || array.address() == 0) {
    array.require_contiguous(kernel.describe_argument(position));
  }
  return array.address();
}

}  // namespace

Graph::Graph(Run& run) : run_(&run) {}

void Graph::deactivate() {
  run_ = nullptr;
  mark_->is_over = true;
}

Run& Graph::run() {
  if (!run_) raise_usage("rt was used after its run; an orchestration must not keep it");
  run_->device().require_thread_of_run();
  run_->require_time();
  return *run_;
}

void Graph::require(uint32_t capability, const char* call, const char* instead) {
  const OpenDevice& device = run().device();
  if (device.has(capability)) return;
  raise_error("UnsupportedError", std::string("runtime '") + device.runtime_api()->variant +
                                      "' has no " + call + "; " + instead);
}

void Graph::raise_latched() {
  run_->raise_latched(PTO_ERROR_INTERNAL);
}

int64_t Graph::checked(int64_t id) {
  if (id < 0) raise_latched();
  return id;
}

int64_t Graph::add_task(nb::handle kernel, nb::handle arguments) {
  require(PTO_RUNTIME_EXPLICIT_EDGES, "rt.add_task", "it derives the edges itself; use rt.submit");
  OpenDevice& device = run_->device();
  KernelUse& use = kernel.ptr() == last_kernel_ ? *last_use_ : use_of(kernel);
  if (!PyTuple_CheckExact(arguments.ptr()) && !PyList_CheckExact(arguments.ptr())) {
    raise_usage("the arguments of a task of kernel '" + use.kernel->name + "' are " +
                shown(arguments) + "; pass a tuple, as in rt.add_task(kernel, (a, b))");
  }
  const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(arguments.ptr()));
  if (count > device.max_task_arguments())
    refuse_count(*use.kernel, count, device.max_task_arguments());
  use.kernel->check_count(count, 0);
  uint64_t values[PTO_MAX_KERNEL_ARGS];
  ArgumentSpec specs[PTO_MAX_KERNEL_ARGS];
  PyObject** items = PySequence_Fast_ITEMS(arguments.ptr());
  for (size_t i = 0; i < count; ++i) {
    if (Py_TYPE(items[i]) == DeviceArray::type) {
      const auto* array = nb::inst_ptr<DeviceArray>(items[i]);
      if (!array->belongs_to(&device)) array->require(&device);
      use.kernel->check_array(i);
      values[i] = address_of(*use.kernel, i, *array);
      specs[i] = spec_of(&array->view(), array->is_read_only());
    } else if (auto scalar = use.kernel->scalar(i, items[i])) {
      values[i] = scalar->bits;
      specs[i] = spec_of(scalar->kind);
    } else {
      refuse_argument(*use.kernel, i, items[i]);
    }
  }
  pto_task task{};
  task.func_id = use.func_id;
  task.core_type = use.kernel->core_type;
  task.num_args = static_cast<uint32_t>(count);
  task.args = values;
  task.kernel = use.kernel->address;
  if (use.kernel->is_python()) task.cookie = cookie_of(use, specs, count);
  if (run_->is_logged()) {
    const SourcePosition place = callers_.here();
    task.file = place.file;
    task.line = place.line;
  }
  return checked(
      device.handing_over([&] { return device.runtime_api()->submit(device.runtime(), &task); }));
}

uint64_t Graph::cookie_of(KernelUse& use, const ArgumentSpec* specs, size_t count) {
  if (use.cookie != 0) {
    const CallSignature& last = *signature(use.cookie);
    if (last.size() == count && std::equal(specs, specs + count, last.begin())) return use.cookie;
  }
  CallSignature wanted(specs, specs + count);
  const auto [found, is_new] = cookies_.try_emplace(wanted, signatures_.size() + 1);
  if (is_new) signatures_.push_back(std::make_unique<CallSignature>(std::move(wanted)));
  return use.cookie = found->second;
}

KernelUse& Graph::use_of(nb::handle kernel) {
  if (PyIndex_Check(kernel.ptr())) return use_of_id(kernel);
  auto found = uses_.find(kernel.ptr());
  KernelUse& use = found != uses_.end() ? found->second : first_use(kernel);
  last_kernel_ = kernel.ptr();
  last_use_ = &use;
  return use;
}

KernelUse& Graph::first_use(nb::handle kernel) {
  const LoadedKernel* loaded = run_->device().loaded(kernel);
  KernelUse use;
  use.kernel = loaded;
  use.func_id = -1;
  for (const ChildKernel& child : run_->program().children)
    if (child.kernel == loaded) use.func_id = child.func_id;
  if (use.func_id < 0) use.func_id = free_func_id();
  kept_.push_back(nb::borrow(kernel));
  return uses_.emplace(kernel.ptr(), use).first->second;
}

KernelUse& Graph::use_of_id(nb::handle func_id) {
  const int64_t id = integer_of(func_id, 0, INT32_MAX).value_or(-1);
  auto found = uses_by_id_.find(id);
  if (found != uses_by_id_.end()) return found->second;
  const LoadedKernel* loaded = run_->program().child(id);
  if (!loaded) {
    raise_usage("no kernel has func_id " + shown(func_id) + " in chip '" + run_->program().name +
                "'; pass the id of one of its children, or a @kernel");
  }
  KernelUse use;
  use.kernel = loaded;
  use.func_id = static_cast<int32_t>(id);
  return uses_by_id_.emplace(id, use).first->second;
}

int32_t Graph::free_func_id() const {
  int32_t next = 0;
  for (const ChildKernel& child : run_->program().children)
    next = std::max(next, child.func_id + 1);
  for (const auto& [key, use] : uses_) next = std::max(next, use.func_id + 1);
  return next;
}

std::string Graph::kernel_name(int32_t func_id) const {
  for (const auto& [key, use] : uses_)
    if (use.func_id == func_id) return use.kernel->name;
  return "";
}

int64_t Graph::task_id(nb::handle task, const char* what) const {
  if (const auto id = integer_of(task, 0, INT64_MAX)) return *id;
  raise_usage(std::string(what) + " is " + shown(task) +
              "; pass a task id that add_task or submit returned");
}

void Graph::add_edge(int64_t from, int64_t to) {
  OpenDevice& device = run_->device();
  const pto_status status = device.handing_over(
      [&] { return device.runtime_api()->add_edge(device.runtime(), from, to); });
  if (status != PTO_OK) run_->raise_latched(status);
}

void Graph::add_successor(nb::handle from, nb::handle to) {
  require(PTO_RUNTIME_EXPLICIT_EDGES, "rt.add_successor",
          "it derives the edges itself; rt.add_dep adds one more");
  const int64_t first = task_id(from, "the first task of an edge");
  add_edge(first, task_id(to, "the second task of an edge"));
}

void Graph::publish(nb::handle task) {
  OpenDevice& device = run().device();
  const int64_t id = task_id(task, "the task to publish");
  if (!device.has(PTO_RUNTIME_PUBLISH) && device.has(PTO_RUNTIME_TENSORS))
    require(PTO_RUNTIME_PUBLISH, "rt.publish", "a submitted task is published at once");
  const pto_status status =
      device.handing_over([&] { return device.runtime_api()->publish(device.runtime(), id); });
  if (status != PTO_OK) run_->raise_latched(status);
}

nb::object Graph::empty(nb::handle shape, nb::handle dtype) {
  OpenDevice& device = run().device();
  const uint8_t code = code_of_object(dtype);
  const std::vector<npy_intp> extents = shape_of_object(shape);
  const View* view = device.views().intern(code, extents.data(), extents.size());
  std::shared_ptr<Buffer> buffer = device.allocate(view->bytes, true);
  run_->keep_temporary(buffer);
  return nb::cast(DeviceArray(nb::borrow(run_->device_object()), std::move(buffer), view));
}

}  // namespace pto::core
