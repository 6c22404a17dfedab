/* The runtime table: the functions of a level-2 runtime variant that the backend calls.
 *
 * A variant library exports one function, pto_runtime_entry. An instance (made by create) serves
 * one device and runs one graph at a time:
 *
 *   begin -> [ orchestrate | submit, add_edge, publish, ... orchestration_done ]
 *         -> schedule_step on every scheduler thread until each returns DONE or one returns ERROR
 *         -> finalise (after success) -> end
 *
 * One thread at a time calls begin, orchestrate, submit and the rest of the submit path, finalise
 * and end. At most one thread at a time calls schedule_step(t) for the same t. This call runs in
 * parallel with the steps of other schedulers and, with CONCURRENT_BUILD, with the orchestrator. A
 * variant without CONCURRENT_BUILD is stepped only after orchestration_done. Any thread may call
 * abort() at any time between begin and end.
 *
 * Places: a variant runs in the host process or on the processor of a device. In the second case
 * the backend's attach() returns the table of a proxy in the host process. The word in brackets
 * before a function names its caller. [core] is the host process, through the table that attach()
 * returned; a proxy passes the call on to the device, or answers it from a copy of the device's
 * answer. [backend] is the part of the backend that runs beside the variant, in the host process or
 * on the device, through the variant's own table; the table of a proxy need not have the function.
 *
 * Owners: arguments belong to the caller, who may reuse them when the call returns; begin() states
 * the exception. No function but access_log() returns memory of the runtime: results are copied to
 * memory of the caller. The file name of a source line is copied to pto_error, because its text
 * lies in the library of the orchestration, which may be on the device.
 *
 * Errors: the first error is latched; later submits are cheap no-ops that return -1, schedule_step
 * returns PTO_STEP_ERROR, and last_error() copies that first error until end(). After end() the
 * instance is in the same state as after create().
 */
#ifndef PTO_ABI_RUNTIME_H
#define PTO_ABI_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/access_log.h"
#include "pto/abi/arguments.h"
#include "pto/abi/measurement.h"
#include "pto/abi/platform.h"
#include "pto/abi/status.h"
#include "pto/abi/tensor.h"
#include "pto/abi/version.h"

enum {
  /* The orchestration runs on the host and receives host pointers; every AICPU thread schedules.
   * Without this capability the framework first copies tensor arguments to device memory, and one
   * AICPU thread orchestrates. If there is only one AICPU thread, it schedules while the
   * orchestrator waits and after the orchestrator is done. */
  PTO_RUNTIME_HOST_ORCHESTRATION = 1u << 0,
  PTO_RUNTIME_CONCURRENT_BUILD = 1u << 1, /* schedulers may run while the graph is built */
  PTO_RUNTIME_EXPLICIT_EDGES = 1u << 2,   /* add_edge orders tasks; nothing is inferred */
  PTO_RUNTIME_PUBLISH = 1u << 3,          /* a task runs only after publish() */
  PTO_RUNTIME_SCOPES = 1u << 4,           /* scope_begin and scope_end nest */
  PTO_RUNTIME_BLOCKING_SUBMIT = 1u << 5,  /* submit may wait for free space */
  PTO_RUNTIME_TENSORS = 1u << 6,          /* submit_tensors; edges follow from reads and writes */
  PTO_RUNTIME_CLUSTERS = 1u << 7,         /* allocate_cluster, free_cluster */
  /* Each of the PTO_TASK_RINGS rings numbers its own tasks: a message names the task with id 3 *
   * PTO_TASK_RINGS + 1 "task 3 of ring 1". Without this capability messages contain the id. */
  PTO_RUNTIME_RING_IDS = 1u << 8,
  /* After a proven deadlock the runtime plans, if pto_platform.planning permits it: the submit path
   * continues, but no kernel runs. This finds the sizes that suffice. They are added to the error
   * when the orchestration is done. Without planning the error states lower bounds. */
  PTO_RUNTIME_PLANNING = 1u << 9
};

#define PTO_TASK_RINGS 4

/* The hazards between tensors that order two tasks (capability TENSORS). */
enum {
  PTO_HAZARDS_RAW = 0, /* read after write */
  PTO_HAZARDS_FULL = 1 /* also write after read and write after write */
};

enum { PTO_STEP_IDLE = 0, PTO_STEP_PROGRESS = 1, PTO_STEP_DONE = 2, PTO_STEP_ERROR = 3 };

/* One argument of a kernel, as its signature declares it. */
typedef struct pto_declared_argument {
  uint8_t tag;   /* PTO_TAG_*, or PTO_ANY */
  uint8_t dtype; /* PTO_DTYPE_*, or PTO_ANY */
} pto_declared_argument;

PTO_ABI_ASSERT(sizeof(pto_declared_argument) == 2, "pto_declared_argument");

#define PTO_ANY 255

/* The signature of a kernel. If `takes_more` is set, more than `num_arguments` may be passed. */
typedef struct pto_signature {
  const pto_declared_argument* arguments;
  uint32_t num_arguments;
  uint32_t required; /* the smallest number of arguments */
  uint32_t takes_more;
  uint32_t reserved;
} pto_signature;

PTO_ABI_ASSERT(sizeof(pto_signature) == 24, "pto_signature");

typedef struct pto_kernel_entry {
  int32_t func_id;
  int32_t core_type;
  uint64_t address;
  const char* name;
  const pto_signature* signature; /* submits by the library must fit it; NULL: not checked */
} pto_kernel_entry;

PTO_ABI_ASSERT(sizeof(pto_kernel_entry) == 32, "pto_kernel_entry");

/* One run. A backend that runs the variant on a device copies the run there, with the handle that
 * the library has on the device. `ranges`, `attend`, and the names and signatures of kernels stay
 * on the host. */
typedef struct pto_run {
  const pto_kernel_entry* kernels; /* func_ids are unique and not negative, in any order */
  uint32_t num_kernels;
  uint32_t num_args;
  const uint64_t* args;         /* pointers (host or device, see capabilities) and scalars */
  const pto_host_range* ranges; /* host memory of the tensor arguments, for checking mode */
  uint32_t num_ranges;
  uint32_t hazards; /* PTO_HAZARDS_* */
  /* One for each argument, with its shape and data type; of a scalar only `data` is valid, and
   * `use` is PTO_TAG_SCALAR + 1. NULL if the caller does not know them. */
  const pto_tensor* arguments;
  uint64_t library;  /* the orchestration's library; 0 if the caller submits */
  const char* entry; /* symbol of the orchestration's entry; NULL: the variant's default */
  const pto_call_config* config;
  /* A function of the caller, which may call abort(), or NULL. The backend calls it on the caller's
   * thread, between the copies of finalise() and, in a run without a library, at least every 50 ms
   * while the orchestrator is in wait(). */
  void (*attend)(void* context);
  void* attend_context;
  pto_run_trace* trace;               /* NULL: the run is not traced. Requires PTO_BACKEND_TRACE */
  const pto_measurement* measurement; /* NULL: accesses are not measured */
} pto_run;

PTO_ABI_ASSERT(sizeof(pto_run) == 104, "pto_run");

/* One task of a build-graph submit. */
typedef struct pto_task {
  int32_t func_id;
  int32_t core_type; /* PTO_CORE_AIC, PTO_CORE_AIV, or -1: that of the registered kernel */
  uint32_t num_args;
  int32_t line;
  const uint64_t* args;
  uint64_t kernel;  /* address to call; 0: look it up by func_id */
  uint64_t cookie;  /* copied to the payload unchanged */
  const char* file; /* of the call; NULL: unknown; valid until the run ends */
} pto_task;

PTO_ABI_ASSERT(sizeof(pto_task) == 48, "pto_task");

/* A counter for reports: its name in snake case, its value, and whether it is a peak or a sum. */
typedef struct pto_statistic {
  char name[48];
  uint64_t value;
  uint32_t is_peak;
  uint32_t reserved;
} pto_statistic;

PTO_ABI_ASSERT(sizeof(pto_statistic) == 64, "pto_statistic");

typedef struct pto_runtime_api {
  uint32_t abi_version;
  uint32_t struct_size;
  const char* variant; /* the name by which users select it */
  uint32_t capabilities;
  uint32_t max_args; /* largest number of arguments of a task */
  int64_t max_tasks; /* 0: memory is the only limit */

  /* [backend] Creates an instance. Returns PTO_ERROR_USAGE for an unknown option. */
  pto_status (*create)(const pto_platform* platform, const pto_option* options,
                       uint32_t num_options, void** runtime, pto_error* error);
  void (*destroy)(void* runtime); /* [backend] */

  /* [backend] Begins a run. `run` and all memory to which it points live until end(). */
  pto_status (*begin)(void* runtime, const pto_run* run);
  /* [backend] Orchestrator: calls the entry of run->library, then acts like orchestration_done. */
  pto_status (*orchestrate)(void* runtime);
  /* [backend] Orchestrator: the caller has submitted all tasks; a non-zero `result` fails the run.
   */
  void (*orchestration_done)(void* runtime, int32_t result);

  /* [core] Orchestrator: the submit path for callers without an orchestration library, up to
   * free_cluster(). A runtime offers submit() or, with TENSORS, submit_tensors(), which writes to
   * the caller's tensors; in the table of a proxy both may be NULL. Ids are not negative; -1 is an
   * error. */
  int64_t (*submit)(void* runtime, const pto_task* task);
  int64_t (*submit_tensors)(void* runtime, pto_tensor_task* task);
  pto_status (*add_edge)(void* runtime, int64_t from, int64_t to);
  pto_status (*publish)(void* runtime, int64_t task);
  /* `file` and `line`: the location of the call, for reports; NULL and -1 if unknown. */
  pto_status (*scope_begin)(void* runtime, const char* file, int32_t line);
  pto_status (*scope_end)(void* runtime);
  /* Reserves a cluster of cores and returns its id; -1 is an error. free_cluster() or the end of
   * the scope releases the cluster. It becomes free when its last task has completed.
   * allocate_cluster() may wait for a free cluster; free_cluster() never waits. */
  int32_t (*allocate_cluster)(void* runtime, const char* file, int32_t line);
  pto_status (*free_cluster)(void* runtime, int32_t cluster);

  /* [backend] Scheduler `thread`: does a bounded amount of work; returns PTO_STEP_*. */
  int32_t (*schedule_step)(void* runtime, uint32_t thread);
  /* [backend] Called when every scheduler has reported idle after the last event, no core has work,
   * no event is pending, and the orchestrator is done or in wait(). Either finds work
   * (PTO_STEP_PROGRESS) or latches the error that explains the stall (PTO_STEP_ERROR). No other
   * call runs at the same time. */
  int32_t (*stalled)(void* runtime);
  /* [backend] May be NULL. The backend calls it at least every 50 ms while the orchestrator is in
   * wait(), on a thread that executes no part of the run, so that the runtime can report a long
   * wait. */
  void (*attend)(void* runtime);

  /* [backend] finalise() copies the recorded outputs to the host. end() clears the run after
   * success, an error or abort(). */
  pto_status (*finalise)(void* runtime);
  void (*end)(void* runtime);
  void (*abort)(void* runtime, const pto_error* cause);
  /* [core, backend] Returns the status of the first error, PTO_OK if there is none. Copies an error
   * to `out`, unless that is NULL. */
  pto_status (*last_error)(void* runtime, pto_error* out);

  /* [core] Writes at most `capacity` counters and returns the number of all counters. The values
   * stay available until the next begin. */
  uint32_t (*statistics)(void* runtime, pto_statistic* out, uint32_t capacity);
  /* [core] Writes a description of the run for a report: counts, blocked tasks and why they are
   * blocked. Any thread may call this; during a run the text is a snapshot, which a proxy labels
   * as such if the device does not answer. Returns the written length. */
  size_t (*explain)(void* runtime, char* out, size_t capacity);
  /* [core] May be NULL: the variant keeps no log, or the host cannot read the log on the device.
   * Fills in the access log of the last run, which is empty unless pto_call_config.enable_dep_gen
   * was set. Call it when the run has ended; the log is valid until the next begin. */
  void (*access_log)(void* runtime, pto_access_log* log);

  /* [backend] Both may be NULL: the variant does not build whole graphs on the host. With them, a
   * backend that runs the variant on a device has an instance on the host, which builds the graph,
   * and one on the device, which runs it.
   * export_graph(): on the host, after orchestration_done(), in place of the steps. Writes the
   * graph to `out`, without pointers of the host, and returns its size in bytes; if that exceeds
   * `capacity`, nothing is written. Returns 0 after an error. Afterwards, when the device has run
   * the graph, finalise() of this instance copies the outputs to the host.
   * import_graph(): on the device, after begin() of the same run, in place of the submit path. Adds
   * the tasks and edges; orchestration_done() follows. The image belongs to the caller, and no
   * reference to it is kept. A kernel that the run lists has the address of the run on the device.
   * Returns PTO_ERROR_USAGE, which is latched, if the bytes are no image of this variant. */
  size_t (*export_graph)(void* runtime, void* out, size_t capacity);
  pto_status (*import_graph)(void* runtime, const void* image, size_t bytes);
} pto_runtime_api;

PTO_ABI_ASSERT(offsetof(pto_runtime_api, create) == 32, "pto_runtime_api.create");
PTO_ABI_ASSERT(sizeof(pto_runtime_api) == 232, "pto_runtime_api");

/* The function that a variant library exports. Returns NULL for an unknown `variant`. */
typedef const pto_runtime_api* (*pto_runtime_entry_fn)(const char* variant);
#define PTO_RUNTIME_ENTRY_SYMBOL "pto_runtime_entry"

#endif
