// Converts the parameters of a submit for the runtime's table. Nothing here allocates memory.
#ifndef PTO2_SUBMIT_H
#define PTO2_SUBMIT_H

#include <cstdint>

#include "pto2_calls.h"
#include "pto_types.h"
#include "tensor_node.h"

struct PTO2Runtime;

// The published calls as function pointers. Errors of calls through these pointers have no line
// number.
struct PTO2RuntimeOps {
  void (*submit_task)(PTO2Runtime* rt, int32_t kernel_id, PTO2WorkerType worker, PTOParam* params,
                      int32_t n);
  void (*scope_begin)(PTO2Runtime* rt);
  void (*scope_end)(PTO2Runtime* rt);
  void (*orchestration_done)(PTO2Runtime* rt);
  void (*init_tensor_pool)(PTO2Runtime* rt);
  void (*log_error)(PTO2Runtime* rt, const char* function, const char* format, ...);
  void (*log_warn)(PTO2Runtime* rt, const char* function, const char* format, ...);
  void (*log_info)(PTO2Runtime* rt, const char* function, const char* format, ...);
  void (*log_debug)(PTO2Runtime* rt, const char* function, const char* format, ...);
  void (*log_always)(PTO2Runtime* rt, const char* function, const char* format, ...);
};

namespace pto_orchestration {
const PTO2RuntimeOps* runtime_ops();  // defined in pto_orchestration_api.h
}

// The type of the entry's argument. The wrapper of the entry creates the object.
struct PTO2Runtime {
  const pto2_calls* calls;
  void* instance;
  const PTO2RuntimeOps* ops = pto_orchestration::runtime_ops();
};

namespace pto_orchestration {

static_assert(sizeof(TensorData) == sizeof(pto_tensor_data), "pto_tensor_data");
static_assert(offsetof(TensorData, shapes) == offsetof(pto_tensor_data, shapes), "shapes");
static_assert(offsetof(TensorData, offsets) == offsetof(pto_tensor_data, offsets), "offsets");
static_assert(offsetof(TensorData, start_offset) == offsetof(pto_tensor_data, start_offset),
              "start_offset");
static_assert(offsetof(TensorData, ndims) == offsetof(pto_tensor_data, ndims), "ndims");
static_assert(offsetof(TensorData, dtype) == offsetof(pto_tensor_data, dtype), "dtype");
static_assert(offsetof(TensorData, version) == offsetof(pto_tensor_data, version), "version");
static_assert(offsetof(TensorData, order) == offsetof(pto_tensor_data, order), "order");
static_assert(offsetof(TensorData, is_pipe) == offsetof(pto_tensor_data, is_pipe), "is_pipe");
static_assert(offsetof(TensorData, dropped) == offsetof(pto_tensor_data, dropped), "dropped");
static_assert(offsetof(TensorData, tag) == offsetof(pto_tensor_data, tag), "tag");
static_assert(offsetof(TensorData, owner) == offsetof(pto_tensor_data, owner), "owner");
static_assert(static_cast<uint32_t>(PTOParamType::OUTPUT) == PTO_TAG_OUTPUT &&
                  static_cast<uint32_t>(PTOParamType::INOUT) == PTO_TAG_INOUT &&
                  static_cast<uint32_t>(PTOParamType::OUTPUT_EXISTING) == PTO_TAG_OUTPUT_EXISTING &&
                  static_cast<uint32_t>(PTOParamType::NO_DEP) == PTO_TAG_NO_DEP &&
                  static_cast<uint32_t>(PTOParamType::SCALAR) == PTO_TAG_SCALAR,
              "tags");

constexpr int32_t kMaxParams = PTO_MAX_TASK_TENSORS + PTO_MAX_TASK_SCALARS;

struct Location {
  const char* file;
  int32_t line;
};

template <class... Values>
__attribute__((cold, noinline)) int64_t refuse(PTO2Runtime* rt, Location at, const char* format,
                                               Values... values) {
  char text[512];
  std::snprintf(text, sizeof text, format, values...);
  rt->calls->fail(rt->instance, text, at.file, at.line);
  return -1;
}

// Return whether the submit may allocate the buffer of output `index`, which is a view. It may not
// if an earlier output would allocate the same buffer, or if the shape of the buffer is unknown
// (see place_rows).
inline bool can_allocate(const PTOParam* params, int32_t index) {
  const TensorNode* node = params[index].tensor.node();
  uint64_t bytes = get_element_size(node->data.dtype);
  for (uint32_t i = 0; i < node->data.ndims; ++i) bytes *= node->data.raw_shapes[i];
  if (bytes != node->data.buffer.size) return false;
  for (int32_t i = 0; i < index; ++i) {
    const TensorNode* other = params[i].tensor.node();
    if (params[i].type != PTOParamType::OUTPUT || other == node) continue;
    if (other == node->root || other->root == node->root) return false;
  }
  return true;
}

// Called after a submit that has allocated buffers of views. Writes the address of each buffer to
// the root tensor.
__attribute__((cold, noinline)) inline void share_allocations(const PTOParam* params, int32_t n) {
  for (int32_t i = 0; i < n; ++i) {
    TensorNode* node = params[i].tensor.node();
    if (params[i].type == PTOParamType::OUTPUT && node->root != nullptr) share_allocation(node);
  }
}

enum class Marshalled { kFailed, kPlain, kAllocatesViews };

__attribute__((cold, noinline)) inline Marshalled refuse_empty(PTO2Runtime* rt, int32_t index,
                                                               Location at) {
  refuse(rt, at,
         "parameter %d of the task is an empty tensor: it was declared and never assigned, or made "
         "before the orchestration started",
         index);
  return Marshalled::kFailed;
}

__attribute__((cold, noinline)) inline Marshalled refuse_allocation(PTO2Runtime* rt, int32_t index,
                                                                    Location at) {
  refuse(rt, at,
         "output %d of the task has no address, and its buffer cannot be allocated, because the "
         "output is only a part of it (it is reshaped, or an earlier output is in the same "
         "buffer); submit the whole tensor as an output first",
         index);
  return Marshalled::kFailed;
}

inline Marshalled marshal(PTO2Runtime* rt, const PTOParam* params, int32_t n, pto_param* out,
                          Location at) {
  Marshalled result = Marshalled::kPlain;
  for (int32_t i = 0; i < n; ++i) {
    const PTOParam& param = params[i];
    out[i].tag = static_cast<uint32_t>(param.type);
    out[i].is_manual = 0;
    if (param.type == PTOParamType::SCALAR) {
      out[i].value.scalar = param.scalar;
      continue;
    }
    TensorNode* node = param.tensor.node();
    if (__builtin_expect(node == nullptr, 0)) return refuse_empty(rt, i, at);
    if (__builtin_expect(node->data.buffer.addr == 0 && node->root != nullptr, 0)) {
      refresh(node);
      if (node->data.buffer.addr == 0 && param.type == PTOParamType::OUTPUT) {
        if (!can_allocate(params, i)) return refuse_allocation(rt, i, at);
        result = Marshalled::kAllocatesViews;
      }
    }
    out[i].value.tensor = reinterpret_cast<pto_tensor_data*>(&node->data);
  }
  return result;
}

inline pto_tensor_task task_of(int32_t kernel_id, int32_t worker, int32_t n, uint32_t block_dim,
                               pto_param* list, const int32_t* clusters, Location at) {
  pto_tensor_task task{};
  task.func_id = kernel_id;
  task.core_type = worker;
  task.num_params = static_cast<uint32_t>(n);
  task.block_dim = block_dim;
  task.params = list;
  task.clusters = clusters;
  task.file = at.file;
  task.line = at.line;
  return task;
}

// Submit a task and return its id, or -1. `block_dim` is 0 if the task is not a block task.
inline int64_t submit(PTO2Runtime* rt, int32_t kernel_id, int32_t worker, const PTOParam* params,
                      int32_t n, uint32_t block_dim, const int32_t* clusters, Location at) {
  pto_param list[kMaxParams];
  if (__builtin_expect(n > kMaxParams && params != nullptr, 0)) {
    // The list has no space for so many parameters. The runtime reports their number and does not
    // read them.
    pto_tensor_task task = task_of(kernel_id, worker, n, block_dim, list, clusters, at);
    return rt->calls->submit(rt->instance, &task);
  }
  if (__builtin_expect(n < 0 || (n > 0 && params == nullptr), 0)) {
    return refuse(rt, at,
                  "a task with %d parameters%s; pass 0 to %d: at most %d tensors and %d scalars", n,
                  params == nullptr ? " and a null array" : "", kMaxParams, PTO_MAX_TASK_TENSORS,
                  PTO_MAX_TASK_SCALARS);
  }
  const Marshalled marshalled = marshal(rt, params, n, list, at);
  if (__builtin_expect(marshalled == Marshalled::kFailed, 0)) return -1;
  pto_tensor_task task = task_of(kernel_id, worker, n, block_dim, list, clusters, at);
  const int64_t id = rt->calls->submit(rt->instance, &task);
  if (__builtin_expect(marshalled == Marshalled::kAllocatesViews, 0)) share_allocations(params, n);
  return id;
}

}  // namespace pto_orchestration

#endif
