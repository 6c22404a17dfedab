// Capturing a graph, and replaying it with other arguments.
#include <algorithm>
#include <string>

#include "driver/capture.hpp"
#include "driver/task_handle.hpp"
#include "driver/worker_driver.hpp"
#include "errors.hpp"

namespace pto::hierarchy {
namespace {

std::string name_of(size_t index) {
  return "tensor " + std::to_string(index);
}

std::string text_of(const pto_tensor& tensor) {
  std::string text = "(";
  for (uint32_t i = 0; i < tensor.ndims; ++i) text += std::to_string(tensor.shapes[i]) + ", ";
  return text + "data type " + std::to_string(tensor.dtype) +
         (tensor.child_memory ? ", child memory)" : ")");
}

bool is_alike(const pto_tensor& one, const pto_tensor& other) {
  return one.ndims == other.ndims && one.dtype == other.dtype &&
         one.child_memory == other.child_memory &&
         std::equal(one.shapes, one.shapes + one.ndims, other.shapes);
}

void check_alike(const CapturedGraph& graph, const TaskArgs* args) {
  const size_t tensors = args ? args->tensor_count : 0;
  const size_t scalars = args ? args->scalar_count : 0;
  if (tensors != graph.arguments.size() || scalars != graph.scalars.size()) {
    core::raise_usage("the graph was captured with " + std::to_string(graph.arguments.size()) +
                      " tensors and " + std::to_string(graph.scalars.size()) + " scalars, and " +
                      std::to_string(tensors) + " and " + std::to_string(scalars) +
                      " are given; give as many");
  }
  for (size_t i = 0; i < tensors; ++i) {
    const pto_tensor& given = args->tensors()[i];
    if (is_alike(given, graph.arguments[i])) continue;
    core::raise_usage(name_of(i) + " is " + text_of(given) + ", the graph was captured with " +
                      text_of(graph.arguments[i]) + "; capture it anew for other shapes");
  }
  for (size_t i = 0; i < scalars; ++i) {
    if (args->scalars()[i] == graph.scalars[i]) continue;
    core::raise_usage("scalar " + std::to_string(i) +
                      " is not the one that the graph was captured with; its tasks have what the "
                      "function made of that: capture it anew, or pass the number in a tensor");
  }
}

}  // namespace

TaskArgs* given_args(nb::handle args) {
  if (args.is_none()) return nullptr;
  TaskArgs* given = task_args_of(args.ptr());
  if (!given) {
    core::raise_usage("args is " + core::shown(args) + " of type " + core::type_text(args.ptr()) +
                      "; give a TaskArgs with the tensors of the graph, or None");
  }
  return given;
}

void WorkerDriver::capture_begin(nb::object self, Hazards hazards, nb::handle config,
                                 TaskArgs* args) {
  end_run_without_owner();
  const uint32_t number = config.is_none() ? 0 : config_number(config.ptr());
  if (args) args->take_addresses();
  auto made = or_error([&] {
    return std::make_unique<Capture>(
        driver_->configuration().engine, hazards, captures_++,
        args ? std::span<const pto_tensor>(args->tensors()) : std::span<const pto_tensor>(),
        args ? std::span<const uint64_t>(args->scalars()) : std::span<const uint64_t>());
  });
  // Other threads can run up to here, and not between the checks and what follows.
  if (capture_) core::raise_usage("a capture inside a capture; capture one graph after the other");
  if (driver_->flags().is_running)
    core::raise_usage("a capture inside a run; capture before or after");
  RunObject* run = make_run_object(this, self.ptr(), nullptr);
  if (!run) throw nb::python_error();
  Py_XDECREF(reinterpret_cast<PyObject*>(std::exchange(run_, run)));
  run_config_ = number;
  replayed_.reset();
  captured_ = std::make_unique<CapturedObject>();
  captured_->worker = settings_.callables->worker();
  capture_ = std::move(made);
}

CapturedObject WorkerDriver::capture_end() {
  if (!capture_) core::raise_usage("no capture is under way");
  captured_->graph = or_error([&] { return capture_->finish(); });
  CapturedObject found = std::move(*captured_);
  capture_abandon();
  return found;
}

void WorkerDriver::capture_abandon() {
  capture_.reset();
  captured_.reset();
  Py_XDECREF(reinterpret_cast<PyObject*>(std::exchange(run_, nullptr)));
}

void WorkerDriver::keep_handle(PyObject* object) {
  const auto& handle = *nb::inst_ptr<CallableHandle>(nb::handle(object));
  std::vector<CallableHandle>& handles = captured_->handles;
  const auto is_same = [&handle](const CallableHandle& each) {
    return each.registration == handle.registration;
  };
  if (std::none_of(handles.rbegin(), handles.rend(), is_same)) handles.push_back(handle);
}

// What a capture allocated has no memory.
void WorkerDriver::check_origins(const Draft& draft) const {
  for (const TaskArgs* args : draft.args) {
    for (uint32_t i = 0; i < args->tensor_count; ++i) {
      if (args->notes[i].tensor->origin != Origin::kHeap ||
          !Capture::is_captured(args->tensors()[i].data)) {
        continue;
      }
      core::raise_usage(name_of(i) +
                        " was allocated by the capture of a graph, whose replays have "
                        "memory of their own; allocate it in this run");
    }
  }
}

int64_t WorkerDriver::submit_call(const Call& call) {
  if (!capture_) return driver().submit(call);
  driver_->ask()->submitter.check(call);
  return capture_->submit(call);
}

void WorkerDriver::scope_begin() {
  check_no_replay();
  or_error([&] { capture_ ? capture_->scope_begin() : driver().scope_begin(); });
}

void WorkerDriver::scope_end() {
  check_no_replay();
  or_error([&] { capture_ ? capture_->scope_end() : driver().scope_end(); });
}

void WorkerDriver::check_no_replay() const {
  if (replayed_)
    core::raise_usage("a replay makes the submits of this run; add none until it has returned");
}

void WorkerDriver::check_replay(const CapturedObject& captured, TaskArgs* args) const {
  if (capture_) core::raise_usage("a replay inside a capture; replay when the capture is over");
  if (captured.worker != settings_.callables->worker()) {
    core::raise_usage("the graph was captured with another Worker; capture it with this one");
  }
  for (const CallableHandle& handle : captured.handles) {
    if (!settings_.callables->has(handle)) {
      core::raise_usage("the graph runs '" + handle.name +
                        "', which was unregistered; register it and capture the graph anew");
    }
  }
  for (const ChildRange& range : captured.graph->on_children) {
    if (child_memory_.holds(range.child, range.address, range.bytes)) continue;
    core::raise_usage("the graph names memory of chip " + std::to_string(range.child) +
                      " that was freed since, or was lost with its child; allocate it and capture "
                      "the graph again");
  }
  if (args) args->take_addresses();
  check_alike(*captured.graph, args);
  for (uint32_t i = 0; args && i < args->tensor_count; ++i) {
    const ContinuousTensor& tensor = *args->notes[i].tensor;
    const ArgumentUse& use = captured.graph->uses[i];
    if (tensor.origin == Origin::kArray || use.is_saved)
      check_visible(*settings_.memory, tensor, i);
    if (tensor.is_read_only && use.is_written) {
      core::raise_usage(name_of(i) +
                        " of the arguments is of a read-only array, and tasks of the graph write "
                        "it; give a writable array");
    }
    const AddressRange range = range_of(args->tensors()[i]);
    if (range.begin == 0)
      core::raise_usage(name_of(i) + " of the arguments has no memory; give one that has");
    const bool is_heap = std::any_of(
        std::begin(driver_->configuration().engine.rings),
        std::end(driver_->configuration().engine.rings), [&](const RingConfiguration& ring) {
          return range.begin < ring.address + ring.size && ring.address < range.end;
        });
    if (!is_heap && !Capture::is_captured(range.begin)) continue;
    core::raise_usage(name_of(i) +
                      " of the arguments lies in a heap ring, which a run begins "
                      "with empty; give one of Worker.shared_array");
  }
}

void WorkerDriver::replay_begin(nb::object self, const CapturedObject& captured, TaskArgs* args) {
  settings_.memory->begin_run();
  check_replay(captured, args);
  const std::shared_ptr<CapturedGraph> graph = captured.graph;
  run_begin(std::move(self), graph->hazards, nb::none());
  std::span<const pto_tensor> tensors;
  if (args) tensors = args->tensors();
  for (uint32_t i = 0; i < tensors.size(); ++i) graph->locate(i, tensors[i].data);
  lies_apart_ = lie_apart(*graph, tensors);
  const TaskRange all{driver_->outcomes()->first_task, ChildMemory::kUntilRunEnds};
  for (const ChildRange& range : graph->on_children)
    child_memory_.add_use(range.child, range.address, all, driver_->flags().oldest_live);
  replayed_ = graph;
}

void WorkerDriver::replay() {
  if (!replayed_) core::raise_usage("no replay has begun");
  const auto forget = [this](void*) { replayed_.reset(); };
  const std::unique_ptr<void, decltype(forget)> until_over(this, forget);
  or_error([&] { driver().replay(replayed_, lies_apart_); });
}

}  // namespace pto::hierarchy
