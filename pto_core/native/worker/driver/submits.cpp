#include "driver/submits.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "arguments/visible_memory.hpp"
#include "data_types.hpp"
#include "driver/task_handle.hpp"
#include "driver/worker_driver.hpp"
#include "errors.hpp"
#include "host_array.hpp"
#include "scalars.hpp"
#include "text.hpp"

namespace pto::worker {

SourcePlaces::SourcePlaces()
    : own_folder_(nb::cast<std::string>(nb::module_::import_("os.path").attr("dirname")(
                      nb::module_::import_("pto_core").attr("__file__"))) +
                  "/") {}

bool SourcePlaces::find(const SubmitPosition& place, std::string* file, int* line) const {
  if (place.code == 0 || place.code >= codes_.size()) return false;
  auto* code = reinterpret_cast<PyCodeObject*>(codes_[place.code].ptr());
  if (!core::encode(code->co_filename, file)) PyErr_Clear();
  *line = PyCode_Addr2Line(code, place.instruction);
  return true;
}

nb::object SourcePlaces::file_and_line(const SubmitPosition& place) const {
  std::string file;
  int line = 0;
  if (!find(place, &file, &line)) return nb::make_tuple(nb::none(), nb::none());
  return nb::make_tuple(nb::cast(file), line);
}

SubmitPosition SourcePlaces::of_caller() {
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(reinterpret_cast<PyObject*>(frame));
  while (frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const uint32_t number = code_number(reinterpret_cast<PyObject*>(code));
    Py_DECREF(reinterpret_cast<PyObject*>(code));
    PyFrameObject* const inner = frame;
    const SubmitPosition place{number, PyFrame_GetLasti(frame)};
    if (number == 0) frame = PyFrame_GetBack(inner);
    Py_DECREF(reinterpret_cast<PyObject*>(inner));
    if (number != 0) return place;
  }
  return {};
}

uint32_t SourcePlaces::code_number(PyObject* code) {
  if (code == last_code_) return last_code_number_;
  const auto [found, is_new] = code_numbers_.try_emplace(code, 0);
  if (is_new) {
    const auto file = nb::cast<std::string>(nb::handle(code).attr("co_filename"));
    if (file.starts_with(own_folder_)) {
      own_codes_.push_back(nb::borrow(code));
    } else {
      found->second = static_cast<uint32_t>(codes_.size());
      codes_.push_back(nb::borrow(code));
    }
  }
  last_code_ = code;
  last_code_number_ = found->second;
  return found->second;
}

bool CallNumbers::is_run_by(Kind kind, CallableSpace space) const {
  if (space == space_of(kind)) return true;
  return space == CallableSpace::kRemoteTaskDispatcher && kind == Kind::kNextLevel;
}

const CallableHandle& CallNumbers::check_handle(PyObject* object, Kind kind) const {
  const CallableHandle& handle = settings_.callables->check(object ? object : Py_None);
  if (is_run_by(kind, handle.space)) return handle;
  const char* call = call_of(kind);
  core::raise_usage(
      "'" + handle.name + "' is " +
      (handle.space == CallableSpace::kLocalChip ? "a chip callable" : "a Python function") +
      ", which the children of " + call + " do not run; use " +
      call_of(kind == Kind::kSub ? Kind::kNextLevel : Kind::kSub));
}

const CallNumbers::KnownHandle& CallNumbers::callable(PyObject* object, Kind kind,
                                                      std::vector<int32_t>& workers) {
  KnownHandle& known = known_handles_[(reinterpret_cast<uintptr_t>(object) >> 5) % 64];
  const uint64_t version = settings_.callables->version();
  if (known.handle.ptr() == object && object && known.version == version &&
      known.space == space_of(kind)) {
    return known;
  }
  const CallableHandle handle = check_handle(object, kind);  // add_callable() may release the GIL
  const std::string name = nb::inst_ptr<CallableHandle>(object)->name;  // a copy may have another
  {
    const Role role = driver_.ask();
    DriverCore& core = role->core;
    const uint32_t callables = core.catalogue.callables();
    known.number = core.catalogue.add_callable(handle.digest, name);
    if (core.catalogue.callables() > callables) core.tracer.callable_added(name);
  }
  known.space = handle.space;
  known.version = version;
  known.declares_scalars = !handle.scalars.empty();
  known.handle = nb::borrow(object);
  if (handle.space == CallableSpace::kRemoteTaskDispatcher) {
    const auto found = settings_.callables->workers_of(handle);
    workers.assign(found.begin(), found.end());
  }
  return known;
}

uint32_t CallNumbers::config(PyObject* config) {
  static PyObject* const version_name = PyUnicode_InternFromString("_version");
  const nb::object version = nb::steal(PyObject_GetAttr(config, version_name));
  if (!version.is_valid()) PyErr_Clear();
  if (config == last_config_.ptr() && version.is_valid() && version.is(last_version_))
    return last_config_number_;
  const uint32_t number = intern_config(config);
  last_config_ = nb::borrow(config);
  last_version_ = version;
  last_config_number_ = number;
  return number;
}

uint32_t CallNumbers::intern_config(nb::handle config) {
  if (!nb::hasattr(config, "pack")) {
    core::raise_usage("config is " + core::shown(config) + "; pass a CallConfig, or None for the " +
                      "run's");
  }
  const nb::bytes packed = nb::cast<nb::bytes>(config.attr("pack")());
  const std::string key(packed.c_str(), packed.size());
  const nb::object dumps = nb::module_::import_("pickle").attr("dumps");
  // Other threads may add configurations at the same time.
  while (true) {
    const auto found = config_numbers_.find(key);
    if (found != config_numbers_.end()) return found->second;
    const uint32_t number = driver_.ask()->core.catalogue.next_config();
    const auto frame =
        nb::cast<nb::bytes>(dumps(nb::make_tuple("config", nb::make_tuple(number, packed))));
    if (driver_.ask()->core.catalogue.add_config(number, std::string(frame.c_str(), frame.size())))
      return config_numbers_.try_emplace(key, number).first->second;
  }
}

namespace {

bool is_given(PyObject* object) {
  return object && object != Py_None;
}

int64_t integer_of(PyObject* object, const char* name, int64_t least, int64_t most) {
  if (const auto value = core::integer_of(object, least, most)) return *value;
  core::raise_usage(std::string(name) + " is " + core::shown(object) + "; pass an integer from " +
                    std::to_string(least) + " to " + std::to_string(most));
}

uint32_t milliseconds_of(PyObject* object) {
  const double seconds = PyBool_Check(object) ? -1 : PyFloat_AsDouble(object);
  const bool is_number = seconds != -1.0 || !PyErr_Occurred();
  PyErr_Clear();
  if (!is_number || !(seconds > 0) || seconds > 4e6) {
    core::raise_usage("timeout_s is " + core::shown(object) +
                      "; pass seconds above 0, at most 4000000, or None");
  }
  return static_cast<uint32_t>(std::ceil(seconds * 1e3));
}

bool truth_of(PyObject* object, const char* name) {
  if (PyBool_Check(object)) return object == Py_True;
  if (std::string_view(Py_TYPE(object)->tp_name).starts_with("numpy.bool"))
    return PyObject_IsTrue(object) == 1;
  core::raise_usage(std::string(name) + " is " + core::shown(object) + "; pass True or False");
}

// Return whether a task with retries must save this tensor before it runs, because it changes the
// tensor in place. The driver refuses retries for tensors in child memory. Tensors of a capture
// have no memory yet, so they are not saved.
bool is_saved(const ContinuousTensor& tensor, Tag tag) {
  const bool is_captured = tensor.origin == Origin::kHeap && Capture::is_captured(tensor.data.data);
  return tag == Tag::kInout && !tensor.data.child_memory && !is_captured;
}

void add_member(PyObject* object, size_t position, VisibleMemory& memory, SubmitCall& call) {
  TaskArgs* args = task_args_of(object);
  if (!args) {
    core::raise_usage((call.is_group ? "member " + std::to_string(position) : std::string("args")) +
                      " is " + core::shown(object) + " of type " + core::type_text(object) +
                      "; pass a TaskArgs");
  }
  args->take_addresses();
  call.all_args.push_back(args);
  const bool is_first = call.all_args.size() == 1;
  call.submission.has_kinds = args->has_kinds && (is_first || call.submission.has_kinds);
  const auto tensors = args->tensors();
  if (!call.is_group) call.tensors.reserve(tensors.size());
  const bool is_repeated = call.submission.retries > 0;
  for (uint32_t i = 0; i < args->tensor_count; ++i) {
    const ContinuousTensor& tensor = *args->notes[i].tensor;
    const Tag tag = args->notes[i].tag;
    if (tensor.origin == Origin::kArray || (is_repeated && is_saved(tensor, tag)))
      check_visible(memory, tensor, i);
    call.has_child_memory |= tensors[i].child_memory != 0;
    call.tensors.push_back(
        {tensors[i].data, tensor.box ? bytes_of(*tensor.box) : tensor.bytes, tensor.box, tag});
  }
}

// Convert scalar `index` of a task to the type that the signature of its callable declares.
core::ScalarValue declared_scalar(const CallableHandle& callable, size_t tensors, size_t index,
                                  const core::ScalarValue& number) {
  const int code = index < callable.scalars.size() ? callable.scalars[index] : core::kNoType;
  return core::declared_scalar_of(number, code, [&] {
    return "argument " + std::to_string(tensors + index) + " of " + callable.name;
  });
}

void convert_scalars(SubmitCall& call) {
  if (!call.declaring) return;
  for (const TaskArgs* args : call.all_args)
    for (size_t i = 0; i < args->scalar_count; ++i)
      call.scalars.push_back(
          declared_scalar(*call.declaring, args->tensor_count, i, args->scalar(i)).bits);
}

void add_members(VisibleMemory& memory, SubmitCall& call) {
  if (!call.is_group) {
    if (is_given(call.args)) add_member(call.args, 0, memory, call);
  } else {
    call.group = nb::steal(PySequence_Tuple(call.args ? call.args : Py_None));
    PyErr_Clear();
    if (!call.group.is_valid()) {
      core::raise_usage("args_list is " + core::shown(call.args ? call.args : Py_None) +
                        "; pass a list with the TaskArgs of each member");
    }
    const Py_ssize_t count = PyTuple_GET_SIZE(call.group.ptr());
    for (Py_ssize_t i = 0; i < count; ++i)
      add_member(PyTuple_GET_ITEM(call.group.ptr(), i), static_cast<size_t>(i), memory, call);
  }
  convert_scalars(call);
  TensorAccess* tensor = call.tensors.data();
  std::span<const uint64_t> converted = call.scalars;
  for (TaskArgs* args : call.all_args) {
    std::span<const uint64_t> scalars = args->scalars();
    if (call.declaring) {
      scalars = converted.first(args->scalar_count);
      converted = converted.subspan(args->scalar_count);
    }
    call.members.push_back({{tensor, args->tensor_count}, args->tensors(), scalars});
    tensor += args->tensor_count;
  }
  if (!call.is_group && call.members.empty()) call.members.push_back({});
  call.submission.members = call.members;
  call.submission.has_arguments = !call.all_args.empty();
}

void read_options(SubmitCall& call) {
  Submission& submission = call.submission;
  if (is_given(call.retries))
    submission.retries = static_cast<int32_t>(integer_of(call.retries, "retries", 0, INT32_MAX));
  if (is_given(call.timeout_s)) submission.timeout_ms = milliseconds_of(call.timeout_s);
  if (call.hint) submission.is_hint = truth_of(call.hint, "hint");
}

}  // namespace

Submits::Submits(WorkerDriver& worker, Driver& driver, const SubmitSettings& settings,
                 ChildMemory& memory, ChildPlaces& children, Captures& captures)
    : worker_(worker),
      driver_(driver),
      settings_(settings),
      memory_(memory),
      children_(children),
      captures_(captures),
      numbers_(driver, settings) {}

// Return the child that the program calls `worker`. The program numbers the children of each kind
// from 0.
int32_t Submits::child_of(PyObject* worker, Kind kind) const {
  const auto places = children_.all(kind);
  if (const auto number = core::integer_of(worker, 0, static_cast<int64_t>(places.size()) - 1)) {
    const int32_t child = places[static_cast<size_t>(*number)];
    if (!children_.has_empty() || children_.is_present(child)) return child;
  }
  core::raise_usage("worker is " + core::shown(worker) + "; " + call_of(kind) + " has " +
                    (children_.present(kind).empty() ? "no children to run it"
                                                     : "workers " + children_.numbers(kind)));
}

// Refuse a task that has more members than there are children. The engine counts empty places too.
void Submits::check_present(Kind kind, size_t members) const {
  if (!children_.has_empty() || members <= children_.present(kind).size()) return;
  if (kind == Kind::kSub) return;  // has no empty place
  const std::string present = std::to_string(children_.present(kind).size());
  core::raise_usage(
      (members == 1 ? "a task" : "a group of " + std::to_string(members) + " members") +
      std::string(" was submitted, but ") + call_of(kind) + " has " + present +
      " children now; add Workers with add_worker" +
      (members == 1 ? "" : ", or use a smaller group"));
}

void Submits::read_workers(SubmitCall& call) const {
  if (!is_given(call.workers)) return;
  if (!call.is_group) {
    if (core::integer_of(call.workers, -1, -1)) return;
    call.pins.push_back(child_of(call.workers, call.kind()));
    return;
  }
  const nb::object list = nb::steal(PySequence_Fast(call.workers, ""));
  PyErr_Clear();
  if (!list.is_valid())
    core::raise_usage("workers is " + core::shown(call.workers) + "; pass a list of numbers");
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.ptr()); ++i)
    call.pins.push_back(child_of(PySequence_Fast_GET_ITEM(list.ptr(), i), call.kind()));
}

// Read the tasks of `after` and TaskArgs.add_dep(), which belong to this run or this capture.
void Submits::read_producers(SubmitCall& call) const {
  if (call.after) {
    const nb::object list = nb::steal(PySequence_Fast(call.after, ""));
    if (!list.is_valid() && !PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
    PyErr_Clear();
    if (!list.is_valid()) {
      core::raise_usage("after is " + core::shown(call.after) + "; pass a list of task handles");
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.ptr()); ++i)
      call.producers.push_back(
          producer_of(call.run, PySequence_Fast_GET_ITEM(list.ptr(), i), "after has "));
  }
  for (const TaskArgs* args : call.all_args) {
    for (Py_ssize_t i = 0; args->producers && i < PyList_GET_SIZE(args->producers); ++i)
      call.producers.push_back(
          producer_of(call.run, PyList_GET_ITEM(args->producers, i), "add_dep got "));
  }
  call.submission.after = call.producers;
}

int64_t Submits::producer_of(const RunObject& run, PyObject* object, const char* text) const {
  const TaskHandle* producer = task_handle_of(object);
  if (!producer || producer->run->driver != &worker_)
    core::raise_usage(text + core::shown(object) + "; pass task handles of this Worker");
  check_run(*producer, run);
  return producer->task;
}

Capture* Submits::check_open(const RunObject& run) const {
  return or_error([&] {
    worker_.driver().check_open();
    if (!worker_.is_open(run)) refuse_outside_run();
    return captures_.capture();
  });
}

// Fill in all fields of the submission except the arguments.
void Submits::begin_call(SubmitCall& call) {
  const bool is_captured = check_open(call.run) != nullptr;
  check_present(call.kind(), 1);
  Submission& submission = call.submission;
  submission.outcomes = call.run.outcomes.get();
  if (submission.outcomes) submission.run = submission.outcomes->number;
  const auto& known = numbers_.callable(call.handle, call.kind(), call.known_workers);
  submission.callable = known.number;
  if (known.declares_scalars)
    call.declaring = std::make_unique<CallableHandle>(settings_.callables->check(call.handle));
  if (is_captured) captures_.keep_handle(call.handle);
  submission.config = is_given(call.config)             ? numbers_.config(call.config)
                      : call.kind() == Kind::kNextLevel ? call.run.config
                                                        : 0;
  if (call.workers) read_workers(call);
  submission.pins = call.pins;
  submission.timeout_ms = settings_.task_timeout_ms;
  read_options(call);
  submission.place = places_.of_caller();
}

// Return the memory for memory_for() if the Worker has spawned children: a spawned child can access
// only the mappings that it has attached.
VisibleMemory& Submits::memory_among(const SubmitCall& call) const {
  const bool is_pinned = !call.pins.empty() && !call.submission.is_hint;
  const std::span<const int32_t> candidates =
      is_pinned ? std::span<const int32_t>(call.pins) : children_.all(call.kind());
  const bool is_attached = std::any_of(
      candidates.begin(), candidates.end(),
      [this](int32_t child) -> bool { return settings_.spawned[static_cast<size_t>(child)]; });
  return is_attached ? *settings_.attached : *settings_.memory;
}

// Pin a task to the child that has its callable. Raise UsageError if the program must choose one of
// several children, or has chosen a wrong one.
void Submits::place_by_callable(SubmitCall& call) const {
  const auto& known = call.known_workers;
  auto& pins = call.pins;
  if (pins.empty() && !call.is_group && known.size() == 1) pins.push_back(known[0]);
  const auto wrong = std::find_if(pins.begin(), pins.end(), [&](int32_t pin) {
    return std::find(known.begin(), known.end(), pin) == known.end();
  });
  call.submission.pins = pins;
  call.submission.is_hint = false;
  if (!pins.empty() && wrong == pins.end()) return;
  std::string names;
  for (const int32_t child : known) names += (names.empty() ? "" : ", ") + std::to_string(child);
  const auto& handle = settings_.callables->check(call.handle);
  const std::string argument = call.is_group ? "workers=" : "worker=";
  core::raise_usage("'" + handle.name + "' is registered with the workers " + names +
                    " only, and " +
                    (pins.empty() ? argument + " is missing"
                                  : "the task would run on worker " + std::to_string(*wrong)) +
                    "; name one of these workers with " + argument +
                    ", or register the callable with other workers");
}

PyObject* Submits::submit(SubmitCall& call) {
  begin_call(call);
  add_members(memory_for(call), call);
  if (call.is_group) check_present(call.kind(), call.members.size());
  if (call.has_child_memory) memory_.place(call, children_.present(Kind::kNextLevel));
  if (!call.known_workers.empty()) place_by_callable(call);
  if (call.submission.outcomes) Captures::check_origins(call.all_args);
  read_producers(call);
  int64_t task = kNone;
  or_error([&] {
    task = submit_call(call);
    learn_addresses(call, task);
  });
  if (call.has_child_memory && call.submission.outcomes)
    memory_.add_uses(call.tensors, {task, task}, driver_.flags().oldest_live);
  drop_kept(driver_.flags().oldest_live);
  PyObject* handle = make_task_handle(task, &call.run);
  if (!handle) throw nb::python_error();
  return handle;
}

// Store the addresses of the task's outputs in its arguments, keep the owners of its memory alive
// until it has ended, and clear its explicit producers.
void Submits::learn_addresses(const SubmitCall& call, int64_t task) {
  const TensorAccess* tensor = call.tensors.data();
  for (TaskArgs* args : call.all_args) {
    const auto tensors = args->tensors();
    for (uint32_t i = 0; i < args->tensor_count; ++i, ++tensor) {
      if (tensors[i].data != tensor->address) args->set_address(i, tensor->address, Origin::kHeap);
      keep(args->notes[i].tensor->owner, task);
    }
    Py_CLEAR(args->producers);
  }
}

void Submits::keep(PyObject* owner, int64_t task) {
  if (!owner) return;
  if (captures_.keep_owner(owner)) return;
  if (!kept_.empty() && kept_.back().owner == owner)
    kept_.back().task = std::max(kept_.back().task, task);
  else
    kept_.push_back({task, Py_NewRef(owner)});
}

nb::object Submits::allocate(const RunObject& run, nb::handle shape, nb::handle dtype) {
  pto_tensor tensor = tensor_at(0, shape, dtype, false);
  uint64_t bytes = 0;
  if (!count_bytes(tensor, &bytes))
    core::raise_usage("the size of the tensor exceeds the address space; use a smaller shape");
  Capture* const capture = check_open(run);
  or_error([&] {
    return capture ? capture->allocate(bytes, &tensor.data)
                   : driver_.allocate(bytes, &tensor.data, run.outcomes.get());
  });
  return nb::steal(reinterpret_cast<PyObject*>(make_tensor(tensor, Origin::kHeap, nullptr)));
}

// Refuse a dependency between a task of a capture and a task of a run.
void Submits::check_run(const TaskHandle& handle, const RunObject& run) {
  const bool is_of_capture = handle.run->outcomes == nullptr;
  if (is_of_capture ? handle.run == &run : run.outcomes != nullptr) return;
  core::raise_usage("task " + std::to_string(handle.task) +
                    (is_of_capture
                         ? " belongs to a captured graph; submit tasks that wait for it in the "
                           "captured function"
                         : " belongs to a run, not to the graph that is being captured"));
}

void Submits::drop_kept(int64_t before) {
  while (!kept_.empty() && kept_.front().task < before) {
    PyObject* owner = kept_.front().owner;
    kept_.pop_front();
    Py_DECREF(owner);
  }
}

int64_t Submits::submit_call(const SubmitCall& call) {
  if (call.submission.outcomes) return driver_.submit(call.submission);
  // other threads can run while this waits for the role
  driver_.ask()->submitter.check(call.submission);
  return check_open(call.run)->submit(call.submission);
}

void Submits::scope_begin(const RunObject& run) {
  Capture* const capture = check_open(run);
  or_error([&] { capture ? capture->scope_begin() : driver_.scope_begin(run.outcomes.get()); });
}

void Submits::scope_end(const RunObject& run) {
  Capture* const capture = check_open(run);
  or_error([&] { capture ? capture->scope_end() : driver_.scope_end(run.outcomes.get()); });
}

// Submits many tasks in one call. Each task gets one part of every tensor.

namespace {

[[noreturn]] void refuse_scalars(PyObject* object) {
  core::raise_usage("scalars is " + core::shown(object) +
                    "; pass an array or a list of real numbers, with one number or one row of "
                    "numbers for each task");
}

// The scalars of the tasks: one row for each task.
class ScalarRows {
 public:
  explicit ScalarRows(PyObject* object) {
    if (!object || object == Py_None) return;
    is_given_ = true;
    if (PyList_Check(object) || PyTuple_Check(object)) {
      take_list(object);
    } else {
      take_array(object);
    }
  }

  bool is_given() const { return is_given_; }
  int64_t rows() const { return rows_; }
  size_t columns() const { return columns_; }
  const core::ScalarValue* row(int64_t index) const {
    return values_.data() + static_cast<size_t>(index) * columns_;
  }
  // Convert each number to the declared type. A task has `first` other scalars before its row.
  void convert(const CallableHandle& callable, size_t tensors, size_t first) {
    for (size_t i = 0; i < values_.size(); ++i)
      values_[i] = declared_scalar(callable, tensors, first + i % columns_, values_[i]);
  }

 private:
  void take_array(PyObject* object) {
    const core::HostArray array(
        object, false, [] { return std::string("scalars"); }, core::Advice::kPassCopy,
        ", or a list of numbers");
    const size_t dimensions = array.shape.size();
    if (dimensions < 1 || dimensions > 2) refuse_scalars(object);
    rows_ = array.shape[0];
    columns_ = dimensions == 1 ? 1 : static_cast<size_t>(array.shape[1]);
    const size_t bytes = core::element_bytes(array.code);
    values_.resize(static_cast<size_t>(rows_) * columns_);
    for (size_t i = 0; i < values_.size(); ++i) {
      const auto scalar =
          core::scalar_in_memory(static_cast<const std::byte*>(array.data) + i * bytes, array.code);
      if (!scalar) refuse_scalars(object);
      values_[i] = *scalar;
    }
  }

  void take_list(PyObject* list) {
    rows_ = PySequence_Fast_GET_SIZE(list);
    for (int64_t i = 0; i < rows_; ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(list, i);
      const size_t before = values_.size();
      if (const auto scalar = core::scalar_of(item)) {
        values_.push_back(*scalar);
      } else {
        take_row(list, item);
      }
      const size_t columns = values_.size() - before;
      if (i == 0) columns_ = columns;
      if (columns != columns_) refuse_scalars(list);
    }
  }

  void take_row(PyObject* list, PyObject* row) {
    const nb::object items = nb::steal(PySequence_Fast(row, ""));
    PyErr_Clear();
    if (!items.is_valid()) refuse_scalars(list);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i) {
      const auto scalar = core::scalar_of(PySequence_Fast_GET_ITEM(items.ptr(), i));
      if (!scalar) refuse_scalars(list);
      values_.push_back(*scalar);
    }
  }

  bool is_given_ = false;
  int64_t rows_ = 0;
  size_t columns_ = 0;
  std::vector<core::ScalarValue> values_;
};

void check_rows(int64_t* count, int64_t rows, const std::string& what) {
  if (*count < 0) *count = rows;
  if (*count == rows) return;
  core::raise_usage(what + " has " + std::to_string(rows) + " parts along its first dimension, " +
                    "but others have " + std::to_string(*count) + "; pass one part for each task");
}

// Store the tensors of one task, without the first dimension, in `tensors` and `keys`. Return the
// number of tasks.
int64_t cut(const TaskArgs& args, const ScalarRows& rows, VisibleMemory& memory,
            std::vector<pto_tensor>* tensors, ShortList<TensorAccess, 8>* keys) {
  int64_t count = -1;
  for (uint32_t i = 0; i < args.tensor_count; ++i) {
    pto_tensor tensor = args.tensors()[i];
    const std::string name = "tensor " + std::to_string(i);
    if (tensor.ndims < 1 || tensor.data == 0) {
      core::raise_usage(name + " of submit_many has no first dimension, or no address; pass an " +
                        "array with one part for each task");
    }
    if (args.notes[i].tensor->origin == Origin::kArray)
      check_visible(memory, *args.notes[i].tensor, i);
    check_rows(&count, tensor.shapes[0], name);
    const uint64_t bytes = args.notes[i].tensor->bytes;
    std::copy(tensor.shapes + 1, tensor.shapes + PTO_MAX_DIMS, tensor.shapes);
    tensor.shapes[PTO_MAX_DIMS - 1] = 0;
    tensor.ndims -= 1;
    tensors->push_back(tensor);
    keys->push_back({tensor.data, count > 0 ? bytes / static_cast<uint64_t>(count) : 0, nullptr,
                     args.notes[i].tag});
  }
  if (rows.is_given()) check_rows(&count, rows.rows(), "scalars");
  if (count < 0)
    core::raise_usage(
        "submit_many was called without tensors and scalars; pass at least one of them");
  return count;
}

}  // namespace

nb::object Submits::submit_many(SubmitCall& call, PyObject* scalars) {
  begin_call(call);
  TaskArgs* args = call.args ? task_args_of(call.args) : nullptr;
  if (!args) core::raise_usage("submit_many needs a TaskArgs with the tensors of all tasks");
  args->take_addresses();
  call.all_args.push_back(args);
  if (call.submission.outcomes) Captures::check_origins(call.all_args);
  read_producers(call);
  ScalarRows rows(scalars);
  std::vector<pto_tensor> tensors;
  const int64_t count = cut(*args, rows, memory_for(call), &tensors, &call.tensors);
  for (const pto_tensor& tensor : tensors) call.has_child_memory |= tensor.child_memory != 0;
  if (call.has_child_memory) memory_.place(call, children_.present(Kind::kNextLevel));
  if (!call.known_workers.empty()) place_by_callable(call);
  const size_t fixed = args->scalar_count;
  if (call.declaring) {
    convert_scalars(call);
    rows.convert(*call.declaring, args->tensor_count, fixed);
  } else {
    call.scalars.assign(args->scalars());
  }
  call.scalars.resize(fixed + rows.columns());
  call.members.push_back({call.tensors, tensors, call.scalars});
  call.submission.members = call.members;
  const auto prepare = [&](int64_t index) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].data =
          args->tensors()[i].data + call.tensors[i].bytes * static_cast<uint64_t>(index);
      call.tensors[i].address = tensors[i].data;
    }
    for (size_t i = 0; i < rows.columns(); ++i) call.scalars[fixed + i] = rows.row(index)[i].bits;
  };
  TaskRange made;
  const auto keep_arrays = [&] {
    if (call.has_child_memory && call.submission.outcomes && made.last != kNone)
      memory_.add_uses(call.tensors, made, driver_.flags().oldest_live);
    for (uint32_t i = 0; i < args->tensor_count && made.last != kNone; ++i)
      keep(args->notes[i].tensor->owner, made.last);
  };
  try {
    or_error([&] { submit_each(call, count, prepare, made); });
  } catch (...) {
    keep_arrays();
    throw;
  }
  keep_arrays();
  Py_CLEAR(args->producers);
  drop_kept(driver_.flags().oldest_live);
  const int64_t begin = std::max<int64_t>(made.first, 0);
  return nb::module_::import_("builtins").attr("range")(begin, made.last + 1);
}

void Submits::submit_each(const SubmitCall& call, int64_t count,
                          const std::function<void(int64_t)>& prepare, TaskRange& made) {
  if (call.submission.outcomes) return driver_.submit_each(call.submission, count, prepare, made);
  for (int64_t i = 0; i < count; ++i) {
    prepare(i);
    made.add(submit_call(call));
  }
}

}  // namespace pto::worker
