// Parameters of tasks, and the types of workers, for orchestrations.
#ifndef PTO2_TYPES_H
#define PTO2_TYPES_H

#include <cstdint>

#include "common/core_type.h"
#include "data_type.h"
#include "tensor.h"
#include "tensor_data.h"

// Types of workers. Kernels run on the first two; a submit to another type is a usage error.
enum PTO2WorkerType : int32_t {
  PTO2_WORKER_CUBE = 0,    // AIC cores
  PTO2_WORKER_VECTOR = 1,  // AIV cores
  PTO2_WORKER_AI_CPU = 2,
  PTO2_WORKER_ACCELERATOR = 3
};

#ifndef PTO2_NUM_WORKER_TYPES
#define PTO2_NUM_WORKER_TYPES 4
#endif

// How a task uses a parameter. The values are PTO_TAG_* of the native ABI.
enum class PTOParamType : uint32_t {
  INPUT = 0,
  OUTPUT = 1,
  INOUT = 2,
  OUTPUT_EXISTING = 3,
  NO_DEP = 4,
  SCALAR = 5
};

// One parameter of a task. It keeps its tensor alive, so the Tensor object from which it was made
// may be destroyed first.
struct PTOParam {
  PTOParamType type = PTOParamType::SCALAR;
  pto_orchestration::TensorHandle tensor;
  uint64_t scalar = 0;
};

// The task reads the tensor, and runs after the tasks that write it.
inline PTOParam make_input_param(const Tensor& tensor) {
  return {PTOParamType::INPUT, tensor, 0};
}

// The task overwrites the tensor. A tensor without an address gets a buffer, which lives until the
// scope of the submit has ended and the tasks that name it have completed.
inline PTOParam make_output_param(const Tensor& tensor) {
  return {PTOParamType::OUTPUT, tensor, 0};
}

// The task reads and then writes the tensor.
inline PTOParam make_inout_param(const Tensor& tensor) {
  return {PTOParamType::INOUT, tensor, 0};
}

// The task overwrites the tensor. In no hazard mode does it wait for tasks that use the same
// memory.
inline PTOParam make_output_existing_param(const Tensor& tensor) {
  return {PTOParamType::OUTPUT_EXISTING, tensor, 0};
}

// The kernel receives the tensor. It orders no tasks, and does not keep its buffer alive.
inline PTOParam make_no_dep_param(const Tensor& tensor) {
  return {PTOParamType::NO_DEP, tensor, 0};
}

inline PTOParam make_scalar_param(uint64_t value) {
  return {PTOParamType::SCALAR, {}, value};
}

#endif
