// The arguments of tasks: CoreTaskArgs for a submit, ChipTaskArgs for the orchestration itself.
//
// CoreTaskArgs keeps pointers to the tensors that are added, so they must live until the submit; a
// temporary object does not compile. A mistake is reported at the submit, with its line.
#ifndef PTO_TASK_ARGS_H
#define PTO_TASK_ARGS_H

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "pto/abi/tensor.h"
#include "tensor.h"

// A tensor that a submit allocates.
class TensorCreateInfo {
 public:
  TensorCreateInfo(const uint32_t shapes[], uint32_t ndims, DataType dtype = DataType::FLOAT32,
                   bool manual_dep = false, const char* file = __builtin_FILE(),
                   int32_t line = __builtin_LINE())
      : tensor_(pto_orchestration::plain_tensor(shapes, ndims, dtype, manual_dep, {file, line})) {}

  // Fill the memory with this value, before the task runs. The value has the size of an element.
  template <class Value>
  void set_initial_value(Value value) {
    static_assert(sizeof value <= sizeof initial_value_, "the value of one element");
    std::memcpy(&initial_value_, &value, sizeof value);
    has_initial_value_ = true;
  }

  // The description without an address.
  const ChipTensor& tensor() const { return tensor_; }
  bool has_initial_value() const { return has_initial_value_; }
  uint64_t initial_value() const { return initial_value_; }

 private:
  ChipTensor tensor_;
  uint64_t initial_value_ = 0;
  bool has_initial_value_ = false;
};

enum DepFlags : uint32_t {
  DEP_NONE = 0,
  DEP_WAIT = PTO_DEPENDENCY_WAIT,      // start after the task has completed
  DEP_RETAIN = PTO_DEPENDENCY_RETAIN,  // keep its outputs until this task has completed
  DEP_DEFAULT = DEP_WAIT | DEP_RETAIN
};

// How a task is launched.
class LaunchSpec {
 public:
  // Run the kernel this many times, each time with another get_block_idx().
  void set_block_num(int16_t blocks) { block_num_ = blocks; }
  void set_core_num(int16_t blocks) { block_num_ = blocks; }  // the name on a5
  // Start all blocks at the same time.
  void set_require_sync_start(bool required) { sync_start_ = required; }
  int16_t block_num() const { return block_num_; }
  bool require_sync_start() const { return sync_start_; }

 private:
  int16_t block_num_ = 1;
  bool sync_start_ = false;
};

enum class PredicateOp : uint8_t {
  NONE = 0,
  EQ = PTO_PREDICATE_EQ,
  NE = PTO_PREDICATE_NE,
  GT = PTO_PREDICATE_GT,
  LT = PTO_PREDICATE_LT,
  GE = PTO_PREDICATE_GE,
  LE = PTO_PREDICATE_LE
};

// A condition of a task: `element op target`, for one signed integer element of a tensor. It is
// tested when the task could start. If it is false, the task completes without running.
struct CoreTaskPredicate {
  struct Operand {
    ChipTensor tensor;
    uint32_t ndims;
    uint32_t indices[MAX_TENSOR_DIMS];
  };
  Operand operand{};
  PredicateOp op = PredicateOp::NONE;
  int64_t target = 0;
};

// The 64 bits of a scalar. While a graph is recorded, a scalar of its arguments notes whether its
// value is read.
class GraphScalar {
 public:
  GraphScalar() = default;
  explicit GraphScalar(uint64_t bits, uint64_t* read = nullptr, uint32_t index = 0)
      : bits_(bits), read_(read), index_(index) {}
  // Not trivial, so that a call such as printf() with a GraphScalar does not compile.
  GraphScalar(const GraphScalar& other)
      : bits_(other.bits_), read_(other.read_), index_(other.index_) {}
  GraphScalar& operator=(const GraphScalar&) = default;

  operator uint64_t() const {  // NOLINT: as published, a scalar is a number
    if (read_ != nullptr) *read_ |= uint64_t{1} << index_;
    return bits_;
  }
  uint64_t bits() const { return bits_; }
  bool is_of(const uint64_t* read) const { return read_ == read; }
  uint32_t index() const { return index_; }

 private:
  uint64_t bits_;
  uint64_t* read_;  // bit i: the value of scalar i was read; null: not a scalar of a graph
  uint32_t index_;
};

namespace pto_orchestration {

template <class Value>
GraphScalar graph_scalar(const Value& value) {
  if constexpr (std::is_same_v<Value, GraphScalar>) {
    return value;
  } else {
    static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) <= sizeof(uint64_t),
                  "a scalar has at most 8 bytes");
    uint64_t bits = 0;
    if constexpr (std::is_enum_v<Value> || std::is_integral_v<Value>) {
      bits = static_cast<uint64_t>(value);
    } else {
      std::memcpy(&bits, &value, sizeof value);
    }
    return GraphScalar(bits);
  }
}

}  // namespace pto_orchestration

class CoreTaskArgs {
 public:
  static constexpr uint32_t kMaxTensors = 32;
  static constexpr uint32_t kMaxScalars = 16;

  CoreTaskArgs() = default;
  CoreTaskArgs(const CoreTaskArgs&) = delete;
  CoreTaskArgs& operator=(const CoreTaskArgs&) = delete;

  // The task reads these tensors.
  template <class... Tensors>
  void add_input(Tensors&&... tensors) {
    (add_tensor<Tensors>(PTO_TAG_INPUT, tensors), ...);
  }
  // The task reads and writes these tensors.
  template <class... Tensors>
  void add_inout(Tensors&&... tensors) {
    (add_tensor<Tensors>(PTO_TAG_INOUT, tensors), ...);
  }
  // The kernel receives these tensors. The task only waits for the task that allocated the memory.
  template <class... Tensors>
  void add_no_dep(Tensors&&... tensors) {
    (add_tensor<Tensors>(PTO_TAG_NO_DEP, tensors), ...);
  }
  // A TensorCreateInfo: the submit allocates the tensor, and get_ref() returns it. A tensor: the
  // task overwrites it.
  template <class... Outputs>
  void add_output(Outputs&&... outputs) {
    (add_one_output<Outputs>(outputs), ...);
  }

  template <class... Values>
  void add_scalar(const Values&... values) {
    (add_one_scalar(pto_orchestration::graph_scalar(values)), ...);
  }
  void add_scalars(const uint64_t* values, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) add_scalar(values[i]);
  }
  void add_scalars_i32(const int32_t* values, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) add_scalar(static_cast<uint32_t>(values[i]));
  }
  void copy_scalars_from(const CoreTaskArgs& other, uint32_t from, uint32_t count) {
    if (uint64_t{from} + count > other.num_scalars_) {
      return misuse("copy_scalars_from() names scalars that do not exist");
    }
    for (uint32_t i = 0; i < count; ++i) add_one_scalar(other.scalars_[from + i]);
  }

  // Start after these tasks have completed, and keep their outputs. Call it once; 0 ids remove the
  // dependencies. The array must live until the submit.
  void set_dependencies(const PTO2TaskId* ids, uint32_t count) {
    set_dependencies_with_kinds(ids, nullptr, count);
  }
  void set_dependencies_with_kinds(const PTO2TaskId* ids, const DepFlags* kinds, uint32_t count) {
    if (count != 0 && num_dependencies_ != 0) return misuse("set_dependencies() was called twice");
    if (count != 0 && ids == nullptr) return misuse("set_dependencies() got a null pointer");
    dependencies_ = ids;
    kinds_ = kinds;
    num_dependencies_ = count;
  }

  // Run the task only if the condition is true. The task does not wait for the tasks that write the
  // operand, unless it depends on them.
  void set_predicate(const CoreTaskPredicate& predicate) { predicate_ = predicate; }

  // A hint of the published runtime, which has no effect here.
  void set_allow_early_resolve(bool = true) {}
  // A slot for measurements of the published runtime, which has no effect here: each task is timed.
  void set_task_timing_slot(int32_t) {}
  // Log these arguments with the submit: a line for each that was added before.
  template <class... Arguments>
  void dump(const Arguments&... arguments) {
    for (const void* object : {static_cast<const void*>(&arguments)...}) {
      for (uint32_t i = 0; i < num_tensors_; ++i) {
        dumped_ |= uint32_t{entries_[i].object == object} << i;
      }
    }
  }

  // Remove all arguments and settings.
  void reset() {
    num_tensors_ = num_scalars_ = num_dependencies_ = dumped_ = 0;
    launch_spec = {};
    predicate_ = {};
    error_ = nullptr;
  }

  LaunchSpec launch_spec;

 protected:
  void misuse(const char* what) {
    if (error_ == nullptr) error_ = what;
  }

 private:
  friend class CoreTaskArgsReader;

  struct Entry {
    uint32_t tag;
    bool is_created;     // whether object is a TensorCreateInfo
    const void* object;  // else a ChipTensor
  };

  template <class Argument>
  void add_tensor(uint32_t tag, const ChipTensor& tensor) {
    static_assert(std::is_lvalue_reference_v<Argument>,
                  "the tensor must live until the submit: give it a name");
    add_entry({tag, false, &tensor});
  }
  template <class Argument>
  void add_one_output(const ChipTensor& tensor) {
    add_tensor<Argument>(PTO_TAG_OUTPUT_EXISTING, tensor);
  }
  template <class Argument>
  void add_one_output(const TensorCreateInfo& created) {
    static_assert(std::is_lvalue_reference_v<Argument>,
                  "the TensorCreateInfo must live until the submit: give it a name");
    add_entry({PTO_TAG_OUTPUT, true, &created});
  }

  void add_entry(const Entry& entry) {
    if (num_scalars_ != 0) {
      return misuse("a tensor was added after a scalar; add all tensors first");
    }
    if (num_tensors_ == kMaxTensors) return misuse("more than 32 tensors were added");
    entries_[num_tensors_++] = entry;
  }
  void add_one_scalar(const GraphScalar& scalar) {
    if (num_scalars_ == kMaxScalars) return misuse("more than 16 scalars were added");
    scalars_[num_scalars_++] = scalar;
  }

  Entry entries_[kMaxTensors];
  GraphScalar scalars_[kMaxScalars];
  uint32_t num_tensors_ = 0;
  uint32_t num_scalars_ = 0;
  uint32_t num_dependencies_ = 0;
  uint32_t dumped_ = 0;  // bit i: tensor i is logged
  const PTO2TaskId* dependencies_ = nullptr;
  const DepFlags* kinds_ = nullptr;  // null: DEP_DEFAULT for each
  CoreTaskPredicate predicate_;
  const char* error_ = nullptr;  // the first mistake
};

// CoreTaskArgs with space for N explicit dependencies.
template <uint32_t N = 16>
class CoreTaskArgsWithDeps : public CoreTaskArgs {
 public:
  // Start after these tasks have completed, and keep their outputs.
  template <class... Ids>
  void add_dep(Ids... ids) {
    (add_one(ids, DEP_DEFAULT), ...);
  }
  // Start after these tasks have completed.
  template <class... Ids>
  void add_dep_wait(Ids... ids) {
    (add_one(ids, DEP_WAIT), ...);
  }
  void reset() {
    CoreTaskArgs::reset();
    count_ = 0;
  }

  void set_dependencies(const PTO2TaskId*, uint32_t) = delete;
  void set_predicate(const CoreTaskPredicate&) = delete;
  void dump() = delete;

 private:
  void add_one(PTO2TaskId id, DepFlags kind) {
    static_assert(N > 0, "CoreTaskArgsWithDeps needs space");
    if (count_ == N) return misuse("more dependencies than the N of CoreTaskArgsWithDeps<N>");
    ids_[count_] = id;
    flags_[count_++] = kind;
    CoreTaskArgs::set_dependencies_with_kinds(nullptr, nullptr, 0);
    CoreTaskArgs::set_dependencies_with_kinds(ids_, flags_, count_);
  }

  PTO2TaskId ids_[N];
  DepFlags flags_[N];
  uint32_t count_ = 0;
};

using L0TaskArgs = CoreTaskArgs;  // the names of June 2026
template <uint32_t N = 16>
using L0TaskArgsWithDeps = CoreTaskArgsWithDeps<N>;

// The arguments of an orchestration: its tensors and scalars, each counted from 0.
class ChipTaskArgs {
 public:
  static constexpr int32_t kMaxTensors = 256;
  static constexpr int32_t kMaxScalars = 128;

  class TensorRef {
   public:
    explicit TensorRef(const ChipTensor& tensor) : tensor_(tensor) {}
    const ChipTensor& ref() const { return tensor_; }

   private:
    const ChipTensor& tensor_;
  };

  ChipTaskArgs() = default;
  ChipTaskArgs(const ChipTaskArgs&) = delete;
  ChipTaskArgs& operator=(const ChipTaskArgs&) = delete;

  TensorRef tensor(int32_t index, const char* file = __builtin_FILE(),
                   int32_t line = __builtin_LINE()) const {
    if (index >= 0 && index < num_tensors_) return TensorRef(tensors_[index]);
    pto_orchestration::report({file, line},
                              "tensor(%d) of an orchestration with %d tensors; they count from 0",
                              index, num_tensors_);
    return TensorRef(pto_orchestration::no_tensor());
  }
  uint64_t scalar(int32_t index, const char* file = __builtin_FILE(),
                  int32_t line = __builtin_LINE()) const {
    if (index >= 0 && index < num_scalars_) return scalars_[index];
    pto_orchestration::report({file, line},
                              "scalar(%d) of an orchestration with %d scalars; they count from 0",
                              index, num_scalars_);
    return 0;
  }
  int32_t tensor_count() const { return num_tensors_; }
  int32_t scalar_count() const { return num_scalars_; }

  // Called by the wrapper of the entry. Return false if there are too many arguments.
  bool assign(const pto_tensor* arguments, int32_t count);

 private:
  int32_t num_tensors_ = 0;
  int32_t num_scalars_ = 0;
  ChipTensor tensors_[kMaxTensors];
  uint64_t scalars_[kMaxScalars];
};

using L2TaskArgs = ChipTaskArgs;  // the name of June 2026

// Convert the 64 bits of a scalar.
template <class Value>
Value from_u64(uint64_t bits) {
  static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) <= sizeof bits,
                "a scalar has at most 8 bytes");
  if constexpr (std::is_integral_v<Value>) {
    return static_cast<Value>(bits);
  } else {
    Value value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
}

#endif
