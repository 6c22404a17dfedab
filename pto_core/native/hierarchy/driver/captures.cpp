#include "driver/captures.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "arguments/visible_memory.hpp"
#include "driver/or_error.hpp"
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
                      " were passed; pass the same numbers");
  }
  for (size_t i = 0; i < tensors; ++i) {
    const pto_tensor& given = args->tensors()[i];
    if (is_alike(given, graph.arguments[i])) continue;
    core::raise_usage(name_of(i) + " is " + text_of(given) + ", but the graph was captured with " +
                      text_of(graph.arguments[i]) + "; capture it again for other shapes");
  }
  for (size_t i = 0; i < scalars; ++i) {
    if (args->scalars()[i] == graph.scalars[i]) continue;
    core::raise_usage("scalar " + std::to_string(i) +
                      " differs from the captured value, and the tasks of the graph depend on "
                      "it: capture the graph again, or pass the number in a tensor");
  }
}

}  // namespace

TaskArgs* given_args(nb::handle args) {
  if (args.is_none()) return nullptr;
  TaskArgs* given = task_args_of(args.ptr());
  if (!given) {
    core::raise_usage("args is " + core::shown(args) + " of type " + core::type_text(args.ptr()) +
                      "; pass a TaskArgs with the tensors of the graph, or None");
  }
  return given;
}

std::unique_ptr<Capture> Captures::make(Hazards hazards, TaskArgs* args) {
  if (args) args->take_addresses();
  return or_error([&] {
    return std::make_unique<Capture>(
        engine_, hazards, captures_++,
        args ? std::span<const pto_tensor>(args->tensors()) : std::span<const pto_tensor>(),
        args ? std::span<const uint64_t>(args->scalars()) : std::span<const uint64_t>());
  });
}

void Captures::begin(std::unique_ptr<Capture> capture) {
  replayed_.reset();
  captured_ = std::make_unique<CapturedObject>();
  captured_->worker = settings_.callables->worker();
  capture_ = std::move(capture);
}

CapturedObject Captures::end() {
  if (!capture_) core::raise_usage("no capture is open");
  captured_->graph = or_error([&] { return capture_->finish(); });
  CapturedObject found = std::move(*captured_);
  abandon();
  return found;
}

void Captures::abandon() {
  capture_.reset();
  captured_.reset();
}

bool Captures::keep_owner(PyObject* owner) {
  if (!captured_) return false;
  captured_->owners.try_emplace(owner, nb::borrow(owner));
  return true;
}

void Captures::keep_handle(PyObject* object) {
  const auto& handle = *nb::inst_ptr<CallableHandle>(nb::handle(object));
  std::vector<CallableHandle>& handles = captured_->handles;
  const auto is_same = [&handle](const CallableHandle& each) {
    return each.registration == handle.registration;
  };
  if (std::none_of(handles.rbegin(), handles.rend(), is_same)) handles.push_back(handle);
}

void Captures::check_origins(std::span<TaskArgs* const> all) {
  for (const TaskArgs* args : all) {
    for (uint32_t i = 0; i < args->tensor_count; ++i) {
      if (args->notes[i].tensor->origin != Origin::kHeap ||
          !Capture::is_captured(args->tensors()[i].data)) {
        continue;
      }
      core::raise_usage(name_of(i) +
                        " was allocated by the capture of a graph and has no memory, because each "
                        "replay allocates its "
                        "own memory; allocate a tensor in this run");
    }
  }
}

void Captures::check_replay(const CapturedObject& captured, TaskArgs* args) const {
  if (captured.worker != settings_.callables->worker()) {
    core::raise_usage("the graph was captured with another Worker; capture it with this one");
  }
  for (const CallableHandle& handle : captured.handles) {
    if (!settings_.callables->has(handle)) {
      core::raise_usage("the graph runs '" + handle.name +
                        "', which was unregistered; register it and capture the graph again");
    }
  }
  for (const ChildRange& range : captured.graph->on_children) {
    if (memory_.holds(range.child, range.address, range.bytes)) continue;
    core::raise_usage(
        "the graph uses memory of child " + std::to_string(range.child) +
        " that was freed since the capture, or was lost with the child; allocate it and capture "
        "the graph again");
  }
  if (children_.has_empty()) check_children(*captured.graph);
  if (args) args->take_addresses();
  check_alike(*captured.graph, args);
  for (uint32_t i = 0; args && i < args->tensor_count; ++i)
    check_argument(*args, i, captured.graph->uses[i]);
}

// Refuse a graph whose tasks need children that have left the Worker since the capture.
void Captures::check_children(const CapturedGraph& graph) const {
  for (const CapturedTask& task : graph.tasks) {
    const size_t present = children_.present(task.kind).size();
    if (task.members > present) {
      core::raise_usage("a task of the graph has " + std::to_string(task.members) +
                        " members, but this Worker has " + std::to_string(present) +
                        " children for it now; add Workers with add_worker");
    }
    for (uint32_t i = 0; i < task.pins && !task.is_hint; ++i) {
      const int32_t pin = graph.pins[task.first_pin + i];
      if (children_.is_present(pin)) continue;
      core::raise_usage("a task of the graph is pinned to worker " + std::to_string(pin) +
                        ", which was removed; capture the graph again");
    }
  }
}

void Captures::check_argument(const TaskArgs& args, uint32_t i, const ArgumentUse& use) const {
  const ContinuousTensor& tensor = *args.notes[i].tensor;
  VisibleMemory& memory = settings_.attached ? *settings_.attached : *settings_.memory;
  if (tensor.origin == Origin::kArray || use.is_saved) check_visible(memory, tensor, i);
  if (tensor.is_read_only && use.is_written) {
    core::raise_usage(name_of(i) +
                      " of the arguments is a read-only array, but tasks of the graph write it; "
                      "pass a writable array");
  }
  const AddressRange range = range_of(args.tensors()[i]);
  if (range.begin == 0)
    core::raise_usage(name_of(i) +
                      " of the arguments has no memory; pass a tensor that has "
                      "memory");
  const bool is_heap = std::any_of(
      std::begin(engine_.rings), std::end(engine_.rings), [&](const RingConfiguration& ring) {
        return range.begin < ring.address + ring.size && ring.address < range.end;
      });
  if (!is_heap && !Capture::is_captured(range.begin)) return;
  core::raise_usage(name_of(i) +
                    " of the arguments is in a heap ring, whose memory is free when a run begins; "
                    "pass an array made by Worker.shared_array");
}

void Captures::begin_replay(const CapturedObject& captured, TaskArgs* args, int64_t first,
                            int64_t oldest_live) {
  const std::shared_ptr<CapturedGraph>& graph = captured.graph;
  std::span<const pto_tensor> tensors;
  if (args) tensors = args->tensors();
  for (uint32_t i = 0; i < tensors.size(); ++i) graph->locate(i, tensors[i].data);
  lies_apart_ = lie_apart(*graph, tensors);
  const TaskRange all{first, ChildMemory::kUntilRunEnds};
  for (const ChildRange& range : graph->on_children)
    memory_.add_use(range.child, range.address, all, oldest_live);
  replayed_ = graph;
}

}  // namespace pto::hierarchy
