/* The table of functions that the runtime library passes to an orchestration library.
 *
 * The libraries share no symbols: the runtime library looks up one function in the orchestration
 * library, which entry_wrapper.hpp defines, and passes this table to it. The thread that runs the
 * orchestration calls all functions. After the first error they do nothing and return -1. After a
 * proven deadlock, submits continue without kernels until the orchestration returns. `file` and
 * `line` are the position of the call; if `file` is NULL, it is unknown.
 */
#ifndef PTO2_CALLS_H
#define PTO2_CALLS_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/tensor.h"

#define PTO2_CALLS_VERSION 0u

/* The published codes of errors; a program sees them with a minus. */
enum {
  PTO2_ERROR_NONE = 0,
  PTO2_ERROR_SCOPE_DEADLOCK = 1,
  PTO2_ERROR_HEAP_RING_DEADLOCK = 2,
  PTO2_ERROR_FLOW_CONTROL_DEADLOCK = 3,
  PTO2_ERROR_DEP_POOL_OVERFLOW = 4,
  PTO2_ERROR_INVALID_ARGS = 5,
  PTO2_ERROR_REQUIRE_SYNC_START_INVALID = 7,
  PTO2_ERROR_TENSOR_WAIT_TIMEOUT = 8,
  PTO2_ERROR_EXPLICIT_ORCH_FATAL = 9,
  PTO2_ERROR_SCOPE_TASKS_OVERFLOW = 10,
  PTO2_ERROR_TENSORMAP_OVERFLOW = 11,
  PTO2_ERROR_SCHEDULER_TIMEOUT = 100
};

/* For tasks of a recorded graph that are submitted again, if knows_edges() returns 1. Bits of
 * pto_param.is_manual: the dependencies order the task after all writers of the memory; no later
 * task needs an edge to this access. With both, the region of the tensor is not read. A kind of a
 * pto_dependency: an edge that was found, not stated. */
enum { PTO2_NO_LOOK_UP = 2, PTO2_NO_ENTRY = 4 };
enum { PTO2_DEPENDENCY_FOUND = 4 };

typedef struct pto2_calls {
  uint32_t version;
  uint32_t reserved;

  /* The id of the task, or of block 0; -1 after an error. */
  int64_t (*submit)(void* runtime, pto_tensor_task* task);
  /* `to` is the task that was submitted last. */
  void (*add_dep)(void* runtime, int64_t from, int64_t to, const char* file, int32_t line);
  void (*scope_begin)(void* runtime, const char* file, int32_t line);
  void (*scope_end)(void* runtime, const char* file, int32_t line);
  int32_t (*allocate_cluster)(void* runtime, const char* file, int32_t line);
  void (*free_cluster)(void* runtime, int32_t cluster, const char* file, int32_t line);
  /* No more submits; a second call, and any later submit, is a usage error. */
  void (*orchestration_done)(void* runtime, const char* file, int32_t line);

  /* Waits until the tasks that write the memory have completed, and, if `for_write` is set, also
   * those that read it. Returns 0, or -1 if the run has failed. While a plan is made after a proven
   * deadlock, no task runs; then it returns 1 at once. */
  int32_t (*wait_for_tensor)(void* runtime, const pto_tensor_data* tensor, int32_t for_write,
                             const char* file, int32_t line);
  /* The number of cores of a type. */
  int32_t (*core_count)(void* runtime, int32_t core_type);
  /* Whether submits may state edges that a record knows: the hazards are not "full", and no log,
   * trace or check observes the edges. */
  int32_t (*knows_edges)(void* runtime);
  /* Whether the run has failed. */
  int32_t (*has_failed)(void* runtime);

  /* `level` is PTO_LOG_*, `function` is the caller's name. */
  void (*log)(void* runtime, int32_t level, const char* function, const char* message);
  /* A range of the program in the trace; `name` is copied. Ranges nest. */
  void (*range_begin)(void* runtime, const char* name);
  void (*range_end)(void* runtime);

  /* Report that the orchestration has failed. `what`: the text. `file` is NULL for an exception
   * that the entry threw, otherwise the headers have found a usage error; "" if its position is
   * unknown. */
  void (*fail)(void* runtime, const char* what, const char* file, int32_t line);
  /* Report an error with a published code, PTO2_ERROR_*. */
  void (*fail_with_code)(void* runtime, int32_t code, const char* what, const char* file,
                         int32_t line);
} pto2_calls;

/* The function that entry_wrapper.hpp exports. `arguments` are described in pto_run. It checks the
 * number of arguments against the configuration and runs the entry. It returns the result of the
 * entry (0 for void), or -1 after fail(). */
typedef int32_t (*pto2_orchestrate_fn)(const pto2_calls* calls, void* runtime, uint64_t* args,
                                       int32_t num_args, const pto_tensor* arguments);

#define PTO2_ORCHESTRATE "pto2_orchestrate"

#endif
