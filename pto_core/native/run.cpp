#include "run.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <unordered_map>

#include "clock.hpp"
#include "device.hpp"
#include "errors.hpp"
#include "user_call.hpp"

namespace pto::core {
namespace {

// Gives each file a number. Number 0 is an unknown file.
class Files {
 public:
  const char* number(const char* file) {
    if (file == nullptr) return nullptr;
    auto [found, is_new] = numbers_.try_emplace(file, names_.size() + 1);
    if (is_new) names_.append(nb::cast(std::string(file)));
    return reinterpret_cast<const char*>(found->second);
  }
  nb::list names() const { return names_; }

 private:
  std::unordered_map<const char*, uintptr_t> numbers_;
  nb::list names_;
};

// Return the rows with the number of the file in place of the pointer to its name.
template <class Row>
nb::bytes packed(const Row* rows, uint64_t count, Files& files) {
  std::vector<Row> copy(rows, rows + count);
  for (Row& row : copy) row.file = files.number(row.file);
  return nb::bytes(copy.data(), count * sizeof(Row));
}

}  // namespace

nb::object read_access_log(const OpenDevice& device, const RunSettings& settings,
                           const Arguments& arguments,
                           const std::vector<std::shared_ptr<Buffer>>& temporaries,
                           const Measured& measured,
                           const std::function<std::string(int32_t)>& kernel_name) {
  pto_access_log log{};
  device.runtime_api()->access_log(device.runtime(), &log);
  Files files;
  nb::dict fields;
  fields["tasks"] = packed(log.tasks, log.num_tasks, files);
  fields["accesses"] = nb::bytes(log.accesses, log.num_accesses * sizeof(pto_tensor_data));
  fields["events"] = packed(log.events, log.num_events, files);
  fields["files"] = files.names();
  fields["is_measured"] = nb::bool_(settings.measures);
  const std::vector<pto_measured_range>& ranges = measured.ranges();
  fields["measured"] = nb::bytes(ranges.data(), ranges.size() * sizeof(pto_measured_range));
  fields["written"] = nb::bytes(measured.written().data(), measured.written().size());
  nb::dict kernels;
  const auto add_kernel = [&](int32_t func_id) {
    if (kernels.contains(nb::int_(func_id))) return;
    kernels[nb::int_(func_id)] = nb::cast(kernel_name(func_id));
  };
  for (uint64_t task = 0; task < log.num_tasks; ++task) add_kernel(log.tasks[task].func_id);
  for (uint64_t index = 0; index < log.num_events; ++index) {
    const pto_logged_event& event = log.events[index];
    if (event.kind == PTO_LOG_LANE) add_kernel(static_cast<int32_t>(event.first));
  }
  fields["kernels"] = kernels;
  nb::list buffers = arguments.placed_buffers();
  for (size_t i = 0; i < temporaries.size(); ++i) {
    const std::string name = "empty " + std::to_string(i);
    buffers.append(
        nb::make_tuple(name, temporaries[i]->address, temporaries[i]->bytes, false, false));
  }
  fields["buffers"] = buffers;
  fields["host_arrays"] = arguments.host_arrays();
  fields["is_full"] = nb::bool_(settings.hazards == PTO_HAZARDS_FULL);
  fields["blocks"] = device.blocks_of(settings.call);
  fields["has_ring_ids"] = nb::bool_(device.has(PTO_RUNTIME_RING_IDS));
  fields["has_accesses"] = nb::bool_(device.has(PTO_RUNTIME_TENSORS));
  return fields;
}

namespace {

// Record a copy of the arguments on the track of the host. The clock of the trace is known after
// start(), so the times are those of the host.
void record_copy(pto_run_trace* trace, uint32_t event, uint64_t begin_ns, uint64_t end_ns,
                 uint64_t bytes) {
  if (trace->clock == PTO_CLOCK_STEPS || bytes == 0) return;
  const auto& [first, last] = std::pair(trace->first, trace->last);
  const double rate = last.ns == first.ns ? 1.0
                                          : static_cast<double>(last.ticks - first.ticks) /
                                                static_cast<double>(last.ns - first.ns);
  const auto ticks = [&](uint64_t ns) {
    const double since = static_cast<double>(static_cast<int64_t>(ns - last.ns));
    return last.ticks + static_cast<uint64_t>(static_cast<int64_t>(since * rate));
  };
  const pto_trace_record record{
      ticks(end_ns), ticks(begin_ns), bytes, 0, static_cast<uint16_t>(event), PTO_TRACK_HOST};
  pto_trace_write(&trace->rings[PTO_TRACK_HOST], &record);
}

// Wait for the work of another program, which may write arguments. Nothing of the run has started.
void wait_for_stream(const OpenDevice& device, const Program& program, const RunSettings& settings,
                     uint64_t begin_ns) {
  constexpr uint64_t kSlice = 50'000'000;
  const uint64_t limit_ns = settings.timeout_s ? nanoseconds_of(*settings.timeout_s) : UINT64_MAX;
  pto_error error = empty_error();
  for (uint64_t passed = 0;; passed = now_ns() - begin_ns) {
    if (passed >= limit_ns) {
      nb::dict fields;
      fields["timeout_s"] = *settings.timeout_s;
      raise_error("RunTimeoutError",
                  "the run of '" + program.name + "' did not start: the work on its stream did " +
                      "not end within " + shown(fields["timeout_s"]) + " s; increase timeout_s",
                  fields);
    }
    pto_status status = PTO_OK;
    {
      ReleasedGil released;
      status = device.backend()->wait_stream(
          device.handle(), settings.stream,
          static_cast<int64_t>(std::min(kSlice, limit_ns - passed)), &error);
    }
    if (status == PTO_OK) return;
    if (status != PTO_PENDING) raise_exception(exception_of(error, ""));
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

nb::object statistics_of(const OpenDevice& device) {
  std::vector<pto_statistic> counters(64);
  const auto ask = [&] {
    return device.runtime_api()->statistics(device.runtime(), counters.data(),
                                            static_cast<uint32_t>(counters.size()));
  };
  uint32_t count = ask();
  if (count > counters.size()) {
    counters.resize(count);
    count = std::min(count, ask());
  }
  nb::dict named;
  for (uint32_t i = 0; i < count; ++i) named[counters[i].name] = counters[i].value;
  return named;
}

nb::object usage_of(const pto_core_usage* reported, uint32_t blocks) {
  const uint32_t cores = std::min<uint32_t>(3 * blocks, PTO_MAX_CORES);
  static PyObject* const aic = PyUnicode_InternFromString("aic");
  static PyObject* const aiv = PyUnicode_InternFromString("aiv");
  nb::object usage = nb::steal(PyList_New(cores));
  for (uint32_t i = 0; i < cores; ++i) {
    nb::tuple one =
        nb::make_tuple(nb::handle(i < blocks ? aic : aiv), reported[i].tasks, reported[i].busy_ns);
    PyList_SET_ITEM(usage.ptr(), i, one.release().ptr());
  }
  return usage;
}

}  // namespace

Run::Run(OpenDevice& device, nb::handle device_object, const Program& program, nb::tuple arguments,
         const RunSettings& settings)
    : device_(device),
      device_object_(device_object),
      program_(program),
      settings_(settings),
      arguments_(device, device_object, program, std::move(arguments)),
      error_(empty_error()) {
  std::memset(&report_, 0, sizeof(report_));
}

Run::~Run() {
  if (is_in_progress_) end_early();
  if (graph_) graph_->deactivate();
  for (auto& buffer : temporaries_) device_.free(*buffer);
}

void Run::leave_behind() {
  if (graph_) graph_->deactivate();
}

// End a run that execute() could not end because of an unexpected error, such as exhausted host
// memory.
void Run::end_early() {
  const nb::error_scope pending;
  try {
    stop("the run could not continue");
    if (program_.is_python()) {
      ReleasedGil released;
      device_.backend()->orchestration_done(device_.handle(), -1);
    }
    drain();
    finish();
  } catch (...) {
    device_.mark_lost();
  }
}

nb::tuple Run::execute() {
  begin_ns_ = now_ns();
  if (settings_.timeout_s) limit_ns_ = nanoseconds_of(*settings_.timeout_s);
  if (settings_.stream != 0) wait_for_stream(device_, program_, settings_, begin_ns_);
  const bool is_traced = settings_.trace != nullptr;
  arguments_.copy_in();
  const uint64_t copied_ns = is_traced ? now_ns() : 0;
  start();
  if (is_traced)
    record_copy(settings_.trace, PTO_TRACE_COPY_IN, begin_ns_, copied_ns,
                arguments_.totals().bytes_in);
  if (program_.is_python()) orchestrate();
  wait_until_over();
  finish();
  conclude();
  const uint64_t ended_ns = is_traced ? now_ns() : 0;
  arguments_.copy_out();
  if (is_traced)
    record_copy(settings_.trace, PTO_TRACE_COPY_OUT, ended_ns, now_ns(),
                arguments_.totals().bytes_out);
  return report();
}

void Run::start() {
  if (program_.is_python()) {
    graph_ = new Graph(*this);
    graph_object_ = nb::cast(graph_, nb::rv_policy::take_ownership);
  }
  kernels_.reserve(program_.children.size());
  for (const ChildKernel& child : program_.children) {
    // A Python orchestration checks the arguments itself.
    const LoadedKernel& kernel = *child.kernel;
    const bool is_checked = !program_.is_python() && kernel.is_checked();
    kernels_.push_back({child.func_id, kernel.core_type, kernel.address, kernel.name.c_str(),
                        is_checked ? &kernel.signature : nullptr});
  }
  run_.kernels = kernels_.data();
  run_.num_kernels = static_cast<uint32_t>(kernels_.size());
  run_.args = arguments_.values().data();
  run_.num_args = static_cast<uint32_t>(arguments_.values().size());
  run_.arguments = arguments_.described().data();
  run_.ranges = arguments_.ranges().data();
  run_.num_ranges = static_cast<uint32_t>(arguments_.ranges().size());
  run_.library = program_.library;
  run_.entry = program_.entry.empty() ? nullptr : program_.entry.c_str();
  run_.hazards = settings_.hazards;
  run_.config = &settings_.call;
  run_.attend = [](void* run) { static_cast<Run*>(run)->attend(); };
  run_.attend_context = this;
  run_.trace = settings_.trace;
  if (is_logged() && settings_.measures) run_.measurement = measured_.measurement();
  {
    ReleasedGil released;
    status_ = device_.backend()->start(device_.handle(), &run_, &error_);
  }
  if (status_ != PTO_OK) raise_exception(exception_of(error_, kernel_name(error_.func_id)));
  is_in_progress_ = true;
}

void Run::orchestrate() {
  nb::object call = arguments_.call_tuple(graph_object_);
  UserCall user_call;
  PyObject* result = PyObject_Call(program_.function.ptr(), call.ptr(), nullptr);
  const bool is_copied = user_call.has_returned_twice();
  if (result) {
    judge_result(nb::steal(result), is_copied);
  } else {
    keep_orchestration_failure(take_exception());
  }
  if (orchestration_failure_.is_valid()) stop("the orchestration failed");
  ReleasedGil released;
  device_.backend()->orchestration_done(device_.handle(),
                                        orchestration_failure_.is_valid() ? -1 : 0);
}

// Store the exception of an orchestration. KeyboardInterrupt is passed on to the user. Any other
// exception, even SystemExit, counts as a failure of the orchestration.
void Run::keep_orchestration_failure(nb::object failure) {
  orchestration_failure_ = std::move(failure);
  if (PyObject_IsInstance(orchestration_failure_.ptr(), PyExc_KeyboardInterrupt)) {
    interruption_ = orchestration_failure_;
  } else if (!PyObject_IsInstance(orchestration_failure_.ptr(), PyExc_Exception)) {
    nb::object make = nb::module_::import_("pto_core.errors.native").attr("from_exit");
    orchestration_failure_ = make(nb::cast(program_.name), orchestration_failure_);
  }
}

// Check the returned value. As in C++, an orchestration fails if it returns a number other than
// zero.
void Run::judge_result(nb::handle result, bool is_copied) {
  if (result.is_none() && !is_copied) return;
  nb::object judge = nb::module_::import_("pto_core.errors.native").attr("from_result");
  nb::object failure = judge(nb::cast(program_.name), result, is_copied);
  if (!failure.is_none()) orchestration_failure_ = std::move(failure);
}

void Run::raise_latched(pto_status status) {
  if (interruption_.is_valid()) raise_exception(interruption_);
  if (is_late_ || late_task_) raise_late();
  if (!latched_.is_valid()) {
    error_ = make_error(status, "the runtime refused a call and gave no reason");
    device_.runtime_api()->last_error(device_.runtime(), &error_);
    latched_ = final_exception();
  }
  raise_exception(latched_);
}

void Run::keep_failure(uint64_t task, const nb::object& exception) {
  // keep the exceptions of several kernels, because the runtime determines which error is the first
  constexpr size_t kKept = 64;
  if (failures_.size() < kKept) failures_.emplace_back(task, exception);
}

void Run::finish() {
  error_ = empty_error();
  is_in_progress_ = false;
  ReleasedGil released;
  status_ = device_.backend()->finish(device_.handle(), &report_, &error_);
  if (status_ != PTO_OK && error_.status == PTO_OK) error_.status = status_;
}

void Run::conclude() {
  if (interruption_.is_valid()) raise_interruption();
  if (late_task_ || is_late_) {
    // Prefer the exception that a call of rt raised: it contains the position of that call in the
    // orchestration.
    if (raised_late_.is_valid() && !stuck_task_) raise_exception(raised_late_);
    raise_timeout();
  }
  if (status_ != PTO_OK) raise_native_error();
  if (orchestration_failure_.is_valid()) raise_exception(orchestration_failure_);
}

void Run::raise_interruption() {
  if (!state_.empty()) interruption_.attr("add_note")(nb::cast(state_));
  if (stuck_task_) {
    interruption_.attr("add_note")(nb::str(("the device is lost: " + describe(*stuck_task_) +
                                            " did not return; close it and open another")
                                               .c_str()));
  }
  raise_exception(interruption_);
}

void Run::raise_native_error() {
  const bool is_our_abort =
      was_stopped_ && (status_ == PTO_ERROR_ABORTED || status_ == PTO_ERROR_ORCHESTRATION);
  if (is_our_abort && orchestration_failure_.is_valid() && !latched_.is_valid())
    raise_exception(orchestration_failure_);
  if (latched_.is_valid() && status_ == PTO_ERROR_DEADLOCK) complete_latched();
  nb::object exception = latched_.is_valid() ? latched_ : final_exception();
  if (is_logged()) {
    const nb::tuple fields = report();
    exception.attr("access_log") = fields[fields.size() - 1];
  }
  if (orchestration_failure_.is_valid() && !orchestration_failure_.is(exception)) {
    exception.attr("add_note")(
        nb::str(("the orchestration then raised " + type_text(orchestration_failure_) + ": " +
                 nb::cast<std::string>(nb::str(orchestration_failure_)))
                    .c_str()));
  }
  raise_exception(exception);
}

// Complete the exception of a deadlock. It was raised during planning, before the sufficient sizes
// were known.
void Run::complete_latched() {
  nb::object whole = final_exception();
  const nb::object traceback = nb::steal(PyException_GetTraceback(latched_.ptr()));
  if (traceback.is_valid()) PyException_SetTraceback(whole.ptr(), traceback.ptr());
  if (orchestration_failure_.is(latched_)) orchestration_failure_ = whole;
  latched_ = std::move(whole);
}

// Return the native error as an exception. If a Python kernel failed, its exception is the cause.
nb::object Run::final_exception() {
  nb::object exception = exception_of(error_, kernel_name(error_.func_id));
  for (const auto& [task, failure] : failures_) {
    if (error_.status != PTO_ERROR_KERNEL || static_cast<int64_t>(task) != error_.task) continue;
    if (PyObject_IsInstance(failure.ptr(), PyExc_KeyboardInterrupt)) return failure;
    PyException_SetCause(exception.ptr(), nb::object(failure).release().ptr());
    break;
  }
  return exception;
}

std::string Run::kernel_name(int32_t func_id) const {
  if (func_id < 0) return "";
  if (const LoadedKernel* kernel = program_.child(func_id)) return kernel->name;
  return graph_ ? graph_->kernel_name(func_id) : "";
}

std::string Run::core_name(int32_t core) const {
  const auto blocks = static_cast<int32_t>(device_.blocks_of(settings_.call));
  return core < blocks ? "AIC " + std::to_string(core) : "AIV " + std::to_string(core - blocks);
}

std::string Run::describe(const RunningTask& task) const {
  return "kernel '" + kernel_name(task.func_id) + "' (func_id " + std::to_string(task.func_id) +
         "), " + task_name(task.task, device_.runtime_api()->capabilities) + ", on " +
         core_name(task.core);
}

nb::tuple Run::report() const {
  const uint32_t blocks = report_.blocks ? report_.blocks : device_.blocks_of(settings_.call);
  const CopyTotals& ours = arguments_.totals();
  nb::object log = nb::none();
  if (is_logged() && device_.runtime_api()->access_log) {
    log = read_access_log(device_, settings_, arguments_, temporaries_, measured_,
                          [this](int32_t func_id) { return kernel_name(func_id); });
  }
  return nb::make_tuple(
      report_.tasks, report_.build_ns, report_.run_ns, report_.copy_ns + ours.nanoseconds,
      report_.bytes_in + ours.bytes_in, report_.bytes_out + ours.bytes_out,
      report_.copies_in + ours.copies_in, report_.copies_out + ours.copies_out, report_.trace_hash,
      report_.peak_bytes, usage_of(report_.cores, blocks), statistics_of(device_), log);
}

// Waits for a run in slices, to handle signals and time limits between them.

namespace {

constexpr uint64_t kSlice = 50'000'000;
// After a stop, running kernels must return within this time (in nanoseconds); otherwise the device
// is lost.
constexpr uint64_t kPatience = 2'000'000'000;

const pto_activity_page* page_of(const OpenDevice& device) {
  return device.backend()->activity(device.handle());
}

// Write the state of the run for other processes: since when kernels run, and, if a reader asked
// for it in the last second, what the runtime says. The GIL is not needed.
void note_state(const OpenDevice& device) {
  constexpr uint64_t kAskedNs = 1'000'000'000;
  const pto_activity_page* shown = page_of(device);
  if (!shown) return;
  const uint64_t now = now_ns();
  note_running(shown, now);
  auto& page = const_cast<pto_activity_page&>(*shown);  // the core writes the members used here
  if (std::atomic_ref(page.asked_ns).load(std::memory_order_relaxed) + kAskedNs < now) return;
  const std::atomic_ref sequence(page.text_sequence);
  sequence.fetch_or(1, std::memory_order_acq_rel);
  device.runtime_api()->explain(device.runtime(), page.text, sizeof page.text);
  sequence.fetch_add(1, std::memory_order_release);
}

// Return the state of the run when it is stopped, for a note at its error. `describe(task)` returns
// the names of a running task.
template <class Describe>
std::string state_text(const OpenDevice& device, Describe describe) {
  constexpr size_t kListed = 4;
  constexpr double kSecond = 1e9;
  char text[2048];
  device.runtime_api()->explain(device.runtime(), text, sizeof text);
  std::string state = "state when the run was ended: " + std::string(text);
  const auto running = running_tasks(page_of(device));
  for (size_t i = 0; i < running.size() && i < kListed; ++i) {
    state += "\n  " + describe(running[i]);
    if (running[i].since_ns == 0) continue;
    const double seconds = static_cast<double>(now_ns() - running[i].since_ns) / kSecond;
    char age[32];
    std::snprintf(age, sizeof age, ", for %.1f s", seconds);
    state += age;
  }
  if (running.size() > kListed)
    state += "\n  " + std::to_string(running.size() - kListed) + " more";
  return state;
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", seconds);
  return text;
}

}  // namespace

// Return whether the run is over.
bool Run::wait_slice(uint64_t nanoseconds) {
  ReleasedGil released;
  const pto_status status =
      device_.backend()->wait(device_.handle(), static_cast<int64_t>(nanoseconds));
  return status != PTO_PENDING;
}

void Run::wait_until_over() {
  if (interruption_.is_valid() || is_late_ || late_task_) return drain();
  const uint64_t task_limit = task_limit_ns();
  uint64_t passed = now_ns() - begin_ns_;
  // a Python orchestration returned after the time limit
  if (passed >= limit_ns_) {
    is_late_ = true;
    stop("the time limit of the run has passed");
    return drain();
  }
  while (true) {
    const uint64_t left = limit_ns_ - std::min(limit_ns_, passed);
    const uint64_t slice = std::min({kSlice, left, task_limit / 4 + 1});
    if (wait_slice(slice)) return;
    if (interrupt.is_due()) {
      interruption_ = take_exception();
      stop("the run was interrupted");
      return drain();
    }
    passed = now_ns() - begin_ns_;
    note_state(device_);
    if (task_limit != UINT64_MAX)
      late_task_ = find_late(page_of(device_), begin_ns_ + passed, task_limit);
    if (late_task_ || passed >= limit_ns_) {
      is_late_ = !late_task_;
      stop("the time limit of the run has passed");
      return drain();
    }
  }
}

bool Interrupt::is_due() {
  if (PyErr_CheckSignals() != 0) return true;
  if (!is_requested_) return false;
  is_requested_ = false;
  PyErr_SetNone(PyExc_KeyboardInterrupt);
  return true;
}

uint64_t Run::task_limit_ns() const {
  return settings_.task_timeout_s ? nanoseconds_of(*settings_.task_timeout_s) : UINT64_MAX;
}

void Run::attend() {
  if (was_stopped_) return;
  note_state(device_);
  const PyGILState_STATE state = or_park([] { return PyGILState_Ensure(); });
  if (interrupt.is_due()) {
    interruption_ = take_exception();
    stop("the run was interrupted");
  } else if (now_ns() - begin_ns_ >= limit_ns_) {
    is_late_ = true;
    stop("the time limit of the run has passed");
  } else if (const uint64_t limit = task_limit_ns(); limit != UINT64_MAX) {
    late_task_ = find_late(page_of(device_), now_ns(), limit);
    if (late_task_) stop("the time limit of a task has passed");
  }
  PyGILState_Release(state);
}

void Run::check_time() {
  if (!is_late_ && !late_task_ && now_ns() - begin_ns_ < limit_ns_) return;
  if (!is_late_ && !late_task_) {
    is_late_ = true;
    stop("the time limit of the run has passed");
  }
  raise_late();
}

// Raise the exception for the time limit. Every call raises the same object.
void Run::raise_late() {
  if (!raised_late_.is_valid()) {
    try {
      raise_timeout();
    } catch (nb::python_error& error) {
      raised_late_ = nb::borrow(error.value());
    }
  }
  raise_exception(raised_late_);
}

void Run::stop(const char* why) {
  if (!was_stopped_ && (interruption_.is_valid() || is_late_ || late_task_))
    state_ = state_text(device_, [this](const RunningTask& task) { return describe(task); });
  was_stopped_ = true;
  const pto_error cause = make_error(PTO_ERROR_ABORTED, why);
  ReleasedGil released;
  device_.backend()->abort(device_.handle(), &cause, 0);
}

// After a stop, wait a bounded time for running kernels. A second signal ends the wait.
void Run::drain() {
  const uint64_t begin = now_ns();
  while (now_ns() - begin < kPatience) {
    if (wait_slice(kSlice)) return;
    if (interrupt.is_due()) {
      nb::object another = take_exception();
      if (!interruption_.is_valid()) interruption_ = std::move(another);
      break;
    }
  }
  give_up();
}

void Run::give_up() {
  const auto running = running_tasks(page_of(device_));
  stuck_task_ = running.empty() ? RunningTask{UINT64_MAX, -1, -1, 0, 0} : running.front();
  device_.mark_lost();
  const pto_error cause = make_error(PTO_ERROR_LOST, "a kernel did not return");
  {
    ReleasedGil released;
    device_.backend()->abort(device_.handle(), &cause, 1);
  }
  while (!wait_slice(kSlice)) {
  }
}

void Run::raise_timeout() try {
  const std::optional<RunningTask>& culprit = stuck_task_ ? stuck_task_ : late_task_;
  const double limit = late_task_ ? *settings_.task_timeout_s : *settings_.timeout_s;
  nb::dict fields;
  fields["timeout_s"] = limit;
  if (!culprit || culprit->func_id < 0) {
    raise_error("RunTimeoutError",
                "the run of '" + program_.name + "' took longer than its limit of " +
                    seconds_text(limit) + " and was ended; increase timeout_s or reduce the work",
                fields);
  }
  const std::string name = kernel_name(culprit->func_id);
  fields["task"] = culprit->task;
  fields["func_id"] = culprit->func_id;
  fields["core"] = culprit->core;
  fields["kernel"] = name;
  raise_error("TaskTimeoutError",
              describe(*culprit) + " did not return within " + seconds_text(limit) +
                  (stuck_task_ ? "; the device is lost: close it and open another"
                               : "; increase task_timeout_s or make the kernel shorter"),
              fields);
} catch (nb::python_error& error) {
  if (!state_.empty()) error.value().attr("add_note")(nb::cast(state_));
  throw;
}

}  // namespace pto::core
