#include "driver/captures.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "arguments/blob.hpp"
#include "arguments/visible_memory.hpp"
#include "driver/worker_driver.hpp"
#include "errors.hpp"
#include "pto/abi/access_log.h"
#include "pto/abi/dtype.h"

namespace pto::worker {
namespace {

constexpr uint64_t kRingBytes = uint64_t{1} << 46;

// Return a configuration with the same children and with very large rings. Their addresses have bit
// 62 set, so they belong to no memory.
Configuration endless(Configuration configuration, uint64_t number) {
  for (uint64_t ring = 0; ring < kRings; ++ring) {
    configuration.rings[ring] = {
        uint64_t{1} << 62 | (number & 0xFFF) << 49 | ring * (kRingBytes + kSlabBytes), kRingBytes};
  }
  return configuration;
}

// Return the end of the smallest range that contains the tensor, and at least one byte.
uint64_t end_of(const TensorAccess& tensor) {
  if (tensor.box == nullptr) return tensor.address + std::max<uint64_t>(tensor.bytes, 1);
  const Box& box = *tensor.box;
  uint64_t end = tensor.address + box.element_bytes;
  for (uint64_t dim = 0, stride = box.element_bytes; dim < box.dims; stride *= box.raw[dim++])
    end += (box.extent[dim] - 1) * stride;
  return end;
}

bool overlap(const AddressRange& one, const AddressRange& other) {
  return one.begin < other.end && other.begin < one.end;
}

}  // namespace

AddressRange range_of(const pto_tensor& tensor) {
  uint64_t bytes = 0;
  count_bytes(tensor, &bytes);
  return {tensor.data, tensor.data + std::max<uint64_t>(bytes, 1)};
}

Capture::Capture(const Configuration& configuration, Hazards hazards, uint64_t number,
                 std::span<const pto_tensor> arguments, std::span<const uint64_t> scalars)
    : configuration_(configuration),
      engine_(std::make_unique<Engine>(endless(configuration, number))),
      graph_(std::make_shared<CapturedGraph>()) {
  graph_->hazards = hazards;
  graph_->states_use = configuration.states_use();
  graph_->arguments.assign(arguments.begin(), arguments.end());
  graph_->uses.resize(arguments.size());
  graph_->scalars.assign(scalars.begin(), scalars.end());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].child_memory) {
      refuse_usage(
          "tensor " + std::to_string(i) +
          " of the arguments is memory of a child; use such memory only inside the captured "
          "function");
    }
    if (arguments[i].data == 0)
      refuse_usage("tensor " + std::to_string(i) +
                   " of the arguments has no memory; pass a tensor that "
                   "has memory");
    const AddressRange range = range_of(arguments[i]);
    for (size_t other = 0; other < i; ++other) {
      if (!overlap(range, range_of(arguments[other]))) continue;
      refuse_usage(
          "tensors " + std::to_string(other) + " and " + std::to_string(i) +
          " of the arguments overlap, so a replay cannot tell which of them a task uses; capture "
          "with arrays that do not overlap");
    }
    add_base(range.begin, range.end - range.begin);
  }
  engine_->run_begin(hazards, out_);
}

uint32_t Capture::add_base(uint64_t address, uint64_t bytes) {
  const auto number = static_cast<uint32_t>(graph_->bases.size());
  bases_[address] = {address + std::max<uint64_t>(bytes, 1), number};
  graph_->bases.push_back(address);
  return number;
}

// Return the base that contains the address, or null. Bases do not overlap.
const std::pair<const uint64_t, Capture::Base>* Capture::base_at(uint64_t address) const {
  auto found = bases_.upper_bound(address);
  if (found == bases_.begin()) return nullptr;
  --found;
  return address < found->second.end ? &*found : nullptr;
}

Capture::Origin Capture::origin_of(const TensorAccess& key) const {
  const uint64_t end = end_of(key);
  const auto* base = base_at(key.address);
  if (base && end <= base->second.end) return {base->second.number, key.address - base->first};
  const auto next = bases_.lower_bound(key.address);
  if (base || (next != bases_.end() && next->first < end)) {
    refuse_usage(
        "a tensor of " + std::to_string(key.bytes) +
        " bytes is only partly inside an argument or an allocation of the graph; in a captured "
        "graph each tensor must be inside one of them or outside of all");
  }
  if (is_captured(key.address)) {
    refuse_usage(
        "the tensor belongs to another captured graph; allocate a tensor in this graph's function");
  }
  for (const RingConfiguration& ring : configuration_.rings) {
    if (!overlap({key.address, end}, {ring.address, ring.address + ring.size})) continue;
    refuse_usage(
        "the tensor belongs to an earlier run; allocate a tensor in the captured function");
  }
  return {kNoBase, 0};
}

// The constructor has checked that no argument begins inside another one.
void Capture::check(const Submission& submission) const {
  for (const Member& member : submission.members) {
    for (const TensorAccess& tensor : member.tensors)
      if (tensor.child == kNone && !is_allocated(tensor) && tensor.address != 0) origin_of(tensor);
  }
}

int64_t Capture::submit(const Submission& submission) {
  check(submission);
  CapturedTask task{};
  task.kind = submission.kind;
  task.is_hint = submission.is_hint;
  task.has_arguments = submission.has_arguments;
  task.has_kinds = submission.has_kinds;
  task.members = static_cast<uint16_t>(submission.members.size());
  task.retries = submission.retries;
  task.callable = submission.callable;
  task.config = submission.config;
  task.timeout_ms = submission.timeout_ms;
  task.place = submission.place;
  task.first_key = static_cast<uint32_t>(graph_->keys.size());
  for (size_t i = 0; i < submission.members.size(); ++i) {
    for (const TensorAccess& tensor : submission.members[i].tensors) {
      graph_->keys.push_back({tensor, static_cast<uint32_t>(i), kNoBase, 0, 0});
      if (tensor.box != nullptr)
        graph_->keys.back().tensor.box = &graph_->boxes.emplace_back(*tensor.box);
    }
  }
  int64_t number = kNone;
  try {
    number = engine_->submit(submission, out_).task;
  } catch (...) {
    graph_->keys.resize(task.first_key);
    throw;
  }
  if (number == kNone) {
    graph_->keys.resize(task.first_key);
    refuse_usage("a captured graph allocates more than 64 TiB; make it smaller");
  }
  task.keys = static_cast<uint32_t>(graph_->keys.size()) - task.first_key;
  keep_keys(submission, &task);
  keep_known(number, &task);
  task.first_pin = static_cast<uint32_t>(graph_->pins.size());
  task.pins = static_cast<uint32_t>(submission.pins.size());
  graph_->pins.insert(graph_->pins.end(), submission.pins.begin(), submission.pins.end());
  graph_->steps.push_back(
      {CapturedStep::What::kSubmit, static_cast<uint32_t>(graph_->tasks.size()), kNoBase, 0});
  graph_->tasks.push_back(task);
  return number;
}

// Complete the keys that were collected before the submit with their bases and places, and store
// the blobs.
void Capture::keep_keys(const Submission& submission, CapturedTask* task) {
  task->blobs = graph_->blob_storage.size() * sizeof(uint64_t);
  CapturedKey* key = graph_->keys.data() + task->first_key;
  for (const Member& member : submission.members) {
    const uint64_t blob = graph_->blob_storage.size() * sizeof(uint64_t);
    graph_->blob_storage.resize(graph_->blob_storage.size() +
                                blob_bytes(member.tensors.size(), member.scalars.size()) / 8);
    encode_blob({member.arguments, member.scalars}, graph_->blobs() + blob);
    if (graph_->states_use) keep_uses(member);
    for (size_t i = 0; i < member.tensors.size(); ++i, ++key) {
      key->place = blob + kBlobHeadBytes + i * sizeof(pto_tensor) + offsetof(pto_tensor, data);
      const bool is_new = is_allocated(key->tensor);
      if (is_new) {
        key->base = add_base(member.tensors[i].address, key->tensor.bytes);
      } else if (key->tensor.child != kNone) {
        graph_->on_children.push_back({key->tensor.child, key->tensor.address, key->tensor.bytes});
      } else if (key->tensor.address != 0) {
        const Origin origin = origin_of(key->tensor);
        key->base = origin.base;
        key->offset = origin.offset;
      }
      const bool is_saved = submission.retries > 0 && key->tensor.tag == Tag::kInout;
      task->needs_keys |= is_new || is_saved;
      if (key->base < graph_->uses.size()) {
        graph_->uses[key->base].is_written |= writes(key->tensor.tag);
        graph_->uses[key->base].is_saved |= is_saved;
      }
      if (key->base != kNoBase) {
        patches_.push_back({key->base, {key->place, key->offset}});
        *reinterpret_cast<uint64_t*>(graph_->blobs() + key->place) = member.tensors[i].address;
      } else if (key->tensor.address != 0 && key->tensor.child == kNone) {
        const uint64_t begin = key->tensor.address;
        graph_->constants.push_back({begin, end_of(key->tensor)});
      }
    }
  }
}

// Store the uses of the member's tensors after its blob.
void Capture::keep_uses(const Member& member) {
  std::vector<uint64_t>& storage = graph_->blob_storage;
  const size_t at = storage.size() * sizeof(uint64_t);
  storage.resize(storage.size() + use_bytes(member.tensors.size()) / sizeof(uint64_t));
  for (size_t i = 0; i < member.tensors.size(); ++i) {
    graph_->blobs()[at + i] =
        use_of(member.tensors[i].tag, member.arguments[i].data != member.tensors[i].address);
  }
}

void Capture::keep_known(int64_t number, CapturedTask* task) {
  std::vector<std::pair<int64_t, uint8_t>> producers;
  std::vector<int64_t> owners;
  engine_->report_found(&producers, &owners);
  task->first_producer = static_cast<uint32_t>(graph_->producers.size());
  task->producers = static_cast<uint32_t>(producers.size());
  for (const auto& [producer, why] : producers)
    graph_->producers.push_back({static_cast<uint32_t>(number - producer), why});
  task->first_owner = static_cast<uint32_t>(graph_->owners.size());
  task->owners = static_cast<uint32_t>(owners.size());
  for (const int64_t owner : owners)
    graph_->owners.push_back(static_cast<uint32_t>(number - owner));
}

int64_t Capture::allocate(uint64_t bytes, uint64_t* address) {
  const Submitted answer = engine_->allocate(bytes, address, out_);
  if (answer.task == kNone)
    refuse_usage("a captured graph allocates more than 64 TiB; make it smaller");
  graph_->steps.push_back({CapturedStep::What::kAllocate, 0, add_base(*address, bytes), bytes});
  return answer.task;
}

void Capture::scope_begin() {
  engine_->scope_begin();
  depth_ += 1;
  graph_->steps.push_back({CapturedStep::What::kScopeBegin, 0, kNoBase, 0});
}

void Capture::scope_end() {
  engine_->scope_end(out_);
  out_.clear();
  depth_ -= 1;
  graph_->steps.push_back({CapturedStep::What::kScopeEnd, 0, kNoBase, 0});
}

std::shared_ptr<CapturedGraph> Capture::finish() {
  if (depth_ > 0)
    refuse_usage("the captured function returned with " + std::to_string(depth_) + " scopes open");
  sort_patches();
  merge_constants();
  std::vector<ChildRange>& on_children = graph_->on_children;
  std::sort(on_children.begin(), on_children.end());
  on_children.erase(std::unique(on_children.begin(), on_children.end()), on_children.end());
  return std::move(graph_);
}

void Capture::sort_patches() {
  std::stable_sort(patches_.begin(), patches_.end(),
                   [](const auto& one, const auto& other) { return one.first < other.first; });
  graph_->first_patch.assign(graph_->bases.size() + 1, 0);
  for (const auto& [base, patch] : patches_) {
    graph_->first_patch[base + 1] += 1;
    graph_->patches.push_back(patch);
  }
  for (size_t base = 0; base < graph_->bases.size(); ++base)
    graph_->first_patch[base + 1] += graph_->first_patch[base];
}

void Capture::merge_constants() {
  std::vector<AddressRange>& all = graph_->constants;
  std::sort(all.begin(), all.end(),
            [](const auto& one, const auto& other) { return one.begin < other.begin; });
  size_t kept = 0;
  for (const AddressRange& range : all) {
    if (kept > 0 && range.begin <= all[kept - 1].end)
      all[kept - 1].end = std::max(all[kept - 1].end, range.end);
    else
      all[kept++] = range;
  }
  all.resize(kept);
  all.shrink_to_fit();
}

bool lie_apart(const CapturedGraph& graph, std::span<const pto_tensor> arguments) {
  std::vector<AddressRange> ranges;
  for (const pto_tensor& tensor : arguments) ranges.push_back(range_of(tensor));
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& one, const auto& other) { return one.begin < other.begin; });
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (i > 0 && ranges[i].begin < ranges[i - 1].end) return false;
    const auto after = std::lower_bound(
        graph.constants.begin(), graph.constants.end(), ranges[i].begin,
        [](const AddressRange& constant, uint64_t begin) { return constant.end <= begin; });
    if (after != graph.constants.end() && after->begin < ranges[i].end) return false;
  }
  return true;
}

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

namespace {

class Writer {
 public:
  Writer(const CapturedGraph& graph, const Catalogue& catalogue, const SourcePlaces& places)
      : graph_(graph), catalogue_(catalogue), places_(places), bases_(graph.bases.size()) {}

  nb::dict write() {
    for (size_t i = 0; i < graph_.arguments.size(); ++i) {
      const AddressRange range = range_of(graph_.arguments[i]);
      bases_[i].bytes = range.end - range.begin;
      add_buffer("argument " + std::to_string(i), range.begin, bases_[i].bytes, true);
    }
    int64_t number = 0;  // of the next submit or allocation
    uint32_t allocations = 0;
    for (const CapturedStep& step : graph_.steps) {
      switch (step.what) {
        case CapturedStep::What::kSubmit:
          add_task(graph_.tasks[step.task], number++);
          break;
        case CapturedStep::What::kAllocate:
          ++number;
          bases_[step.base].bytes = step.bytes;
          add_buffer("alloc " + std::to_string(allocations++), graph_.bases[step.base], step.bytes,
                     false);
          break;
        case CapturedStep::What::kScopeBegin:
          add_event(PTO_LOG_SCOPE_BEGIN, 0, 0);
          break;
        case CapturedStep::What::kScopeEnd:
          add_event(PTO_LOG_SCOPE_END, 0, 0);
          break;
      }
    }
    return fields();
  }

 private:
  void add_task(const CapturedTask& task, int64_t number) {
    uint64_t heap = 0;
    for (uint32_t key = task.first_key; key < task.first_key + task.keys; ++key) {
      const CapturedKey& named = graph_.keys[key];
      const bool is_new = is_allocated(named.tensor);
      if (is_new && named.base != kNoBase) {
        bases_[named.base] = {number, named.tensor.bytes};
        if (heap == 0 || graph_.bases[named.base] < heap) heap = graph_.bases[named.base];
      }
      add_access(named, key - task.first_key);
    }
    const auto [file, line] = position(task.place);
    tasks_.push_back({number, reinterpret_cast<const char*>(file), line,
                      static_cast<int32_t>(task.callable), heap,
                      static_cast<uint32_t>(accesses_.size()), -1,
                      task.members > 1 ? task.members : 0u, 0});
    kernels_[nb::int_(task.callable)] = nb::cast(catalogue_.name(task.callable));
    for (uint32_t i = task.first_producer; i < task.first_producer + task.producers; ++i) {
      const Known::Producer& producer = graph_.producers[i];
      if ((producer.why & kExplicit) != 0)
        add_event(PTO_LOG_EDGE, number - producer.distance, number);
    }
  }

  void add_access(const CapturedKey& key, uint32_t index) {
    const TensorAccess& named = key.tensor;
    pto_tensor_data tensor{};
    tensor.buffer.addr = named.address;
    tensor.buffer.size = named.bytes;
    tensor.owner = -1;
    uint64_t offset = 0;
    if (named.child != kNone) {
      tensor.buffer.addr =
          uint64_t{1} << 61 | static_cast<uint64_t>(named.child) * kChildMemoryEnd | named.address;
    } else if (key.base != kNoBase) {
      tensor.owner = bases_[key.base].owner;
      tensor.buffer.addr = graph_.bases[key.base];
      tensor.buffer.size = bases_[key.base].bytes;
      offset = key.offset;
    }
    if (named.box != nullptr) {
      set_box(*named.box, named.address - named.box->base, offset, &tensor);
    } else {
      tensor.raw_shapes[0] = std::max(tensor.buffer.size, offset + named.bytes);
      tensor.shapes[0] = named.bytes;
      tensor.offsets[0] = tensor.start_offset = offset;
      tensor.ndims = 1;
    }
    tensor.dtype = PTO_DTYPE_UINT8;
    tensor.tag = static_cast<uint8_t>(named.tag);
    tensor.reserved[0] = static_cast<uint8_t>(std::min<uint32_t>(index, 255));
    accesses_.push_back(tensor);
  }

  // Describe a view by its box, slowest dimension first. `before`: the bytes from the start of the
  // box's buffer to the view. `offset`: those from the address in `tensor` to the view.
  static void set_box(const Box& box, uint64_t before, uint64_t offset, pto_tensor_data* tensor) {
    tensor->buffer.addr += offset - before;
    tensor->buffer.size = box.element_bytes;
    tensor->ndims = box.dims;
    tensor->start_offset = before;
    for (uint32_t dim = 0; dim < box.dims; ++dim) {
      const uint32_t to = box.dims - 1 - dim;
      tensor->raw_shapes[to] = box.raw[dim];
      tensor->shapes[to] = box.extent[dim];
      tensor->offsets[to] = box.low[dim];
      tensor->order[to] = static_cast<uint8_t>(to);
      tensor->buffer.size *= box.raw[dim];
    }
  }

  void add_event(uint32_t kind, int64_t first, int64_t second) {
    events_.push_back({kind, -1, nullptr, static_cast<int64_t>(tasks_.size()), first, second});
  }

  void add_buffer(const std::string& name, uint64_t address, uint64_t bytes, bool is_argument) {
    buffers_.append(nb::make_tuple(name, address, bytes, is_argument, is_argument));
  }

  // Return the number of the file and the line; 0 and -1 if they are unknown.
  std::pair<uintptr_t, int32_t> position(const SubmitPosition& place) {
    const nb::object found = places_.file_and_line(place);
    const nb::object file = found[0];
    const nb::object line = found[1];
    if (file.is_none()) return {0, -1};
    const auto name = nb::cast<std::string>(file);
    const auto [known, is_new] = numbers_.try_emplace(name, numbers_.size() + 1);
    if (is_new) files_.append(file);
    return {known->second, line.is_none() ? -1 : nb::cast<int32_t>(line)};
  }

  template <class Row>
  static nb::bytes packed(const std::vector<Row>& rows) {
    return nb::bytes(rows.data(), rows.size() * sizeof(Row));
  }

  nb::dict fields() const {
    nb::dict made;
    made["tasks"] = packed(tasks_);
    made["accesses"] = packed(accesses_);
    made["events"] = packed(events_);
    made["files"] = files_;
    made["kernels"] = kernels_;
    made["buffers"] = buffers_;
    made["is_full"] = nb::bool_(graph_.hazards == Hazards::kFull);
    made["blocks"] = 0;
    made["has_ring_ids"] = nb::bool_(false);
    made["has_accesses"] = nb::bool_(true);
    return made;
  }

  struct BaseFacts {
    int64_t owner = kNone;  // task that allocated it
    uint64_t bytes = 0;
  };

  const CapturedGraph& graph_;
  const Catalogue& catalogue_;
  const SourcePlaces& places_;
  std::vector<BaseFacts> bases_;
  std::vector<pto_logged_task> tasks_;
  std::vector<pto_tensor_data> accesses_;
  std::vector<pto_logged_event> events_;
  std::map<std::string, uintptr_t> numbers_;
  nb::list files_;
  nb::dict kernels_;
  nb::list buffers_;
};

}  // namespace

std::vector<std::pair<uint32_t, uint32_t>> captured_edges(const CapturedGraph& graph) {
  std::vector<uint32_t> task_of;  // index of each submit; allocations have a number, too
  std::vector<std::pair<uint32_t, uint32_t>> edges;
  for (const CapturedStep& step : graph.steps) {
    if (step.what == CapturedStep::What::kAllocate) task_of.push_back(~uint32_t{0});
    if (step.what != CapturedStep::What::kSubmit) continue;
    const CapturedTask& task = graph.tasks[step.task];
    for (uint32_t i = task.first_producer; i < task.first_producer + task.producers; ++i) {
      edges.emplace_back(task_of[task_of.size() - graph.producers[i].distance], step.task);
    }
    task_of.push_back(step.task);
  }
  std::sort(edges.begin(), edges.end(), [](const auto& one, const auto& other) {
    return std::pair(one.second, one.first) < std::pair(other.second, other.first);
  });
  return edges;
}

nb::dict captured_log(const CapturedObject& captured, const Catalogue& catalogue,
                      const SourcePlaces& places) {
  return Writer(*captured.graph, catalogue, places).write();
}

}  // namespace pto::worker
