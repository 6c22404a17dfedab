// The interface of tensormap_and_ringbuffer orchestrations.
//
//   extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t* args, int arg_count) {
//     return PTO2OrchestrationConfig{.expected_arg_count = 3};
//   }
//   extern "C" void aicpu_orchestration_entry(PTO2Runtime* rt, uint64_t* args, int arg_count) {
//     uint64_t shapes[1] = {args[2]};
//     Tensor in = make_tensor_external(reinterpret_cast<void*>(args[0]), shapes, 1);
//     Tensor out = make_tensor_external(reinterpret_cast<void*>(args[1]), shapes, 1);
//     PTO2_SCOPE(rt) {
//       PTOParam params[] = {make_input_param(in), make_output_param(out)};
//       pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 2);
//     }
//   }
//
// runs on an AICPU thread. Every tensor argument is already in device memory; `args` contains
// device pointers and scalars. Tasks run while the orchestration continues, in an order that
// follows from their reads and writes. A submit waits while the rings have no free space. The
// buffers that a task allocates live until its scope has ended and all tasks that name them have
// completed. The entry may also return int; a value other than 0 then fails the run. The config
// function is optional: without it, any number of arguments is accepted.
//
// The first error of any call ends the run with that error. Later calls do nothing; they return -1
// for ids and 0 for addresses. Limits of a task: 32 tensors and 32 scalars.
//
// The newest task does not start before the next call, or before the orchestration returns. Until
// then, pto2_rt_add_dep may add edges to it.
#ifndef PTO2_ORCHESTRATION_API_H
#define PTO2_ORCHESTRATION_API_H

// Published sources use these names without including their headers.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "pto_assert.h"
#include "pto_log.h"
#include "pto_submit.h"
#include "pto_types.h"
#include "tensor.h"

struct PTO2OrchestrationConfig {
  int expected_arg_count;
};

// Does nothing: tensors need no preparation. It exists for published sources that call it first.
inline void pto2_rt_init_tensor_pool(PTO2Runtime*) {}

// States that no more tasks will be submitted. A return from the entry has the same effect.
inline void pto2_rt_orchestration_done(PTO2Runtime* rt, const char* file = __builtin_FILE(),
                                       int32_t line = __builtin_LINE()) {
  rt->calls->orchestration_done(rt->instance, file, line);
}
template <class = void>
void pto2_rt_orchestration_done(PTO2Runtime* rt) {
  pto2_rt_orchestration_done(rt, nullptr, 0);
}

// --- Tasks --------------------------------------------------------------------------------------

// Submits a task and returns its id. The `n` parameters become the arguments of the kernel, in this
// order: tensors as pointers to TensorData, scalars as values.
inline int64_t pto2_rt_submit_task(PTO2Runtime* rt, int32_t kernel_id, PTO2WorkerType worker,
                                   PTOParam* params, int32_t n, const char* file = __builtin_FILE(),
                                   int32_t line = __builtin_LINE()) {
  return pto_orchestration::submit(rt, kernel_id, worker, params, n, 0, nullptr, {file, line});
}

// Overload that is selected for a function pointer of the published type. The lines of its callers
// are unknown.
template <class = void>
void pto2_rt_submit_task(PTO2Runtime* rt, int32_t kernel_id, PTO2WorkerType worker,
                         PTOParam* params, int32_t n) {
  pto2_rt_submit_task(rt, kernel_id, worker, params, n, nullptr, 0);
}

// Submits a task to the cores of cluster `cluster_id`; -1 means any core.
inline int64_t pto2_rt_submit_task_clustered(PTO2Runtime* rt, int32_t kernel_id, int32_t worker,
                                             PTOParam* params, int32_t n, int32_t cluster_id,
                                             const char* file = __builtin_FILE(),
                                             int32_t line = __builtin_LINE()) {
  const int32_t* clusters = cluster_id == -1 ? nullptr : &cluster_id;
  return pto_orchestration::submit(rt, kernel_id, worker, params, n, 0, clusters, {file, line});
}

// Submits `block_dim` tasks at once. They share their tensors; the scalars block_dim and block_id
// follow the parameters. For dependencies they count as one task: a reader waits for all blocks. If
// `cluster_ids` is not null, block i runs on cluster_ids[i]. Returns the id of block 0.
inline int64_t pto2_rt_submit_block_task(PTO2Runtime* rt, int32_t kernel_id, int32_t worker,
                                         PTOParam* params, int32_t n, int32_t block_dim,
                                         const int32_t* cluster_ids = nullptr,
                                         const char* file = __builtin_FILE(),
                                         int32_t line = __builtin_LINE()) {
  if (block_dim <= 0) {
    return pto_orchestration::refuse(rt, {file, line}, "block_dim is %d; pass 1 or more",
                                     block_dim);
  }
  return pto_orchestration::submit(rt, kernel_id, worker, params, n,
                                   static_cast<uint32_t>(block_dim), cluster_ids, {file, line});
}

// Makes `to`, the task submitted last, start after task `from` has completed.
inline void pto2_rt_add_dep(PTO2Runtime* rt, int64_t from, int64_t to,
                            const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) {
  rt->calls->add_dep(rt->instance, from, to, file, line);
}
template <class = void>
void pto2_rt_add_dep(PTO2Runtime* rt, int64_t from, int64_t to) {
  pto2_rt_add_dep(rt, from, to, nullptr, 0);
}

// --- Scopes -------------------------------------------------------------------------------------

inline void pto2_rt_scope_begin(PTO2Runtime* rt, const char* file = __builtin_FILE(),
                                int32_t line = __builtin_LINE()) {
  rt->calls->scope_begin(rt->instance, file, line);
}
template <class = void>
void pto2_rt_scope_begin(PTO2Runtime* rt) {
  pto2_rt_scope_begin(rt, nullptr, 0);
}

inline void pto2_rt_scope_end(PTO2Runtime* rt, const char* file = __builtin_FILE(),
                              int32_t line = __builtin_LINE()) {
  rt->calls->scope_end(rt->instance, file, line);
}
template <class = void>
void pto2_rt_scope_end(PTO2Runtime* rt) {
  pto2_rt_scope_end(rt, nullptr, 0);
}

// A scope that ends with the C++ block in which it is declared.
class PTO2ScopeGuard {
 public:
  explicit PTO2ScopeGuard(PTO2Runtime* rt, const char* file = __builtin_FILE(),
                          int32_t line = __builtin_LINE())
      : rt_(rt), file_(file), line_(line) {
    pto2_rt_scope_begin(rt, file, line);
  }
  PTO2ScopeGuard(const PTO2ScopeGuard&) = delete;
  PTO2ScopeGuard& operator=(const PTO2ScopeGuard&) = delete;
  ~PTO2ScopeGuard() { pto2_rt_scope_end(rt_, file_, line_); }

 private:
  PTO2Runtime* rt_;
  const char* file_;
  int32_t line_;
};

#define PTO2_JOIN_EXPANDED(left, right) left##right
#define PTO2_JOIN(left, right) PTO2_JOIN_EXPANDED(left, right)
#define PTO2_SCOPE_GUARD(rt) \
  [[maybe_unused]] const PTO2ScopeGuard PTO2_JOIN(pto2_scope_guard_, __COUNTER__)(rt)

// PTO2_SCOPE(rt) { ... } opens a scope for the block. It expands to an `if`, not a loop, so that
// break and continue refer to the surrounding loop. It has an `else`, so that a following `else`
// belongs to an earlier `if`.
#define PTO2_SCOPE(rt)               \
  if (PTO2_SCOPE_GUARD(rt); false) { \
  } else

// --- Clusters -----------------------------------------------------------------------------------

// Allocates a cluster {AIC i, AIV 2i, AIV 2i + 1} and returns i. Waits while no cluster is free.
// pto2_rt_free_cluster or the end of the scope releases the cluster, which is free again when its
// tasks have completed.
inline int32_t pto2_rt_allocate_cluster(PTO2Runtime* rt, const char* file = __builtin_FILE(),
                                        int32_t line = __builtin_LINE()) {
  return rt->calls->allocate_cluster(rt->instance, file, line);
}
template <class = void>
int32_t pto2_rt_allocate_cluster(PTO2Runtime* rt) {
  return pto2_rt_allocate_cluster(rt, nullptr, 0);
}

// Releases a cluster. This never waits, even if tasks still run on the cluster.
inline void pto2_rt_free_cluster(PTO2Runtime* rt, int32_t cluster_id,
                                 const char* file = __builtin_FILE(),
                                 int32_t line = __builtin_LINE()) {
  rt->calls->free_cluster(rt->instance, cluster_id, file, line);
}
template <class = void>
void pto2_rt_free_cluster(PTO2Runtime* rt, int32_t cluster_id) {
  pto2_rt_free_cluster(rt, cluster_id, nullptr, 0);
}

// --- Ranges in the trace ------------------------------------------------------------------------

// Mark a part of the orchestration in the trace of the run, under a name that is copied. Ranges
// nest. Without a trace these calls do nothing.
inline void pto_range_begin(PTO2Runtime* rt, const char* name) {
  rt->calls->range_begin(rt->instance, name);
}
inline void pto_range_end(PTO2Runtime* rt) {
  rt->calls->range_end(rt->instance);
}

// --- The table behind rt->ops -------------------------------------------------------------------

namespace pto_orchestration {

inline const PTO2RuntimeOps* runtime_ops() {
  static constexpr PTO2RuntimeOps table = {
      pto2_rt_submit_task,        pto2_rt_scope_begin,      pto2_rt_scope_end,
      pto2_rt_orchestration_done, pto2_rt_init_tensor_pool, log_at<PTO_LOG_ERROR>,
      log_at<PTO_LOG_WARN>,       log_at<PTO_LOG_INFO>,     log_at<PTO_LOG_DEBUG>,
      log_at<PTO_LOG_ALWAYS>,
  };
  return &table;
}

}  // namespace pto_orchestration

#endif
