/* The backend table: the services of a platform for the core.
 *
 * A backend library exports one function, pto_backend_entry. One device (open) has one attached
 * runtime and runs one graph at a time:
 *
 *   open -> load_kernel, load_library, attach -> { start -> wait -> finish }* -> detach -> close
 *
 * One thread at a time calls the functions of a device, except abort(), the copies and activity(),
 * which any thread may call. Only wait() blocks on a kernel, and wait() is bounded.
 */
#ifndef PTO_ABI_BACKEND_H
#define PTO_ABI_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/activity.h"
#include "pto/abi/runtime.h"
#include "pto/abi/version.h"

enum {
  PTO_BACKEND_THREADS = 1u << 0,       /* kernels run in parallel with the caller */
  PTO_BACKEND_DETERMINISTIC = 1u << 1, /* option mode=deterministic (no default), seed=N */
  PTO_BACKEND_CHECKING = 1u << 2,      /* option check=1 */
  PTO_BACKEND_CALLBACKS = 1u << 3,     /* kernels may be functions of this process */
  PTO_BACKEND_SAME_PROCESS = 1u << 4,  /* a crash of a kernel is a crash of this process */
  PTO_BACKEND_TRACE_HASH = 1u << 5     /* run reports contain a trace hash */
};

/* A kernel: either a library and a symbol, or a function of this process. A callback returns 0, or
 * non-zero after it filled `error`; `payload` is the core's copy. Several threads may call it at
 * once. */
typedef int32_t (*pto_kernel_callback)(void* context, const pto_payload* payload, uint32_t core,
                                       pto_error* error);

typedef struct pto_kernel_source {
  int32_t func_id;
  int32_t core_type;
  const char* name;
  const char* path;   /* library that holds `symbol`; NULL for a callback */
  const char* symbol; /* NULL: "kernel_entry" */
  pto_kernel_callback callback;
  void* context;
} pto_kernel_source;

PTO_ABI_ASSERT(sizeof(pto_kernel_source) == 48, "pto_kernel_source");

typedef struct pto_core_usage {
  uint64_t tasks;
  uint64_t busy_ns; /* 0 unless timing is on */
} pto_core_usage;

PTO_ABI_ASSERT(sizeof(pto_core_usage) == 16, "pto_core_usage");

typedef struct pto_run_report {
  uint64_t tasks;
  uint64_t build_ns;  /* orchestration, from start to its end */
  uint64_t run_ns;    /* from the first step of a scheduler to the last completion */
  uint64_t copy_ns;   /* in copies made during the run */
  uint64_t bytes_in;  /* host to device */
  uint64_t bytes_out; /* device to host */
  uint64_t copies_in;
  uint64_t copies_out;
  uint64_t trace_hash; /* 0 if the backend has none */
  uint64_t peak_bytes; /* device memory, during the run */
  pto_core_usage cores[PTO_MAX_CORES];
  uint32_t blocks; /* of the run's topology, which defines the types of cores; 0: unknown */
  uint32_t reserved;
} pto_run_report;

PTO_ABI_ASSERT(sizeof(pto_run_report) == 88 + 16 * PTO_MAX_CORES, "pto_run_report");
PTO_ABI_ASSERT(offsetof(pto_run_report, cores) == 80, "pto_run_report.cores");

typedef struct pto_leak_report {
  uint64_t buffers; /* device buffers that were not freed */
  uint64_t bytes;
  uint64_t first_address;
  uint64_t first_bytes;
} pto_leak_report;

PTO_ABI_ASSERT(sizeof(pto_leak_report) == 32, "pto_leak_report");

/* The shape of an open device. It is constant until close(). */
typedef struct pto_device_shape {
  uint32_t blocks;           /* each of one AIC and two AIV cores; 1 to PTO_MAX_BLOCKS */
  uint32_t is_deterministic; /* 1: the options determine the order of all events; 0: they do not */
} pto_device_shape;

PTO_ABI_ASSERT(sizeof(pto_device_shape) == 8, "pto_device_shape");

typedef struct pto_backend_api {
  uint32_t abi_version;
  uint32_t struct_size;
  const char* name;
  uint32_t capabilities;
  uint32_t reserved;

  /* Opens a device and reports its shape. Unknown keys in `options` are PTO_ERROR_USAGE. */
  pto_status (*open)(int32_t device_id, const pto_option* options, uint32_t num_options,
                     void** device, pto_device_shape* shape, pto_error* error);
  /* Stops and frees everything, also for a lost device; then the memory of a stuck thread stays. */
  void (*close)(void* device, pto_leak_report* leaks);

  /* Device memory of the caller, separate from the memory of runs. Alignment: 1024 bytes. */
  pto_status (*allocate)(void* device, size_t bytes, uint64_t* address, pto_error* error);
  pto_status (*free)(void* device, uint64_t address, pto_error* error);
  pto_status (*copy_in)(void* device, uint64_t address, const void* host, size_t bytes,
                        pto_error* error);
  pto_status (*copy_out)(void* device, void* host, uint64_t address, size_t bytes,
                         pto_error* error);

  pto_status (*load_kernel)(void* device, const pto_kernel_source* source, uint64_t* address,
                            pto_error* error);
  pto_status (*unload_kernel)(void* device, uint64_t address);
  pto_status (*load_library)(void* device, const char* path, uint64_t* library, pto_error* error);
  pto_status (*unload_library)(void* device, uint64_t library);

  /* Creates an instance of the runtime; `*runtime` is its handle for the submit path. */
  pto_status (*attach)(void* device, const pto_runtime_api* api, const pto_option* options,
                       uint32_t num_options, void** runtime, pto_error* error);
  void (*detach)(void* device);

  /* start(): begins a run. With run->library the orchestration runs on a thread of the device;
   * without it, the caller submits through the runtime's table and then calls orchestration_done().
   * wait(): returns PTO_OK when the run has ended, also with an error, and PTO_PENDING after
   * `timeout_ns`.
   * finish(): called after wait() returned PTO_OK; finalises, ends and reports; returns the run's
   * status with its first error. The device is then ready for the next start(), also after errors.
   * abort(): ends a run early; wait() waits for running kernels. With a non-zero `lost` the device
   * abandons kernels that do not return: wait() returns PTO_OK at once, finish() and every later
   * call PTO_ERROR_LOST. */
  pto_status (*start)(void* device, const pto_run* run, pto_error* error);
  void (*orchestration_done)(void* device, int32_t result);
  pto_status (*wait)(void* device, int64_t timeout_ns);
  pto_status (*finish)(void* device, pto_run_report* report, pto_error* error);
  void (*abort)(void* device, const pto_error* cause, int32_t lost);

  const pto_activity_page* (*activity)(void* device);
} pto_backend_api;

PTO_ABI_ASSERT(offsetof(pto_backend_api, open) == 24, "pto_backend_api.open");
PTO_ABI_ASSERT(sizeof(pto_backend_api) == 168, "pto_backend_api");

/* The function that a backend library exports. */
typedef const pto_backend_api* (*pto_backend_entry_fn)(void);
#define PTO_BACKEND_ENTRY_SYMBOL "pto_backend_entry"

#endif
