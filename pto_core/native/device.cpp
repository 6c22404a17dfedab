#include "device.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <pthread.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cstring>

#include "data_types.hpp"
#include "host_array.hpp"
#include "run.hpp"
#include "trace_buffer.hpp"

namespace pto::core {
namespace {

std::atomic<uint64_t> count{0};

const int registered =
    pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

uint64_t fork_count() {
  return registered == 0 ? count.load(std::memory_order_relaxed) : 0;
}

namespace {

// Copies of at least this many bytes release the GIL.
constexpr uint64_t kLongCopy = 1 << 20;

// Options in the form of the ABI. The key and value strings live as long as this object.
class OptionList {
 public:
  explicit OptionList(const nb::dict& options) {
    texts_.reserve(2 * options.size());
    for (auto [key, value] : options) {
      texts_.push_back(nb::cast<std::string>(key));
      texts_.push_back(nb::cast<std::string>(value));
    }
    for (size_t i = 0; i < texts_.size(); i += 2)
      list_.push_back({texts_[i].c_str(), texts_[i + 1].c_str()});
  }
  const pto_option* data() const { return list_.data(); }
  uint32_t size() const { return static_cast<uint32_t>(list_.size()); }

 private:
  std::vector<std::string> texts_;
  std::vector<pto_option> list_;
};

// A runtime as the core uses it. The backend chooses the table: the table of the variant, or the
// table of a proxy.
struct Attached {
  const pto_runtime_api* table = nullptr;
  void* runtime = nullptr;
};

pto_status attach(const pto_backend_api& backend, void* device, const DeviceOptions& options,
                  const pto_runtime_api* api, const OptionList& settings, Attached& attached,
                  pto_error* error) {
  std::vector<pto_artefact> artefacts;
  for (const auto& [kind, path] : options.artefacts) {
    artefacts.push_back({kind.c_str(), path.c_str()});
  }
  const pto_attachment attachment{api, options.variant.c_str(), artefacts.data(),
                                  static_cast<uint32_t>(artefacts.size()), 0};
  const pto_status status = backend.attach(device, &attachment, settings.data(), settings.size(),
                                           &attached.table, &attached.runtime, error);
  if (status != PTO_OK || attached.table != nullptr) return status;
  *error = make_error(PTO_ERROR_INTERNAL, "the backend attached a runtime and returned no table");
  return PTO_ERROR_INTERNAL;
}

}  // namespace

OpenDevice::OpenDevice(const DeviceOptions& options)
    : backend_(load_backend_library(options.backend_library)),
      number_(options.number),
      process_(getpid()),
      forks_(fork_count()) {
  const pto_runtime_api* variant = load_runtime_library(options.runtime_library, options.variant);
  const OptionList backend_options(options.backend);
  const OptionList runtime_options(options.runtime);
  Attached attached;
  pto_error error = empty_error();
  pto_status status = PTO_OK;
  {
    ReleasedGil released;
    status = backend_->open(number_, backend_options.data(), backend_options.size(), &handle_,
                            &shape_, &error);
    if (status == PTO_OK) {
      status = attach(*backend_, handle_, options, variant, runtime_options, attached, &error);
      pto_leak_report leaks{};
      if (status != PTO_OK) backend_->close(handle_, &leaks);
    }
  }
  check(status, error);
  runtime_api_ = attached.table;
  runtime_ = attached.runtime;
  max_task_arguments_ = std::min<size_t>(runtime_api_->max_args, PTO_MAX_KERNEL_ARGS);
  submit_may_wait_ = shape_.is_deterministic || has(PTO_RUNTIME_BLOCKING_SUBMIT);
}

OpenDevice::~OpenDevice() {
  close();
}

namespace {

// The backend device after Device.close(), kept as long as arrays refer to its memory.
struct MappedMemory {
  const pto_backend_api* backend = nullptr;
  void* handle = nullptr;  // null while the Device is open
  uint64_t forks = fork_count();
};

constexpr const char* kPinName = "pto_core.MappedMemory";

void unmap(PyObject* capsule) {
  auto* memory = static_cast<MappedMemory*>(PyCapsule_GetPointer(capsule, kPinName));
  // During interpreter shutdown, and in a forked process, the threads of the device cannot be
  // joined.
  if (memory->handle && memory->forks == fork_count() && !is_finalizing()) {
    ReleasedGil released;
    pto_leak_report leaks{};
    memory->backend->close(memory->handle, &leaks);
  }
  delete memory;
}

}  // namespace

nb::object OpenDevice::pin_memory() {
  if (!pin_.is_valid()) {
    pin_ = nb::steal(PyCapsule_New(new MappedMemory{backend_}, kPinName, &unmap));
  }
  return pin_;
}

// Close the backend's device now, or when the last array over its memory is freed. Return the
// number of buffers and bytes that were not freed.
std::pair<uint64_t, uint64_t> OpenDevice::release_backend(uint64_t buffers, uint64_t bytes) {
  const bool is_pinned = pin_.is_valid() && Py_REFCNT(pin_.ptr()) > 1;
  if (is_pinned) {
    auto* memory = static_cast<MappedMemory*>(PyCapsule_GetPointer(pin_.ptr(), kPinName));
    memory->handle = handle_;
    pin_.reset();
  }
  ReleasedGil released;
  backend_->detach(handle_);
  if (is_pinned) return {buffers, bytes};
  pto_leak_report leaks{};
  backend_->close(handle_, &leaks);
  return {leaks.buffers, leaks.bytes};
}

nb::tuple OpenDevice::close() {
  if (!is_open()) return nb::make_tuple(0, 0);
  if (run_) raise_usage("the device cannot be closed while it runs; wait for Device.run to return");
  flush_frees();
  is_closed_ = true;
  uint64_t bytes = 0;
  for (Buffer* buffer : buffers_) {
    buffer->live = false;
    bytes += buffer->bytes;
  }
  const uint64_t count = buffers_.size();
  buffers_.clear();
  if (is_lost_) kernels_.abandon();
  const auto [unfreed, unfreed_bytes] = release_backend(count, bytes);
  kernels_ = LoadedKernels();
  loader_.reset();
  return nb::make_tuple(unfreed, unfreed_bytes);
}

bool OpenDevice::is_open() const {
  return !is_closed_ && forks_ == fork_count();
}

void OpenDevice::require_usable() {
  if (forks_ != fork_count()) {
    raise_usage("device " + std::to_string(number_) + " was opened in process " +
                std::to_string(process_) +
                ", and this process was forked from it; open a device in this process");
  }
  if (is_closed_) raise_usage("device " + std::to_string(number_) + " is closed; open another");
  if (run_ && run_thread_ != PyThread_get_thread_ident()) {
    raise_usage("device " + std::to_string(number_) +
                " is running on another thread; use one device for each thread");
  }
  if (is_lost_) {
    nb::dict fields;
    fields["device"] = number_;
    raise_error("DeviceLostError",
                "device " + std::to_string(number_) +
                    " is lost, because a kernel did not return; close it and open another",
                fields);
  }
  if (!to_free_.empty()) flush_frees();
}

void OpenDevice::require_thread_of_run() const {
  if (in_python_kernel()) {
    raise_usage("rt was used inside a kernel; only the orchestration submits tasks");
  }
  if (run_thread_ == PyThread_get_thread_ident() && forks_ == fork_count()) return;
  raise_usage(
      "rt was used on another thread or in a forked process; submit from the thread that "
      "called Device.run");
}

void OpenDevice::check(pto_status status, const pto_error& error) const {
  if (status == PTO_OK) return;
  pto_error record = error;
  if (record.status == PTO_OK) record.status = status;
  raise_exception(exception_of(record, ""));
}

std::shared_ptr<Buffer> OpenDevice::allocate(uint64_t bytes, bool of_run) {
  uint64_t address = 0;
  pto_error error = empty_error();
  check(backend_->allocate(handle_, bytes, &address, &error), error);
  return std::make_shared<Buffer>(this, address, bytes, of_run);
}

void OpenDevice::free(Buffer& buffer) {
  if (!buffer.live) return;
  buffer.live = false;
  forget(&buffer);
  pto_error error = empty_error();
  if (!is_lost_ && is_open()) backend_->free(handle_, buffer.address, &error);
}

void OpenDevice::flush_frees() {
  pto_error error = empty_error();
  for (uint64_t address : to_free_) backend_->free(handle_, address, &error);
  to_free_.clear();
}

void OpenDevice::copy_in(uint64_t address, const void* host, uint64_t bytes) {
  if (bytes == 0) return;
  pto_error error = empty_error();
  std::optional<ReleasedGil> released;
  if (bytes >= kLongCopy) released.emplace();
  const pto_status status = backend_->copy_in(handle_, address, host, bytes, &error);
  released.reset();
  check(status, error);
}

void OpenDevice::copy_out(void* host, uint64_t address, uint64_t bytes) {
  if (bytes == 0) return;
  pto_error error = empty_error();
  std::optional<ReleasedGil> released;
  if (bytes >= kLongCopy) released.emplace();
  const pto_status status = backend_->copy_out(handle_, host, address, bytes, &error);
  released.reset();
  check(status, error);
}

nb::object OpenDevice::empty(nb::handle self, nb::handle shape, nb::handle dtype) {
  require_usable();
  const uint8_t code = code_of_object(dtype);
  const std::vector<npy_intp> extents = shape_of_object(shape);
  const View* view = views_.intern(code, extents.data(), extents.size());
  return nb::cast(DeviceArray(nb::borrow(self), allocate(view->bytes, false), view));
}

nb::object OpenDevice::to_device(nb::handle self, nb::handle array) {
  require_usable();
  HostArray host(
      array, false, [] { return std::string("the array to copy to the device"); },
      Advice::kPassCopy);
  const View* view = views_.intern(host.code, host.shape.data(), host.shape.size());
  std::shared_ptr<Buffer> buffer = allocate(host.bytes, false);
  copy_in(buffer->address, host.data, host.bytes);
  return nb::cast(DeviceArray(nb::borrow(self), std::move(buffer), view));
}

namespace {

// Marks the device as running while this object lives.
class RunGuard {
 public:
  RunGuard(Run*& slot, unsigned long& thread, Run* run) : slot_(slot) {
    thread = PyThread_get_thread_ident();
    slot_ = run;
  }
  ~RunGuard() { slot_ = nullptr; }
  RunGuard(const RunGuard&) = delete;
  RunGuard& operator=(const RunGuard&) = delete;

 private:
  Run*& slot_;
};

}  // namespace

namespace {

// Return NULL if `given` is None: the run has no trace. Otherwise `given` is (records of a ring,
// records of a trace, start and length of the window in nanoseconds, path or None). A run with
// level 0 has only a flight recorder.
std::unique_ptr<TraceBuffer> make_trace(const pto_backend_api& backend, int32_t level,
                                        const Program& program, uint32_t blocks,
                                        const std::optional<nb::tuple>& settings_given) {
  if (!settings_given) return nullptr;
  const nb::tuple& given = *settings_given;
  if (!(backend.capabilities & PTO_BACKEND_TRACE)) {
    raise_error("UnsupportedError", std::string("backend '") + backend.name +
                                        "' cannot trace a run; run it without a trace");
  }
  DeviceTraceSettings settings;
  settings.level = std::max(level, 1);
  settings.overwrites = level == 0;
  settings.ring_records = nb::cast<uint64_t>(given[0]);
  settings.most_records = nb::cast<uint64_t>(given[1]);
  settings.after_ns = nb::cast<uint64_t>(given[2]);
  settings.for_ns = nb::cast<uint64_t>(given[3]);
  if (!given[4].is_none()) settings.path = nb::cast<std::string>(given[4]);
  settings.blocks = blocks;
  for (const ChildKernel& child : program.children) {
    settings.names += std::to_string(child.func_id) + " " + child.kernel->name + "\n";
  }
  return std::make_unique<TraceBuffer>(std::move(settings));
}

nb::dict kernel_names(const Run& run) {
  nb::dict names;
  int32_t next = 0;
  for (const ChildKernel& child : run.program().children) {
    names[nb::int_(child.func_id)] = nb::cast(child.kernel->name);
    next = std::max(next, child.func_id + 1);
  }
  // The graph assigns the numbers that follow to its other kernels.
  for (; run.graph() != nullptr; ++next) {
    const std::string name = run.graph()->kernel_name(next);
    if (name.empty()) break;
    names[nb::int_(next)] = nb::cast(name);
  }
  return names;
}

// Return the data for pto_insight.traces.trace.from_native, after execute(), also if that failed.
nb::tuple trace_of(const Run& run, TraceBuffer& trace, uint32_t blocks) {
  trace.finish();
  return nb::make_tuple(trace.to_python(), kernel_names(run), blocks);
}

// The proxy of a variant on a device may have no submit path, because each submit would need a
// reply of the device.
void require_submits(const pto_backend_api& backend, const pto_runtime_api& runtime,
                     const Program& program) {
  const bool has_tensors = (runtime.capabilities & PTO_RUNTIME_TENSORS) != 0;
  const bool can_submit =
      has_tensors ? runtime.submit_tensors != nullptr : runtime.submit != nullptr;
  if (!program.is_python() || can_submit) return;
  raise_error("UnsupportedError",
              "'" + program.name + "' is a Python orchestration, and the backend '" + backend.name +
                  "' runs the runtime '" + runtime.variant +
                  "' on its device, which takes C++ orchestrations only; write it in C++, or use "
                  "another backend or a runtime with the capability host_orchestration");
}

}  // namespace

nb::tuple OpenDevice::run(nb::handle self, const Program& program, nb::tuple arguments,
                          nb::bytes call_config, std::optional<double> timeout_s,
                          std::optional<double> task_timeout_s, uint32_t hazards, bool measures,
                          std::optional<nb::tuple> trace_settings, nb::list traces,
                          uint64_t stream) {
  require_usable();
  require_submits(*backend_, *runtime_api_, program);
  if (run_)
    raise_usage(
        "the device already executes a run; an orchestration cannot start another run on it");
  RunSettings settings{{}, timeout_s, task_timeout_s, hazards, measures, nullptr, stream};
  if (call_config.size() != sizeof(settings.call))
    raise_usage("the size of a call configuration is " + std::to_string(sizeof(settings.call)) +
                " bytes");
  std::memcpy(&settings.call, call_config.c_str(), sizeof(settings.call));
  std::unique_ptr<TraceBuffer> trace =
      make_trace(*backend_, settings.call.enable_l2_swimlane, program, blocks_of(settings.call),
                 trace_settings);
  if (trace) settings.trace = trace->trace();
  auto run = std::make_unique<Run>(*this, self, program, std::move(arguments), settings);
  RunGuard guard(run_, run_thread_, run.get());
  try {
    nb::tuple report = run->execute();
    if (trace && !trace->is_flight_recorder())
      traces.append(trace_of(*run, *trace, blocks_of(settings.call)));
    return report;
  } catch (...) {
    if (trace) traces.append(trace_of(*run, *trace, blocks_of(settings.call)));
    // A kernel that never returns may still use the device and the data of the run, so keep both.
    if (is_lost_) {
      trace.release();
      Py_INCREF(self.ptr());
      run.release()->leave_behind();
    }
    throw;
  }
}

nb::list OpenDevice::activity() const {
  nb::list running;
  if (!is_open()) return running;
  for (const RunningTask& task : running_tasks(backend_->activity(handle_))) {
    const LoadedKernel* kernel = kernels_.at_address(task.kernel);
    running.append(nb::make_tuple(nb::cast(kernel ? kernel->name : std::string()), task.task,
                                  task.core, task.func_id));
  }
  return running;
}

const LoadedKernel* OpenDevice::loaded(nb::handle callable) {
  if (const LoadedKernel* kernel = kernels_.find(callable.ptr())) return kernel;
  loader_(callable);
  const LoadedKernel* kernel = kernels_.find(callable.ptr());
  if (!kernel) raise_error("InternalError", "kernel " + shown(callable) + " was not loaded");
  return kernel;
}

int OpenDevice::traverse(visitproc visit, void* arg) const {
  Py_VISIT(loader_.ptr());
  return kernels_.traverse(visit, arg);
}

CallSignature OpenDevice::declared_signature(nb::handle declared) {
  CallSignature signature;
  for (nb::handle one : declared) {
    const auto [code, shape] = nb::cast<std::pair<int, nb::object>>(one);
    if (shape.is_none()) {
      signature.push_back(spec_of(scalar_kind_of(static_cast<uint8_t>(code))));
      continue;
    }
    const std::vector<npy_intp> extents = shape_of_object(shape);
    signature.push_back(
        spec_of(views_.intern(static_cast<uint8_t>(code), extents.data(), extents.size())));
  }
  return signature;
}

TaskSignature OpenDevice::task_signature(nb::handle task) {
  TaskSignature signature;
  const auto [parameters, required, takes_more, rest] =
      nb::cast<std::tuple<nb::list, size_t, bool, int>>(task);
  for (nb::handle one : parameters) {
    const auto [name, direction, code] = nb::cast<std::tuple<std::string, int, int>>(one);
    signature.parameters.push_back({name, static_cast<Tag>(direction), code});
  }
  signature.required = required;
  signature.takes_more = takes_more;
  signature.rest = static_cast<Tag>(rest);
  return signature;
}

void OpenDevice::load_kernel(nb::object callable, const std::string& name, int32_t core_type,
                             const std::optional<std::string>& path, nb::object function,
                             nb::object declared, nb::handle task) {
  require_usable();
  auto kernel = std::make_unique<LoadedKernel>();
  kernel->device = this;
  kernel->callable = std::move(callable);
  kernel->name = name;
  kernel->core_type = core_type;
  if (!function.is_none()) kernel->function = std::move(function);
  if (!declared.is_none()) {
    kernel->is_declared = true;
    kernel->declared = declared_signature(declared);
  }
  kernel->task = task_signature(task);
  for (const TaskParameter& parameter : kernel->task.parameters) {
    const bool is_typed = parameter.code != kNoType;
    const auto code = static_cast<uint8_t>(is_typed ? parameter.code : PTO_ANY);
    const bool is_scalar = parameter.direction == Tag::kScalar;
    kernel->scalars.push_back(is_typed && is_scalar ? spec_of(scalar_kind_of(code)) : kTensorSpec);
    kernel->arguments.push_back({static_cast<uint8_t>(parameter.direction), code});
  }
  kernel->signature = {kernel->arguments.data(), static_cast<uint32_t>(kernel->arguments.size()),
                       static_cast<uint32_t>(kernel->task.required),
                       static_cast<uint32_t>(kernel->task.takes_more), 0};
  if (kernel->is_python() && !(backend_->capabilities & PTO_BACKEND_CALLBACKS)) {
    raise_error("UnsupportedError", std::string("backend '") + backend_->name +
                                        "' does not run Python kernels ('" + name +
                                        "'); use a C++ source or a binary");
  }
  pto_kernel_source source{};
  source.func_id = -1;
  source.core_type = core_type;
  source.name = kernel->name.c_str();
  source.path = path ? path->c_str() : nullptr;
  source.callback = kernel->is_python() ? &call_python_kernel : nullptr;
  source.context = kernel.get();
  pto_error error = empty_error();
  pto_status status = PTO_OK;
  {
    ReleasedGil released;
    status = backend_->load_kernel(handle_, &source, &kernel->address, &error);
  }
  check(status, error);
  kernels_.add(std::move(kernel));
}

uint64_t OpenDevice::load_library(const std::string& path) {
  require_usable();
  uint64_t library = 0;
  pto_error error = empty_error();
  pto_status status = PTO_OK;
  {
    ReleasedGil released;
    status = backend_->load_library(handle_, path.c_str(), &library, &error);
  }
  check(status, error);
  return library;
}

}  // namespace pto::core
