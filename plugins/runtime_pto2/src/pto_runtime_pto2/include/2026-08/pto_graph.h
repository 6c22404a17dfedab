// Graphs of tasks that are recorded once and expanded afterwards.
//
//   void layer(const GraphTaskArgs& args) {
//     CoreTaskArgs task;
//     task.add_input(args.tensor(0).ref());
//     task.add_output(args.tensor(1).ref());
//     task.add_scalar(args.scalar(0));
//     rt_submit_aiv_task(0, task);
//   }
//   GraphTaskArgs args;
//   args.add_input(in);
//   args.add_output(out);
//   args.add_scalar(3);
//   rt_submit_graph(GRAPH_KEY("layer"), layer, args);
//
// A call that is not expanded calls the body, whose tasks are submitted as usual. The first two
// calls of a form also record the submits. If both records are equal, later calls submit the tasks
// of the record with the new tensors and scalars, and do not call the body. A form consists of the
// body, its configuration, the shapes of the tensors, and the scalars whose values the body read.
//
// A record contains no addresses. It refers to a tensor as a part of a tensor of the arguments or
// of an output of a recorded task, and to a scalar as a scalar of the arguments, or its value. So
// these bodies are called each time: those that access data of tensors, dump them or mark ranges,
// that use tensors or tasks which are neither arguments nor their own, that have captures, or whose
// configuration is more than numbers and enumerators.
//
// The record also knows the edges between its tasks (pto_graph_edges.h). They replace most look-ups
// in a call whose tensors share no memory, unless the run observes edges or has hazards "full".
#ifndef PTO_GRAPH_H
#define PTO_GRAPH_H

#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "pto_graph_edges.h"
#include "pto_submit.h"

// The records of a run have keys. A key is a name, or a number.
#define GRAPH_KEY(name) (pto_orchestration::GraphKey(pto_orchestration::hash_of(name)))

namespace pto_orchestration {

class GraphRecord;
class Graphs;

}  // namespace pto_orchestration

// The tensors and scalars of a graph.
class GraphTaskArgs {
 public:
  static constexpr uint32_t kMaxTensors = 128;
  static constexpr uint32_t kMaxScalars = 64;

  GraphTaskArgs() = default;
  GraphTaskArgs(const GraphTaskArgs&) = delete;
  GraphTaskArgs& operator=(const GraphTaskArgs&) = delete;

  // The tensors must live until the call. The tasks of the body state their accesses themselves.
  template <class... Tensors>
  void add_input(Tensors&&... tensors) {
    (add_tensor<Tensors>(tensors), ...);
  }
  template <class... Tensors>
  void add_inout(Tensors&&... tensors) {
    (add_tensor<Tensors>(tensors), ...);
  }
  template <class... Tensors>
  void add_output(Tensors&&... tensors) {
    (add_tensor<Tensors>(tensors), ...);
  }
  template <class... Tensors>
  void add_no_dep(Tensors&&... tensors) {
    (add_tensor<Tensors>(tensors), ...);
  }
  template <class... Values>
  void add_scalar(const Values&... values) {
    (add_one_scalar(pto_orchestration::graph_scalar(values)), ...);
  }

  ChipTaskArgs::TensorRef tensor(uint32_t index, const char* file = __builtin_FILE(),
                                 int32_t line = __builtin_LINE()) const {
    if (index < num_tensors_) return ChipTaskArgs::TensorRef(*tensors_[index]);
    pto_orchestration::report({file, line}, "tensor(%u) of a graph with %u tensors", index,
                              num_tensors_);
    return ChipTaskArgs::TensorRef(pto_orchestration::no_tensor());
  }
  // Return a scalar, which converts to uint64_t. A record is only valid for the values that were
  // converted; add_scalar() of a task does not convert them.
  GraphScalar scalar(uint32_t index, const char* file = __builtin_FILE(),
                     int32_t line = __builtin_LINE()) const {
    if (index < num_scalars_) return scalars_[index];
    pto_orchestration::report({file, line}, "scalar(%u) of a graph with %u scalars", index,
                              num_scalars_);
    return GraphScalar(0);
  }
  uint32_t tensor_count() const { return num_tensors_; }
  uint32_t scalar_count() const { return num_scalars_; }
  const char* error() const { return error_; }

 private:
  friend class pto_orchestration::GraphRecord;
  friend class pto_orchestration::Graphs;

  template <class Argument>
  void add_tensor(const ChipTensor& tensor) {
    static_assert(std::is_lvalue_reference_v<Argument>,
                  "the tensor must live until the call: give it a name");
    if (num_scalars_ != 0) error_ = "a tensor was added after a scalar; add all tensors first";
    if (num_tensors_ == kMaxTensors) {
      error_ = "more than 128 tensors were added to a graph";
    } else {
      tensors_[num_tensors_++] = &tensor;
    }
  }
  template <class Argument>
  void add_tensor(const TensorCreateInfo&) {
    error_ = "a TensorCreateInfo was added to a graph; allocate the tensor before, or in the body";
  }
  void add_one_scalar(const GraphScalar& scalar) {
    if (num_scalars_ == kMaxScalars) {
      error_ = "more than 64 scalars were added to a graph";
    } else {
      scalars_[num_scalars_++] = scalar;
    }
  }

  uint32_t num_tensors_ = 0;
  uint32_t num_scalars_ = 0;
  const char* error_ = nullptr;  // the last mistake
  const ChipTensor* tensors_[kMaxTensors];
  GraphScalar scalars_[kMaxScalars];
};

namespace pto_orchestration {

// The key of a call, and its position.
struct GraphKey {
  GraphKey(uint64_t key, const char* file = __builtin_FILE(), int32_t line = __builtin_LINE())
      : number(key), at{file, line} {}

  uint64_t number;
  Location at;
};

// The arguments of a call without a key, and its position.
struct PlacedArgs {
  PlacedArgs(const GraphTaskArgs& given, const char* file = __builtin_FILE(),
             int32_t line = __builtin_LINE())
      : args(given), at{file, line} {}

  const GraphTaskArgs& args;
  Location at;
};

constexpr uint64_t hash_of(const char* name) {
  uint64_t hash = 0xcbf29ce484222325u;
  while (*name != '\0') hash = (hash ^ static_cast<uint8_t>(*name++)) * 0x100000001b3u;
  return hash;
}

// The submits of one call of a body, for one form of its arguments.
//
// `words_` describes them completely, without addresses and task ids: two records with equal words
// submit the same tasks for the same arguments.
//
// A body may read where a tensor of the arguments is. So the record is used for a tensor at another
// place only after two records with different places of this tensor were equal.
class GraphRecord : public SubmitObserver {
 public:
  GraphRecord(uint32_t serial, const GraphTaskArgs& args, std::vector<uint64_t> form)
      : serial_(serial),
        form_(std::move(form)),
        shapes_(args.num_tensors_),
        has_moved_(args.num_tensors_) {
    for (uint32_t i = 0; i < args.num_tensors_; ++i) {
      shapes_[i] = *args.tensors_[i];
      shapes_[i].origin = serial_ << kSerialShift | i;
      body_.tensors_[i] = &shapes_[i];
    }
    body_.num_tensors_ = args.num_tensors_;
    for (uint32_t i = 0; i < args.num_scalars_; ++i) {
      body_.scalars_[i] = GraphScalar(args.scalars_[i].bits(), &read_, i);
    }
    body_.num_scalars_ = args.num_scalars_;
  }

  // The arguments for the call that is recorded.
  const GraphTaskArgs& body_args() const { return body_; }
  const std::vector<uint64_t>& form() const { return form_; }
  bool is_usable() const { return is_usable_ && depth_ == 0; }
  bool has_equal_submits(const GraphRecord& other) const { return words_ == other.words_; }

  // Called for a later record with equal submits.
  void confirm(const GraphRecord& other) {
    is_confirmed_ = true;
    for (uint32_t i = 0; i < shapes_.size(); ++i) {
      if (!is_at(shapes_[i], other.shapes_[i])) has_moved_[i] = true;
    }
  }
  // Return whether the body need not be called for these arguments, which fit.
  bool is_confirmed_for(const GraphTaskArgs& args) const {
    bool is_known = is_confirmed_;
    for (uint32_t i = 0; i < args.num_tensors_ && is_known; ++i) {
      is_known = has_moved_[i] || is_at(shapes_[i], *args.tensors_[i]);
    }
    return is_known;
  }

  // Return whether a call has the form of this record.
  bool fits(const std::vector<uint64_t>& form, const GraphTaskArgs& args) const {
    if (form != form_ || args.num_tensors_ != shapes_.size() ||
        args.num_scalars_ != body_.num_scalars_) {
      return false;
    }
    for (uint32_t i = 0; i < args.num_tensors_; ++i) {
      const ChipTensor& now = *args.tensors_[i];
      if (now.buffer.size != shapes_[i].buffer.size ||
          std::memcmp(&now.version, &shapes_[i].version, kShapeBytes) != 0) {
        return false;
      }
    }
    for (uint32_t i = 0; i < args.num_scalars_; ++i) {
      if ((read_ >> i & 1) != 0 && args.scalars_[i].bits() != body_.scalars_[i].bits()) {
        return false;
      }
    }
    return true;
  }

  // Submit the recorded tasks with other arguments.
  void expand(Run& run, const GraphTaskArgs& args) {
    select_edges(has_known_edges_ && are_apart(args.tensors_, args.num_tensors_));
    for (uint32_t i = 0; i < args.num_tensors_; ++i) {
      const ChipTensor& tensor = *args.tensors_[i];
      bases_[i] = {tensor.buffer.addr, native_id(tensor.owner_task_id), tensor.start_offset};
    }
    for (const ScalarUse& use : scalar_uses_) {
      params_[use.param].value.scalar = args.scalars_[use.scalar].bits();
    }
    for (const Step& step : steps_) {
      if (step.kind == kTask) {
        expand_task(run, tasks_[step.task]);
      } else if (step.kind == kEnd) {
        run.end_scope(step.at);
      } else {
        run.open_scope(step.kind == kManual ? PTO2ScopeMode::MANUAL : PTO2ScopeMode::AUTO, step.at);
      }
    }
  }

  // Called once, when the record is complete.
  void connect(bool knows_edges) {
    bases_.resize(shapes_.size());
    if (knows_edges && are_apart(body_.tensors_, body_.num_tensors_)) find_edges();
    for (Task& one : tasks_) {
      one.task.params = params_.data() + one.first_param;
      for (uint32_t i = 0; i < one.num_tensors; ++i) {
        one.task.params[i].value.tensor = &tensors_[one.first_tensor + i].param.memory;
      }
      one.task.dependencies = dependencies_.data() + one.first_dependency;
      one.task.predicate = one.has_predicate ? &one.predicate : nullptr;
    }
  }

  void scope_begins(PTO2ScopeMode mode, Location at) override {
    ++depth_;
    add_step(mode == PTO2ScopeMode::MANUAL ? kManual : kAuto, at);
  }
  void scope_ends(Location at) override {
    if (depth_-- == 0) is_usable_ = false;
    add_step(kEnd, at);
  }
  void cannot_record() override { is_usable_ = false; }
  void submitted(const Submit& submit) override;

 private:
  static constexpr uint32_t kSerialShift = 20;
  static constexpr uint32_t kFirstOutput = 256;  // after the tensors of the arguments
  static constexpr uint32_t kCreated = ~uint32_t{0};
  static constexpr size_t kShapeBytes =
      offsetof(ChipTensor, strides) + sizeof(ChipTensor::strides) - offsetof(ChipTensor, version);

  enum Kind : uint32_t { kTask, kAuto, kManual, kEnd };
  struct Step {
    Kind kind;
    uint32_t task;  // for kTask: the index in tasks_
    Location at;
  };
  // A part of a tensor: `from` is the number of a tensor of the arguments, kFirstOutput + the index
  // in tensors_ of the output of a task, or kCreated for such an output.
  struct Part {
    uint32_t from;
    uint64_t offset;  // of its first element in the tensor
  };
  struct Tensor {
    Part part;
    uint64_t base;  // start_offset of the tensor whose part it is, in `param`
    pto_chip_param param;
    uint32_t known;     // PTO2_NO_LOOK_UP and PTO2_NO_ENTRY
    bool is_described;  // whether `param` describes the memory for `base`
    bool has_initial_value;
    uint64_t initial_value;
  };
  struct ScalarUse {
    uint32_t param;
    uint32_t scalar;
  };
  struct Task {
    pto_tensor_task task;
    int64_t id;  // in the newest call
    uint32_t first_param;
    uint32_t first_tensor;
    uint32_t num_tensors;
    uint32_t first_dependency;
    uint32_t num_stated;  // dependencies; those that were found follow
    uint32_t num_found;
    bool has_initial_value;  // of an output
    bool has_predicate;
    Part operand;
    uint32_t operand_bytes;
    pto_predicate predicate;
  };

  static bool is_at(const ChipTensor& one, const ChipTensor& other) {
    return one.buffer.addr == other.buffer.addr && one.start_offset == other.start_offset &&
           one.owner_task_id == other.owner_task_id;
  }

  template <class... Values>
  void describe(Values... values) {
    (words_.push_back(static_cast<uint64_t>(values)), ...);
  }

  void add_dependencies(const pto_tensor_task& task);
  void add_predicate(Task& one, const Submit& submit);
  void add_step(Kind kind, Location at, uint32_t task = 0) {
    steps_.push_back({kind, task, at});
    describe(kind, reinterpret_cast<uintptr_t>(at.file), at.line);
  }

  // Find the tensor of which `tensor` is a part.
  Part part_of(const ChipTensor& tensor) {
    const uint32_t from = tensor.origin & ((1u << kSerialShift) - 1);
    if (tensor.origin >> kSerialShift != serial_) {
      is_usable_ = false;
      return {kCreated, 0};
    }
    const uint64_t base = from < kFirstOutput ? shapes_[from].start_offset : 0;
    return {from, tensor.start_offset - base};
  }

  void find_edges();

  // Use the edges that are known, or look them up.
  void select_edges(bool known) {
    if (known == uses_known_) return;
    uses_known_ = known;
    for (Task& one : tasks_) {
      one.task.num_dependencies = one.num_stated + (known ? one.num_found : 0);
      for (uint32_t i = 0; i < one.num_tensors; ++i) {
        uint32_t& flags = params_[one.first_param + i].is_manual;
        flags = (flags & 1) | (known ? tensors_[one.first_tensor + i].known : 0);
      }
    }
  }

  // The newest address, owner and first element of the tensor that a part belongs to.
  struct Base {
    uint64_t address;
    int64_t owner;
    uint64_t start_offset;
  };
  Base base_of(const Part& part) const {
    if (part.from < kFirstOutput) return bases_[part.from];
    const pto_tensor_data& made = tensors_[part.from - kFirstOutput].param.memory;
    return {made.buffer.addr, made.owner, 0};
  }

  void expand_task(Run& run, Task& one) {
    for (uint32_t i = 0; i < one.num_tensors; ++i) {
      place(tensors_[one.first_tensor + i]);
    }
    for (uint32_t i = 0; i < one.task.num_dependencies; ++i) {
      const uint32_t at = one.first_dependency + i;
      dependencies_[at].task = tasks_[producers_[at]].id;
    }
    if (one.has_predicate) {
      const Base base = base_of(one.operand);
      one.predicate.address =
          base.address + (base.start_offset + one.operand.offset) * one.operand_bytes;
      one.predicate.owner = base.owner;
    }
    one.id = run.calls().submit(run.runtime(), &one.task);
    for (uint32_t i = 0; i < one.num_tensors && one.id >= 0 && one.has_initial_value; ++i) {
      const Tensor& tensor = tensors_[one.first_tensor + i];
      if (!tensor.has_initial_value || run.has_failed()) continue;
      ChipTensor made;
      std::memcpy(static_cast<void*>(&made), &tensor.param.chip, sizeof made);
      made.buffer.addr = tensor.param.memory.buffer.addr;
      fill(made, tensor.initial_value);
    }
  }

  void place(Tensor& tensor) {
    pto_tensor_data& memory = tensor.param.memory;
    if (tensor.part.from == kCreated) {
      memory.buffer.addr = 0;
      memory.owner = -1;
      return;
    }
    const Base base = base_of(tensor.part);
    if (base.start_offset != tensor.base) {
      tensor.base = base.start_offset;
      tensor.param.chip.start_offset = base.start_offset + tensor.part.offset;
      tensor.is_described = false;
    }
    const bool is_known = uses_known_ && tensor.known == (PTO2_NO_LOOK_UP | PTO2_NO_ENTRY);
    if (!tensor.is_described && !is_known) {
      ChipTensor moved;
      std::memcpy(static_cast<void*>(&moved), &tensor.param.chip, sizeof moved);
      describe_memory(moved, memory);
      tensor.is_described = true;
    }
    memory.buffer.addr = base.address;
    memory.owner = base.owner;
  }

  uint32_t serial_;
  std::vector<uint64_t> form_;
  std::vector<ChipTensor> shapes_;  // the tensors of the call that was recorded
  std::vector<bool> has_moved_;     // by tensor: whether equal records had it at different places
  GraphTaskArgs body_;
  uint64_t read_ = 0;  // bit i: the body has read the value of scalar i
  uint32_t depth_ = 0;
  bool is_usable_ = true;
  bool is_confirmed_ = false;
  bool has_known_edges_ = false;
  bool uses_known_ = false;  // in the newest call
  std::vector<Base> bases_;  // of the tensors of the newest call
  std::vector<uint64_t> words_;
  std::vector<Step> steps_;
  std::vector<Task> tasks_;
  std::vector<Tensor> tensors_;
  std::vector<pto_param> params_;
  std::vector<ScalarUse> scalar_uses_;
  std::vector<pto_dependency> dependencies_;
  std::vector<uint32_t> producers_;  // the index in tasks_ for each of dependencies_
};

inline void GraphRecord::submitted(const Submit& submit) {
  const pto_tensor_task& task = submit.task;
  Task one{};
  one.task = task;
  one.id = submit.id;
  one.first_param = static_cast<uint32_t>(params_.size());
  one.first_tensor = static_cast<uint32_t>(tensors_.size());
  one.num_tensors = submit.args.num_tensors();
  one.first_dependency = static_cast<uint32_t>(dependencies_.size());
  one.num_stated = task.num_dependencies;
  add_step(kTask, {task.file, task.line}, static_cast<uint32_t>(tasks_.size()));
  describe(task.func_id, task.core_type, task.num_params, task.block_dim, task.start,
           task.is_manual, task.lanes, task.lane_func_ids[0], task.lane_func_ids[1],
           task.lane_func_ids[2], one.num_tensors, task.num_dependencies);
  const uint32_t num_tensors = submit.args.num_tensors();
  uint32_t output = 0;
  for (uint32_t i = 0; i < num_tensors; ++i) {
    Tensor tensor{};
    tensor.param = submit.tensors[i];
    tensor.is_described = true;
    const TensorCreateInfo* created = submit.args.created(i);
    if (created != nullptr) {
      tensor.part = {kCreated, 0};
      tensor.has_initial_value = created->has_initial_value();
      one.has_initial_value |= tensor.has_initial_value;
      tensor.initial_value = created->initial_value();
      const auto number = kFirstOutput + static_cast<uint32_t>(tensors_.size());
      if (number >> kSerialShift != 0) is_usable_ = false;
      submit.outputs[output++].origin = serial_ << kSerialShift | number;
    } else {
      const ChipTensor& used = submit.args.tensor(i);
      tensor.part = part_of(used);
      tensor.base = used.start_offset - tensor.part.offset;
    }
    const ChipTensor& shape = submit.args.tensor(i);
    describe(tensor.part.from, tensor.part.offset, tensor.has_initial_value, tensor.initial_value,
             task.params[i].tag, task.params[i].is_manual, shape.buffer.size, shape.version,
             shape.ndims, shape.dtype);
    for (uint32_t dim = 0; dim < shape.ndims; ++dim) {
      describe(shape.shapes[dim], shape.strides[dim]);
    }
    tensors_.push_back(tensor);
    params_.push_back(task.params[i]);
  }
  for (uint32_t i = num_tensors; i < task.num_params; ++i) {
    const GraphScalar& scalar = submit.args.scalar(i - num_tensors);
    const bool is_argument = scalar.is_of(&read_);
    if (is_argument) {
      scalar_uses_.push_back({static_cast<uint32_t>(params_.size()), scalar.index()});
    }
    describe(is_argument, is_argument ? scalar.index() : scalar.bits());
    params_.push_back(task.params[i]);
  }
  add_dependencies(task);
  if (task.predicate != nullptr) add_predicate(one, submit);
  tasks_.push_back(one);
}

inline void GraphRecord::find_edges() {
  GraphEdges edges;
  std::vector<pto_dependency> dependencies;
  std::vector<uint32_t> producers;
  std::vector<GraphEdges::Access> accesses;
  for (uint32_t number = 0; number < tasks_.size(); ++number) {
    Task& one = tasks_[number];
    accesses.clear();
    for (uint32_t i = 0; i < one.num_tensors; ++i) {
      const uint32_t index = one.first_tensor + i;
      Tensor& tensor = tensors_[index];
      const bool is_created = tensor.part.from == kCreated;
      const uint32_t from = is_created ? kFirstOutput + index : tensor.part.from;
      const bool is_output = from >= kFirstOutput;
      const pto_param& param = params_[one.first_param + i];
      accesses.push_back(
          {from, is_output, param.tag, param.is_manual != 0 || one.task.is_manual != 0,
           is_output ? 0 : begin_of(shapes_[from]),
           is_output ? ~uint64_t{0} : end_of(shapes_[from]), &tensor.param.memory, &tensor.known});
    }
    const auto stated = dependencies_.begin() + one.first_dependency;
    const auto stated_producers = producers_.begin() + one.first_dependency;
    one.first_dependency = static_cast<uint32_t>(dependencies.size());
    dependencies.insert(dependencies.end(), stated, stated + one.num_stated);
    producers.insert(producers.end(), stated_producers, stated_producers + one.num_stated);
    for (const uint32_t producer : edges.add(number, accesses)) {
      dependencies.push_back({0, PTO_DEPENDENCY_WAIT | PTO2_DEPENDENCY_FOUND, 0});
      producers.push_back(producer);
      ++one.num_found;
    }
  }
  dependencies_ = std::move(dependencies);
  producers_ = std::move(producers);
  has_known_edges_ = edges.is_valid();
}

inline void GraphRecord::add_dependencies(const pto_tensor_task& task) {
  for (uint32_t i = 0; i < task.num_dependencies; ++i) {
    uint32_t producer = static_cast<uint32_t>(tasks_.size());
    while (producer > 0 && tasks_[producer - 1].id != task.dependencies[i].task) --producer;
    if (producer == 0) is_usable_ = false;
    dependencies_.push_back(task.dependencies[i]);
    producers_.push_back(producer - 1);
    describe(producer, task.dependencies[i].kinds);
  }
}

inline void GraphRecord::add_predicate(Task& one, const Submit& submit) {
  const CoreTaskPredicate& stated = submit.args.predicate();
  const ChipTensor& tensor = stated.operand.tensor;
  one.has_predicate = true;
  one.predicate = *submit.task.predicate;
  one.operand = part_of(tensor);
  one.operand.offset +=
      tensor.compute_flat_offset(stated.operand.indices, tensor.ndims) - tensor.start_offset;
  one.operand_bytes = get_element_size(tensor.dtype);
  describe(one.operand.from, one.operand.offset, one.predicate.op, one.predicate.dtype,
           one.predicate.target);
}

// The records of a run.
class Graphs {
 public:
  static constexpr size_t kMostForms = 8;  // records of one key; calls of other forms are inline

  // Return the empty form of a call, which expand() then uses: numbers for the body and its
  // configuration.
  std::vector<uint64_t>& new_form() {
    form_.clear();
    return form_;
  }

  // Expand the record of this call and return true. Otherwise return false, and if the call is to
  // be recorded, set `record`.
  bool expand(Run& run, uint64_t key, const GraphTaskArgs& args,
              std::unique_ptr<GraphRecord>& record) {
    Key& found = find(key);
    if (found.is_inline) return false;
    GraphRecord* known = nullptr;
    for (const std::unique_ptr<GraphRecord>& one : found.records) {
      if (one->fits(form_, args)) known = one.get();
    }
    if (known != nullptr && known->is_confirmed_for(args)) {
      known->expand(run, args);
      return true;
    }
    if (known != nullptr || found.records.size() < kMostForms) {
      record = std::make_unique<GraphRecord>(serial_++ % 4095 + 1, args, form_);
    }
    return false;
  }

  void keep(Run& run, uint64_t key, const GraphTaskArgs& args,
            std::unique_ptr<GraphRecord> record) {
    Key& found = find(key);
    if (!record->is_usable()) {
      found.is_inline = true;
      return;
    }
    for (const std::unique_ptr<GraphRecord>& one : found.records) {
      if (!one->fits(record->form(), args)) continue;
      if (!one->has_equal_submits(*record)) {
        found.is_inline = true;
        return;
      }
      return one->confirm(*record);
    }
    record->connect(run.calls().knows_edges(run.runtime()) != 0);
    found.records.push_back(std::move(record));
  }

 private:
  struct Key {
    uint64_t key;
    bool is_inline = false;  // whether the body cannot be recorded
    std::vector<std::unique_ptr<GraphRecord>> records;
  };

  Key& find(uint64_t key) {
    for (Key& one : keys_) {
      if (one.key == key) return one;
    }
    keys_.push_back({key, false, {}});
    return keys_.back();
  }

  uint32_t serial_ = 0;
  std::vector<uint64_t> form_;
  std::vector<Key> keys_;
};

inline Graphs* current_graphs = nullptr;

// An object for each type; its address identifies the type.
template <class Type>
inline const char identity_of = 0;

// Other types may contain pointers, or bytes that have no value.
template <class Value>
constexpr bool is_comparable = std::is_arithmetic_v<Value> || std::is_enum_v<Value>;

template <class Value>
void append_bytes(std::vector<uint64_t>& form, const Value& value) {
  const size_t first = form.size();
  form.resize(first + (sizeof value + 7) / 8);
  std::memcpy(form.data() + first, &value, sizeof value);
}

// Lets an observer see the calls of a block.
class Observed {
 public:
  Observed(Run& run, SubmitObserver* observer) : run_(run) { run.set_observer(observer); }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;
  ~Observed() { run_.set_observer(nullptr); }

 private:
  Run& run_;
};

// A number for a body: calls without a key have the same records if their body is the same.
template <class Body>
uint64_t number_of(const Body& body) {
  if constexpr (std::is_pointer_v<Body>) return reinterpret_cast<uintptr_t>(body);
  return reinterpret_cast<uintptr_t>(&identity_of<Body>);
}

template <class Body, class... Config>
void submit_graph(const GraphKey& key, Body body, const GraphTaskArgs& args,
                  const Config&... config) {
  Run& run = *current_run;
  if (args.error() != nullptr) return run.fail(5, args.error(), key.at);
  // a graph in the body of another one belongs to the record of that one
  const bool is_nested = run.observer() != nullptr;
  if (is_nested) run.observer()->scope_begins(PTO2ScopeMode::AUTO, key.at);
  const uint32_t outer = run.begin_graph(key.at);
  std::unique_ptr<GraphRecord> record;
  bool is_expanded = false;
  if constexpr ((std::is_pointer_v<Body> || std::is_empty_v<Body>) &&
                (is_comparable<Config> && ...)) {
    std::vector<uint64_t>& form = current_graphs->new_form();
    form.push_back(number_of(body));
    (append_bytes(form, config), ...);
    is_expanded = !is_nested && current_graphs->expand(run, key.number, args, record);
  }
  if (record != nullptr) {
    {
      const Observed observed(run, record.get());
      body(record->body_args(), config...);
    }
    if (!run.has_failed()) current_graphs->keep(run, key.number, args, std::move(record));
  } else if (!is_expanded) {
    body(args, config...);
  }
  run.end_graph(outer, key.at);
}

}  // namespace pto_orchestration

#endif
