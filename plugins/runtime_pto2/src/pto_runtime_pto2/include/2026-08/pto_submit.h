// Converts tensors and submits for the runtime's table.
#ifndef PTO_SUBMIT_H
#define PTO_SUBMIT_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "pto/abi/dtype.h"
#include "pto/abi/platform.h"
#include "pto2_calls.h"
#include "pto_task_args.h"

// The tensors that a submit has allocated, in the order of its outputs. They are valid until the
// end of the scope of the submit.
class TaskOutputTensors {
 public:
  TaskOutputTensors() = default;
  TaskOutputTensors(const ChipTensor* tensors, uint32_t count, PTO2TaskId task, uint64_t scope)
      : tensors_(tensors), count_(count), task_(task), scope_(scope) {}

  const ChipTensor& get_ref(uint32_t index, const char* file = __builtin_FILE(),
                            int32_t line = __builtin_LINE()) const;
  PTO2TaskId task_id() const { return task_; }
  uint32_t size() const { return count_; }
  bool empty() const { return count_ == 0; }

 private:
  const ChipTensor* tensors_ = nullptr;
  uint32_t count_ = 0;
  PTO2TaskId task_ = PTO2TaskId::invalid();
  uint64_t scope_ = 0;  // the scope of the submit, as Run::scope()
};

enum class PTO2ScopeMode : uint8_t { AUTO = 0, MANUAL = 1 };

class CoreTaskArgsReader;

namespace pto_orchestration {

// A submit that has succeeded. `outputs` are its results, `tensors` its arguments.
struct Submit {
  const pto_tensor_task& task;
  int64_t id;
  const pto_chip_param* tensors;
  ChipTensor* outputs;
  const CoreTaskArgsReader& args;
};

// Receives the calls that the body of a graph makes.
class SubmitObserver {
 public:
  virtual void submitted(const Submit& submit) = 0;
  virtual void scope_begins(PTO2ScopeMode mode, Location at) = 0;
  virtual void scope_ends(Location at) = 0;
  // Called for calls that cannot be repeated with other arguments.
  virtual void cannot_record() = 0;

 protected:
  ~SubmitObserver() = default;
};

// The state of the run that the thread orchestrates.
class Run {
 public:
  static constexpr uint32_t kMaxDepth = 64;

  Run(const pto2_calls* calls, void* runtime) : calls_(calls), runtime_(runtime) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {
    for (Chunk* list : {chunks_, spare_}) {
      while (list != nullptr) std::free(std::exchange(list, list->next));
    }
  }

  const pto2_calls& calls() const { return *calls_; }
  void* runtime() const { return runtime_; }
  bool has_failed() const { return calls_->has_failed(runtime_) != 0; }
  bool is_manual() const { return modes_[depth_] == PTO2ScopeMode::MANUAL; }

  SubmitObserver* observer() const { return observer_; }
  void set_observer(SubmitObserver* observer) { observer_ = observer; }

  // The innermost scope: its depth, and the number of scopes that began before it.
  uint64_t scope() const { return uint64_t{depth_} << 56 | scopes_[depth_].number; }
  bool is_open(uint64_t scope) const {
    const auto depth = static_cast<uint32_t>(scope >> 56);
    return depth <= depth_ && (uint64_t{depth} << 56 | scopes_[depth].number) == scope;
  }

  void begin_scope(PTO2ScopeMode mode, Location at) {
    if (mode == PTO2ScopeMode::AUTO && is_manual()) {
      return refuse_scope("an AUTO scope is opened inside a MANUAL scope; make both MANUAL", at);
    }
    if (observer_ != nullptr) observer_->scope_begins(mode, at);
    open_scope(mode, at);
  }

  // Open a scope. Unlike others, that of a graph may be AUTO in a MANUAL scope.
  void open_scope(PTO2ScopeMode mode, Location at) {
    if (refused_ > 0 || depth_ + 1 == kMaxDepth) {
      return refuse_scope("more than 64 scopes are open, with that of the run; end scopes earlier",
                          at);
    }
    modes_[++depth_] = mode;
    scopes_[depth_] = {chunks_, chunks_ != nullptr ? chunks_->used : 0, ++begun_, at};
    calls_->scope_begin(runtime_, at.file, at.line);
  }

  void end_scope(Location at) {
    if (refused_ > 0) {
      --refused_;
      return;
    }
    if (observer_ != nullptr) observer_->scope_ends(at);
    if (depth_ == outermost_ && depth_ > 0) {
      return fail(5, "the body of a graph ends a scope that it has not begun", at);
    }
    calls_->scope_end(runtime_, at.file, at.line);  // reports an end without a begin
    if (depth_ == 0) return;
    const Scope& scope = scopes_[depth_--];
    // Chunks are kept, so that a tensor that is used after its scope is no invalid address.
    while (chunks_ != scope.chunk) {
      Chunk* ended = std::exchange(chunks_, chunks_->next);
      ended->next = std::exchange(spare_, ended);
    }
    if (chunks_ != nullptr) chunks_->used = scope.used;
  }

  // Open the scope of a graph, and return the value for end_graph(). Until then, only scopes that
  // the body of the graph has begun can be ended.
  uint32_t begin_graph(Location at) {
    open_scope(PTO2ScopeMode::AUTO, at);
    return std::exchange(outermost_, depth_);
  }
  void end_graph(uint32_t outer, Location at) {
    end("the body of a graph returned in this scope; each rt_scope_begin needs its rt_scope_end");
    while (depth_ > outermost_) end_scope(at);
    outermost_ = outer;
    end_scope(at);
  }

  // Report a scope that is open when the entry, or the body of a graph, returns.
  void end(const char* problem) {
    if (depth_ > outermost_ && !has_failed()) fail(5, problem, scopes_[depth_].at);
  }

  // Return space for `count` tensors that lives until the end of the scope; null if memory is
  // exhausted.
  ChipTensor* allocate(uint32_t count) {
    if (chunks_ == nullptr || kChunkTensors - chunks_->used < count) {
      void* memory = spare_ != nullptr ? std::exchange(spare_, spare_->next)
                                       : std::aligned_alloc(alignof(Chunk), sizeof(Chunk));
      if (memory == nullptr) return nullptr;
      auto* chunk = static_cast<Chunk*>(memory);
      chunk->next = chunks_;
      chunk->used = 0;
      chunks_ = chunk;
    }
    ChipTensor* tensors = chunks_->tensors + chunks_->used;
    chunks_->used += count;
    return tensors;
  }

  void fail(int32_t code, const char* what, Location at) {
    calls_->fail_with_code(runtime_, code, what, at.file, at.line);
  }

 private:
  // The end of a refused scope must not end another scope.
  void refuse_scope(const char* problem, Location at) {
    if (refused_++ == 0) fail(5, problem, at);
  }

  static constexpr uint32_t kChunkTensors = 255;

  struct Chunk {
    Chunk* next;
    uint32_t used;
    ChipTensor tensors[kChunkTensors];
  };
  struct Scope {
    Chunk* chunk;  // the newest one at the begin of the scope
    uint32_t used;
    uint64_t number;  // of scopes that have begun
    Location at;
  };

  const pto2_calls* calls_;
  void* runtime_;
  uint32_t depth_ = 0;
  uint32_t outermost_ = 0;  // the depth at which the entry, or the body of a graph, was called
  PTO2ScopeMode modes_[kMaxDepth] = {};
  Scope scopes_[kMaxDepth] = {};
  uint32_t refused_ = 0;  // scopes that are open in the program, but have not begun
  uint64_t begun_ = 0;
  Chunk* chunks_ = nullptr;  // the tensors of open scopes
  Chunk* spare_ = nullptr;
  SubmitObserver* observer_ = nullptr;  // while the body of a graph is recorded
};

// The run of this library. A device has its own copy of the library, and one run at a time.
inline Run* current_run = nullptr;

// --- Tensors in the form of the runtime ---------------------------------------------------------

// The code of the native ABI for each DataType. FP8E8M0 and FP4E2M1 count as bytes.
constexpr uint8_t kNativeTypes[] = {PTO_DTYPE_FLOAT32,       PTO_DTYPE_FLOAT16, PTO_DTYPE_INT32,
                                    PTO_DTYPE_INT16,         PTO_DTYPE_INT8,    PTO_DTYPE_UINT8,
                                    PTO_DTYPE_BFLOAT16,      PTO_DTYPE_INT64,   PTO_DTYPE_UINT64,
                                    PTO_DTYPE_UINT16,        PTO_DTYPE_UINT32,  PTO_DTYPE_BOOL,
                                    PTO_DTYPE_FLOAT8_E4M3FN, PTO_DTYPE_UINT8,   PTO_DTYPE_UINT8};

inline int64_t native_id(PTO2TaskId id) {
  if (id.ring() > 3) return -1;  // also the invalid id
  return static_cast<int64_t>(uint64_t{id.local()} << 2 | id.ring());
}

inline PTO2TaskId published_id(int64_t id) {
  if (id < 0) return PTO2TaskId::invalid();
  return {static_cast<uint64_t>(id & 3) << 32 | static_cast<uint32_t>(id >> 2)};
}

// Describe the memory of a tensor as one range.
inline void describe_range(const ChipTensor& tensor, uint64_t elements, pto_tensor_data& memory) {
  memory.ndims = 1;
  memory.raw_shapes[0] = elements;
  memory.offsets[0] = tensor.start_offset;
  memory.shapes[0] = tensor.extent_elem_cache;
  memory.order[0] = 0;
}

// Describe the memory of a tensor as a part of its buffer. A view of a buffer with rows has one
// stride that is the product of the inner extents, and so on; the strides thus determine the shape
// of the buffer. If they do not, the description is a range of the buffer.
inline void describe_memory(const ChipTensor& tensor, pto_tensor_data& memory) {
  memory.buffer = {tensor.buffer.addr, tensor.buffer.size};
  memory.start_offset = tensor.start_offset;
  memory.dtype = kNativeTypes[static_cast<uint8_t>(tensor.dtype)];
  memory.version = tensor.version;
  memory.is_pipe = memory.dropped = memory.tag = 0;
  std::memset(memory.reserved, 0, sizeof memory.reserved);
  memory.owner = native_id(tensor.owner_task_id);
  // the sizes of elements are powers of 2
  const uint64_t elements = tensor.buffer.size >> __builtin_ctzll(get_element_size(tensor.dtype));
  const uint32_t ndims = tensor.ndims;
  if (ndims == 1 && tensor.strides[0] == 1) return describe_range(tensor, elements, memory);
  uint32_t by_stride[MAX_TENSOR_DIMS];  // the dimensions, the largest stride first
  for (uint32_t i = 0; i < ndims; ++i) {
    uint32_t place = i;
    for (; place > 0 && tensor.strides[by_stride[place - 1]] < tensor.strides[i]; --place) {
      by_stride[place] = by_stride[place - 1];
    }
    by_stride[place] = i;
  }
  memory.ndims = ndims;
  uint64_t rest = tensor.start_offset;
  uint64_t outer = elements;  // the number of elements in one step of the next larger dimension
  for (uint32_t place = 0; place < ndims; ++place) {
    const uint32_t dim = by_stride[place];
    const uint32_t stride = tensor.strides[dim];
    const uint64_t extent = stride == 1 ? outer : outer / stride;
    const uint64_t offset = stride == 1 ? rest : rest / stride;
    const bool is_exact = place == 0 || outer == extent * stride;
    if (!is_exact || offset + tensor.shapes[dim] > extent) {
      return describe_range(tensor, elements, memory);
    }
    memory.order[dim] = static_cast<uint8_t>(place);
    memory.raw_shapes[dim] = extent;
    memory.offsets[dim] = offset;
    memory.shapes[dim] = tensor.shapes[dim];
    rest -= offset * stride;
    outer = stride;
  }
  if (outer != 1 || rest != 0) describe_range(tensor, elements, memory);
}

inline void fill(const ChipTensor& tensor, uint64_t value) {
  const uint64_t bytes = get_element_size(tensor.dtype);
  char* at = reinterpret_cast<char*>(static_cast<uintptr_t>(tensor.buffer.addr));
  for (uint64_t i = 0; i < tensor.numel(); ++i) std::memcpy(at + i * bytes, &value, bytes);
}

}  // namespace pto_orchestration

// --- Submits ------------------------------------------------------------------------------------

// The kernels of a task that runs on several cores of one cluster at the same time; -1: none.
struct MixedKernels {
  int32_t aic_kernel_id = -1;
  int32_t aiv0_kernel_id = -1;
  int32_t aiv1_kernel_id = -1;
};

// Reads the arguments of a submit.
class CoreTaskArgsReader {
 public:
  using Location = pto_orchestration::Location;

  CoreTaskArgsReader(pto_orchestration::Run& run, const CoreTaskArgs& args)
      : run_(run), args_(args) {}

  // Submit a task. `core_type` is -1 for a task that runs no kernel or, with `kernels`, several.
  TaskOutputTensors submit(int32_t func_id, int32_t core_type, Location at,
                           const MixedKernels& kernels = {}) {
    if (args_.error_ != nullptr) {
      run_.fail(5, args_.error_, at);
      return {};
    }
    ChipTensor* outputs = nullptr;
    const uint32_t count = count_outputs();
    if (count > 0 && (outputs = run_.allocate(count)) == nullptr) {
      run_.fail(5, "no memory for the outputs of a task", at);
      return {};
    }
    pto_chip_param tensors[CoreTaskArgs::kMaxTensors];
    pto_param params[CoreTaskArgs::kMaxTensors + CoreTaskArgs::kMaxScalars];
    for (uint32_t i = 0; i < args_.num_tensors_; ++i) {
      describe(args_.entries_[i], tensors[i], params[i]);
    }
    for (uint32_t i = 0; i < args_.num_scalars_; ++i) {
      pto_param& param = params[args_.num_tensors_ + i];
      param.tag = PTO_TAG_SCALAR;
      param.is_manual = 0;
      param.value.scalar = args_.scalars_[i].bits();
    }
    const bool has_predicate = args_.predicate_.op != PredicateOp::NONE;
    pto_predicate predicate{};
    if (has_predicate && !describe_predicate(predicate, at)) return failed_outputs(outputs, count);
    pto_dependency few[kFewDependencies];
    pto_dependency* dependencies = few;
    if (args_.num_dependencies_ > kFewDependencies) {
      dependencies = static_cast<pto_dependency*>(
          std::malloc(args_.num_dependencies_ * sizeof(pto_dependency)));
      if (dependencies == nullptr) {
        run_.fail(5, "no memory for the dependencies of a task", at);
        return {};
      }
    }
    describe_dependencies(dependencies);
    const int16_t blocks = args_.launch_spec.block_num();
    pto_tensor_task task{};
    task.func_id = func_id;
    task.core_type = core_type;
    task.num_params = args_.num_tensors_ + args_.num_scalars_;
    task.block_dim = blocks == 1 ? 0 : static_cast<uint32_t>(blocks);
    task.params = params;
    task.file = at.file;
    task.line = at.line;
    task.api = PTO_API_2026_08;
    const int32_t lanes[PTO_LANES] = {kernels.aic_kernel_id, kernels.aiv0_kernel_id,
                                      kernels.aiv1_kernel_id};
    for (uint32_t lane = 0; lane < PTO_LANES; ++lane) {
      task.lane_func_ids[lane] = lanes[lane];
      if (lanes[lane] >= 0) task.lanes |= static_cast<uint8_t>(1u << lane);
    }
    if (core_type < 0 && task.lanes == 0) {
      task.start = PTO_START_NEVER;
    } else if (args_.launch_spec.require_sync_start()) {
      task.start = PTO_START_TOGETHER;
    }
    if (has_predicate) task.predicate = &predicate;
    task.is_manual = run_.is_manual();
    task.dependencies = dependencies;
    task.num_dependencies = args_.num_dependencies_;
    const bool is_valid = check_blocks(task, at);
    const int64_t id = is_valid ? run_.calls().submit(run_.runtime(), &task) : -1;
    if (dependencies != few) std::free(dependencies);
    if (id < 0) return failed_outputs(outputs, count);
    take_outputs(tensors, outputs);
    if (run_.observer() != nullptr) run_.observer()->submitted({task, id, tensors, outputs, *this});
    if (args_.dumped_ != 0) {
      if (run_.observer() != nullptr) run_.observer()->cannot_record();
      log_dumped(id, outputs);
    }
    return {outputs, count, pto_orchestration::published_id(id), run_.scope()};
  }

  // For an observer. created(i) is null if tensor i is not an output that the submit allocates.
  uint32_t num_tensors() const { return args_.num_tensors_; }
  const TensorCreateInfo* created(uint32_t i) const {
    const CoreTaskArgs::Entry& entry = args_.entries_[i];
    return entry.is_created ? static_cast<const TensorCreateInfo*>(entry.object) : nullptr;
  }
  const ChipTensor& tensor(uint32_t i) const { return tensor_of(args_.entries_[i]); }
  const GraphScalar& scalar(uint32_t i) const { return args_.scalars_[i]; }
  const CoreTaskPredicate& predicate() const { return args_.predicate_; }

 private:
  static constexpr uint32_t kFewDependencies = 16;

  uint32_t count_outputs() const {
    uint32_t count = 0;
    for (uint32_t i = 0; i < args_.num_tensors_; ++i) count += args_.entries_[i].is_created;
    return count;
  }

  bool check_blocks(const pto_tensor_task& task, Location at) {
    const int32_t blocks = args_.launch_spec.block_num();
    if (blocks <= 0) {
      run_.fail(5, "set_block_num() needs 1 or more blocks", at);
      return false;
    }
    if (task.start != PTO_START_TOGETHER) return true;
    const int32_t type = task.lanes != 0 ? PTO_CORE_AIC : task.core_type;
    const int32_t most = run_.calls().core_count(run_.runtime(), type);
    if (blocks <= most) return true;
    const char* unit = task.lanes != 0        ? "clusters"
                       : type == PTO_CORE_AIC ? "AIC cores"
                                              : "AIV cores";
    char text[160];
    std::snprintf(text, sizeof text,
                  "%d blocks must start at the same time, but the run has %d %s; use fewer blocks, "
                  "or a larger block_dim",
                  blocks, most, unit);
    run_.fail(7, text, at);
    return false;
  }

  static const ChipTensor& tensor_of(const CoreTaskArgs::Entry& entry) {
    return entry.is_created ? static_cast<const TensorCreateInfo*>(entry.object)->tensor()
                            : *static_cast<const ChipTensor*>(entry.object);
  }

  static void describe(const CoreTaskArgs::Entry& entry, pto_chip_param& tensor, pto_param& param) {
    const ChipTensor& source = tensor_of(entry);
    static_assert(sizeof(ChipTensor) == sizeof tensor.chip, "ChipTensor");
    std::memcpy(&tensor.chip, &source, sizeof source);
    pto_orchestration::describe_memory(source, tensor.memory);
    param.tag = entry.tag;
    param.is_manual = source.manual_dep;
    param.value.tensor = &tensor.memory;
  }

  bool describe_predicate(pto_predicate& out, Location at) {
    const CoreTaskPredicate& predicate = args_.predicate_;
    const ChipTensor& tensor = predicate.operand.tensor;
    const DataType dtype = tensor.dtype;
    const bool is_signed = dtype == DataType::INT8 || dtype == DataType::INT16 ||
                           dtype == DataType::INT32 || dtype == DataType::INT64;
    bool is_inside = predicate.operand.ndims == tensor.ndims && tensor.buffer.addr != 0;
    for (uint32_t i = 0; i < tensor.ndims && is_inside; ++i) {
      is_inside = predicate.operand.indices[i] < tensor.shapes[i];
    }
    if (!is_signed || !is_inside) {
      run_.fail(5,
                "the operand of a predicate must be one signed integer element of a tensor with "
                "memory",
                at);
      return false;
    }
    const uint64_t offset =
        tensor.compute_flat_offset(predicate.operand.indices, predicate.operand.ndims);
    out.address = tensor.buffer.addr + offset * get_element_size(dtype);
    out.owner = pto_orchestration::native_id(tensor.owner_task_id);
    out.target = predicate.target;
    out.op = static_cast<uint8_t>(predicate.op);
    out.dtype = pto_orchestration::kNativeTypes[static_cast<uint8_t>(dtype)];
    return true;
  }

  void describe_dependencies(pto_dependency* out) const {
    for (uint32_t i = 0; i < args_.num_dependencies_; ++i) {
      const uint32_t kinds = args_.kinds_ != nullptr ? args_.kinds_[i] : uint32_t{DEP_DEFAULT};
      out[i] = {pto_orchestration::native_id(args_.dependencies_[i]), kinds, 0};
    }
  }

  // After a failed submit, the outputs have no memory. Their tensors still have shapes, so that the
  // orchestration may continue to its end.
  TaskOutputTensors failed_outputs(ChipTensor* outputs, uint32_t count) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < args_.num_tensors_; ++i) {
      if (args_.entries_[i].is_created) outputs[next++] = tensor_of(args_.entries_[i]);
    }
    return {outputs, count, PTO2TaskId::invalid(), run_.scope()};
  }

  // Copy the allocated tensors, and fill those that have an initial value. The newest task starts
  // at the earliest with the next call, so the memory is not in use yet.
  void take_outputs(const pto_chip_param* tensors, ChipTensor* outputs) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < args_.num_tensors_; ++i) {
      const CoreTaskArgs::Entry& entry = args_.entries_[i];
      if (!entry.is_created) continue;
      const auto& created = *static_cast<const TensorCreateInfo*>(entry.object);
      ChipTensor& output = outputs[next++];
      output = created.tensor();
      output.buffer.addr = tensors[i].memory.buffer.addr;
      output.owner_task_id = pto_orchestration::published_id(tensors[i].memory.owner);
      // after a proven deadlock, the addresses are only planned
      if (created.has_initial_value() && !run_.has_failed()) {
        pto_orchestration::fill(output, created.initial_value());
      }
    }
  }

  void log_dumped(int64_t id, const ChipTensor* outputs) const {
    for (uint32_t i = 0; i < args_.num_tensors_; ++i) {
      const CoreTaskArgs::Entry& entry = args_.entries_[i];
      const ChipTensor& tensor = entry.is_created ? *outputs++ : tensor_of(entry);
      if ((args_.dumped_ >> i & 1) == 0) continue;
      const PTO2TaskId task = pto_orchestration::published_id(id);
      const std::string text = "argument " + std::to_string(i) + " of task " +
                               std::to_string(task.local()) + " of ring " +
                               std::to_string(task.ring()) + ": " + tensor.dump();
      run_.calls().log(run_.runtime(), PTO_LOG_INFO, "dump", text.c_str());
    }
  }

  pto_orchestration::Run& run_;
  const CoreTaskArgs& args_;
};

inline const ChipTensor& TaskOutputTensors::get_ref(uint32_t index, const char* file,
                                                    int32_t line) const {
  const bool is_open = pto_orchestration::current_run->is_open(scope_);
  if (index < count_ && is_open) return tensors_[index];
  pto_orchestration::report({file, line},
                            is_open ? "get_ref(%u) of a task with %u outputs; they count from 0"
                                    : "get_ref(%u) of a task with %u outputs whose scope has "
                                      "ended; use the outputs in the scope of their submit",
                            index, count_);
  return pto_orchestration::no_tensor();
}

inline bool ChipTaskArgs::assign(const pto_tensor* arguments, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    const pto_tensor& argument = arguments[i];
    if (argument.use == PTO_TAG_SCALAR + 1) {
      if (num_scalars_ == kMaxScalars) return false;
      scalars_[num_scalars_++] = argument.data;
      continue;
    }
    if (num_tensors_ == kMaxTensors) return false;
    // a number counts as a tensor of one element
    const uint32_t one = 1;
    const bool has_shape = argument.ndims > 0;
    DataType dtype = DataType::UINT8;
    for (uint8_t code = 0; code < sizeof pto_orchestration::kNativeTypes; ++code) {
      if (pto_orchestration::kNativeTypes[code] != argument.dtype) continue;
      dtype = static_cast<DataType>(code);
      break;
    }
    ChipTensor& tensor = tensors_[num_tensors_++];
    tensor = pto_orchestration::plain_tensor(has_shape ? argument.shapes : &one,
                                             has_shape ? argument.ndims : 1, dtype, false, {"", 0});
    tensor.buffer.addr = argument.data;
  }
  return true;
}

#endif
