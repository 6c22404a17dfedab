/* The access log of a run: the memory that each task names, in the order of submits.
 *
 * A runtime variant keeps it when pto_call_config.enable_dep_gen is set. The core derives the graph
 * of the program from it, because the edges that a run links depend on timing: tasks that have
 * ended are dropped.
 */
#ifndef PTO_ABI_ACCESS_LOG_H
#define PTO_ABI_ACCESS_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/tensor.h"
#include "pto/abi/version.h"

/* One submit. Its accesses follow those of the submit before. */
typedef struct pto_logged_task {
  int64_t id;       /* of the task, or of block 0 */
  const char* file; /* of the call; NULL: unknown; lives until the run ends */
  int32_t line;
  int32_t func_id;
  uint64_t heap;     /* address of the first output that the submit allocated; 0: none */
  uint32_t accesses; /* number of accesses in the log up to and including this task */
  int32_t core_type; /* PTO_CORE_*; -1: the task runs no kernel */
  uint32_t blocks;   /* 0: not a block task */
  uint32_t traits;   /* PTO_LOGGED_* */
} pto_logged_task;

PTO_ABI_ASSERT(sizeof(pto_logged_task) == 48, "pto_logged_task");

/* Bits of pto_logged_task.traits. A task of 2026-08 waits for the owners of its memory.
 * PTO_LOGGED_MANUAL: it has only the edges that the program states. PTO_LOGGED_HOST: no task, but
 * an access of the orchestration, which returns before the next submit. Its id is negative. It is
 * an INPUT or an OUTPUT_EXISTING; the latter also waits for the tasks that read the memory. */
enum { PTO_LOGGED_2026_08 = 1, PTO_LOGGED_MANUAL = 2, PTO_LOGGED_HOST = 4 };

/* A tensor of a submit is logged as pto_tensor_data with its final address; `tag` is set, `owner`
 * is the task whose submit allocated the memory, reserved[0] is the index of the parameter, and
 * reserved[1] limits the edges of the access: PTO_LOGGED_ACCESS_*. The operand of a predicate is
 * an INPUT with the index after the last parameter. */
enum {
  PTO_LOGGED_ACCESS_OWNER = 1, /* only an edge to the owner of the memory */
  PTO_LOGGED_ACCESS_NONE = 2   /* no edge */
};

enum {
  PTO_LOG_EDGE = 0, /* first: the earlier task, second: the later task */
  PTO_LOG_SCOPE_BEGIN = 1,
  PTO_LOG_SCOPE_END = 2,
  PTO_LOG_CLUSTER = 3,       /* first: the number of the allocation */
  PTO_LOG_CLUSTER_FREED = 4, /* first: the number of the allocation */
  PTO_LOG_ON_CLUSTER = 5,    /* first: the number of the allocation, second: the task on it */
  /* as PTO_LOG_EDGE, and the memory of the earlier task lives until the later one has ended */
  PTO_LOG_RETAINING_EDGE = 6,
  /* first: a kernel of a task that runs several at the same time, second: the task */
  PTO_LOG_LANE = 7
};

/* A call that is not a submit. */
typedef struct pto_logged_event {
  uint32_t kind; /* PTO_LOG_* */
  int32_t line;
  const char* file;
  int64_t tasks; /* number of tasks in the log before the call */
  int64_t first;
  int64_t second;
} pto_logged_event;

PTO_ABI_ASSERT(sizeof(pto_logged_event) == 40, "pto_logged_event");

typedef struct pto_access_log {
  const pto_logged_task* tasks;
  const pto_tensor_data* accesses;
  const pto_logged_event* events;
  uint64_t num_tasks;
  uint64_t num_accesses;
  uint64_t num_events;
} pto_access_log;

PTO_ABI_ASSERT(sizeof(pto_access_log) == 48, "pto_access_log");

#endif
