/* The backend table: the functions of a platform that pto_core calls.
 *
 * A backend library exports one function, pto_backend_entry. A device (made by open) has one
 * attached runtime and runs one graph at a time:
 *
 *   open -> load_kernel, load_library, attach -> { [wait_stream] -> start -> wait -> finish }*
 *        -> detach -> close
 *
 * Only one thread at a time calls the functions of a device. Exceptions are abort(), copy_in(),
 * copy_out() and activity(), which any thread may call. Only wait() waits for kernels, and only
 * wait_stream() for other work; both wait at most until their timeout.
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
  PTO_BACKEND_DETERMINISTIC = 1u << 1, /* options mode=deterministic (not the default) and seed=N */
  PTO_BACKEND_CHECKING = 1u << 2,      /* option check=1 */
  PTO_BACKEND_CALLBACKS = 1u << 3,     /* kernels may be functions of this process */
  PTO_BACKEND_SAME_PROCESS = 1u << 4,  /* a kernel that crashes also ends this process */
  PTO_BACKEND_TRACE_HASH = 1u << 5,    /* run reports contain a trace hash */
  PTO_BACKEND_TRACE = 1u << 6,         /* writes the trace of a run (pto_run.trace) */
  PTO_BACKEND_PLANNING = 1u << 7,      /* devices permit planning; see pto_device_shape */
  PTO_BACKEND_ACTIVITY = 1u << 8,      /* the activity page shows running kernels */
  PTO_BACKEND_STREAMS = 1u << 9,       /* wait_stream() */
  PTO_BACKEND_DUMP = 1u << 10          /* runs write a dump; see pto/abi/dump.h */
};

/* A kernel: either a symbol of a library, or a callback in this process. A callback returns 0 if it
 * succeeds. If it fails, it fills in `error` and returns another value. `payload` is the core's
 * copy. Several threads may call the callback at once. */
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
  uint64_t build_ns;  /* from the start to the end of the orchestration */
  uint64_t run_ns;    /* from the first step of a scheduler to the last completion */
  uint64_t copy_ns;   /* time spent in copies during the run */
  uint64_t bytes_in;  /* host to device */
  uint64_t bytes_out; /* device to host */
  uint64_t copies_in;
  uint64_t copies_out;
  uint64_t trace_hash; /* 0 if the backend has none */
  uint64_t peak_bytes; /* maximum of device memory in use during the run */
  pto_core_usage cores[PTO_MAX_CORES];
  uint32_t blocks; /* number of blocks, which determines the core types; 0: unknown */
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
  uint32_t has_planning;     /* pto_platform.planning of this device */
  uint32_t machine;          /* e_machine of the ELF files that the device runs */
  uint32_t process;          /* number of the process on the device that runs the variant */
  uint32_t reserved;
  /* "device", or for tests the name of its substitute, such as "fake device". Static memory. NULL
   * if the variant runs in the host process; then `machine` and `process` are 0. */
  const char* label;
} pto_device_shape;

PTO_ABI_ASSERT(sizeof(pto_device_shape) == 32, "pto_device_shape");

/* A file that was built for the devices of this backend. `kind` is the kind of its recipe:
 * "runtime".
 */
typedef struct pto_artefact {
  const char* kind;
  const char* path;
} pto_artefact;

PTO_ABI_ASSERT(sizeof(pto_artefact) == 16, "pto_artefact");

/* The variant to attach. The table lives until detach(), all other memory until attach() returns.
 */
typedef struct pto_attachment {
  const pto_runtime_api* api; /* of the variant's library in the host process */
  const char* variant;        /* the name by which users select it */
  const pto_artefact* artefacts;
  uint32_t num_artefacts;
  uint32_t reserved;
} pto_attachment;

PTO_ABI_ASSERT(sizeof(pto_attachment) == 32, "pto_attachment");
PTO_ABI_ASSERT(offsetof(pto_attachment, artefacts) == 16, "pto_attachment.artefacts");

typedef struct pto_backend_api {
  uint32_t abi_version;
  uint32_t struct_size;
  const char* name;
  uint32_t capabilities;
  uint32_t reserved;

  /* Opens a device and reports its shape. Returns PTO_ERROR_USAGE for an unknown key. */
  pto_status (*open)(int32_t device_id, const pto_option* options, uint32_t num_options,
                     void** device, pto_device_shape* shape, pto_error* error);
  /* Stops all threads and frees all memory, even if the device is lost. If a thread does not stop,
   * its memory is not freed. */
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
  /* Loads a library for this device: its static variables are not those of another device. */
  pto_status (*load_library)(void* device, const char* path, uint64_t* library, pto_error* error);
  pto_status (*unload_library)(void* device, uint64_t library);

  /* Creates an instance of the variant, in the host process or on the device. The core uses
   * `*table` and `*runtime` until detach(). They are the variant's own table and handle or, for a
   * variant on the device, the table and handle of a proxy in the host process. The core reads
   * capabilities, max_args and max_tasks from `*table`. */
  pto_status (*attach)(void* device, const pto_attachment* attachment, const pto_option* options,
                       uint32_t num_options, const pto_runtime_api** table, void** runtime,
                       pto_error* error);
  void (*detach)(void* device);

  /* start(): begins a run. With run->library the orchestration runs on a thread of the device;
   * without it, the caller submits through the runtime's table and then calls orchestration_done().
   * wait(): returns PTO_OK when the run has ended, even if it failed; returns PTO_PENDING after
   * `timeout_ns`.
   * finish(): called after wait() returned PTO_OK. Finalises and ends the run, writes the report,
   * and returns the run's status and first error. Then the device is ready for the next start(),
   * even after a failed run.
   * abort(): ends a run early; wait() still waits for running kernels. If `lost` is not 0, the
   * device abandons kernels that do not return: wait() returns PTO_OK at once, and finish() and all
   * later calls return PTO_ERROR_LOST. */
  pto_status (*start)(void* device, const pto_run* run, pto_error* error);
  void (*orchestration_done)(void* device, int32_t result);
  pto_status (*wait)(void* device, int64_t timeout_ns);
  pto_status (*finish)(void* device, pto_run_report* report, pto_error* error);
  void (*abort)(void* device, const pto_error* cause, int32_t lost);

  const pto_activity_page* (*activity)(void* device);

  /* Waits until the work is done that another program in this process has added to a stream of this
   * device: `stream` is the vendor's handle, and belongs to that program. Returns PTO_PENDING after
   * `timeout_ns`, PTO_ERROR_USAGE for a handle that is no stream of this device, and the failure of
   * that work if it failed. NULL without the capability STREAMS. */
  pto_status (*wait_stream)(void* device, uint64_t stream, int64_t timeout_ns, pto_error* error);
} pto_backend_api;

PTO_ABI_ASSERT(offsetof(pto_backend_api, open) == 24, "pto_backend_api.open");
PTO_ABI_ASSERT(sizeof(pto_backend_api) == 176, "pto_backend_api");

/* The function that a backend library exports. */
typedef const pto_backend_api* (*pto_backend_entry_fn)(void);
#define PTO_BACKEND_ENTRY_SYMBOL "pto_backend_entry"

#endif
