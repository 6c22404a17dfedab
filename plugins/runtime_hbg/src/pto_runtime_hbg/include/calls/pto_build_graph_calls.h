/* The table of functions that the runtime library passes to an orchestration library.
 *
 * The libraries share no symbols: the runtime library looks up one function in the orchestration
 * library, which the variant's entry_wrapper.hpp defines, and passes this table to it. The thread
 * that runs the orchestration calls all functions. After the first error they do nothing and return
 * -1, 0 or NULL.
 */
#ifndef PTO_BUILD_GRAPH_CALLS_H
#define PTO_BUILD_GRAPH_CALLS_H

#include <stddef.h>
#include <stdint.h>

#define PTO_BUILD_GRAPH_CALLS_VERSION 1u

/* One task for inspection; `args` lives until the run ends. */
typedef struct pto_task_view {
  int32_t func_id;
  int32_t core_type;
  int32_t num_args;
  int32_t fanin;
  int32_t fanout_count;
  int32_t reserved;
  uint64_t function_bin_addr;
  uint64_t start_time;
  uint64_t end_time;
  const uint64_t* args;
} pto_task_view;

typedef struct pto_build_graph_calls {
  uint32_t version;
  uint32_t build_mode;

  /* `file` and `line`: the location of the call, for reports; NULL: unknown. */
  int32_t (*add_task)(void* graph, const uint64_t* args, int32_t num_args, int32_t func_id,
                      int32_t core_type, uint64_t function_bin_addr, const char* file,
                      int32_t line);
  void (*add_successor)(void* graph, int32_t from, int32_t to);
  void (*publish_task)(void* graph, int32_t task);
  void (*record_tensor_pair)(void* graph, void* host, void* device, size_t bytes);

  int32_t (*get_task_count)(void* graph);
  /* 0, or -1 when there is no such task. */
  int32_t (*view_task)(void* graph, int32_t task, pto_task_view* out);
  /* Writes at most `capacity` ids, in the order of the edges. */
  void (*get_successors)(void* graph, int32_t task, int32_t* out, int32_t capacity);
  /* Writes all ids when `out` is not NULL; returns how many there are. */
  int32_t (*get_initial_ready_tasks)(void* graph, int32_t* out);
  void (*print_runtime)(void* graph);

  uint64_t (*get_function_bin_addr)(void* graph, int32_t func_id);
  void (*set_function_bin_addr)(void* graph, int32_t func_id, uint64_t address);
  /* Addresses by function id, 0 where there is no kernel; num_kernel_addrs of them. */
  const uint64_t* (*get_kernel_addrs)(void* graph);

  void* (*device_malloc)(void* graph, size_t bytes);
  void (*device_free)(void* graph, void* device);
  int32_t (*copy_to_device)(void* graph, void* device, const void* host, size_t bytes);
  int32_t (*copy_from_device)(void* graph, void* host, const void* device, size_t bytes);
  uint64_t (*upload_kernel_binary)(void* graph, int32_t func_id, const uint8_t* bytes,
                                   size_t length);

  int32_t (*get_tensor_pair_count)(void* graph);
  /* `level` is PTO_LOG_*, `function` is the caller's name. */
  void (*log)(void* graph, int32_t level, const char* function, const char* message);

  /* A range of the program in the trace; `name` is copied. Ranges nest. */
  void (*range_begin)(void* graph, const char* name);
  void (*range_end)(void* graph);

  /* The orchestration threw: `what` is the exception's text. */
  void (*fail)(void* graph, const char* what);
} pto_build_graph_calls;

/* The function that entry_wrapper.hpp exports. It runs the entry and returns its result (0 for
 * void), or -1 if the entry threw. */
typedef int32_t (*pto_build_graph_orchestrate_fn)(const pto_build_graph_calls* calls, void* graph,
                                                  const uint64_t* args, int32_t num_args);

#define PTO_HOST_BUILD_GRAPH_ORCHESTRATE "pto_host_build_graph_orchestrate"
#define PTO_AICPU_BUILD_GRAPH_ORCHESTRATE "pto_aicpu_build_graph_orchestrate"

#endif
