/* The data that host and device exchange: launch arguments, commands, and blocks in device memory.
 *
 * The host launches the AICPU entry pto_a2a3_serve(const pto_a2a3_launch*) once for each command.
 * Commands run one after another: the host launches the next one when the stream is idle. Except
 * for RUN a command needs one AICPU thread. For RUN the host launches the AICore entry with
 * pto_a2a3_core_launch on the blocks of the run (pto_call_config.block_dim; 0: all), and the AICPU
 * entry on all usable AICPU threads, in any order.
 *
 *   INIT -> { LOAD, ATTACH, RUN ..., DETACH, UNLOAD } -> QUIT
 *
 * Addresses are device addresses; the host never dereferences them, it copies. Each block starts at
 * a multiple of 64 bytes and has one writer at a time, which is stated above it. Before the device
 * reads memory that the host wrote, it invalidates the cache for this memory. Before the device
 * writes the sequence number that announces its data, it cleans the cache for the data. A line of
 * 64 bytes has one writer.
 *
 * The AICPU entry returns 0, also if the command failed: pto_a2a3_status has the outcome. It
 * returns another value only if it cannot reach the status block (wrong magic or version).
 */
#ifndef PTO_A2A3_ABI_LAUNCH_H
#define PTO_A2A3_ABI_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#include "abi/chip.h"
#include "pto/abi/backend.h"

#define PTO_A2A3_MAGIC 0x33324150u /* "PA23", the value of each member `magic` */
#define PTO_A2A3_VERSION 4u        /* of this header; a device rejects any other version */

#define PTO_A2A3_AICPU_SYMBOL "pto_a2a3_serve"
/* The executor: the name under which its image is launched, and the entries of its two halves. */
#define PTO_A2A3_EXECUTOR_SYMBOL "pto_a2a3_executor"
#define PTO_A2A3_AIC_SYMBOL "pto_a2a3_executor_0_mix_aic"
#define PTO_A2A3_AIV_SYMBOL "pto_a2a3_executor_0_mix_aiv"

enum {
  PTO_A2A3_INIT = 1,   /* input: pto_a2a3_device. Answers handle: the `device` of later commands */
  PTO_A2A3_QUIT = 2,   /* frees all that the device holds, also after a failed run */
  PTO_A2A3_LOAD = 3,   /* input: pto_a2a3_library. Answers handle, and address for a kernel */
  PTO_A2A3_UNLOAD = 4, /* `handle` is a handle of LOAD */
  PTO_A2A3_ATTACH = 5, /* input: pto_a2a3_attach. Answers capabilities, max_args, max_tasks */
  PTO_A2A3_DETACH = 6,
  PTO_A2A3_RUN = 7 /* input: pto_run_image. Answers report, statistics, explanation */
};

/* The arguments of an AICPU launch. Each AICPU thread receives a pointer to a copy. */
typedef struct pto_a2a3_launch {
  uint32_t magic;
  uint32_t version;
  uint32_t command;
  uint32_t threads;  /* AICPU threads of this launch; RUN uses those that it needs */
  uint64_t sequence; /* number of this command: 1, 2, ...; pto_a2a3_status repeats it */
  uint64_t device;   /* handle that INIT answered; 0 for INIT */
  uint64_t status;   /* address of a pto_a2a3_status */
  uint64_t input;    /* address of the input of the command; 0: none */
  uint64_t input_bytes;
  uint64_t handle; /* UNLOAD: a handle. RUN: the handle of the orchestration; 0: none */
  uint64_t graph;  /* RUN: address of the exported graph; 0: the orchestration builds it */
  uint64_t graph_bytes;
  uint64_t core_launch; /* RUN: pto_a2a3_core_launch.launch */
  uint64_t dump;        /* RUN: address of a pto_a2a3_dump; 0: no task is dumped */
  uint64_t reserved[4]; /* 0 */
} pto_a2a3_launch;

PTO_ABI_ASSERT(sizeof(pto_a2a3_launch) == 128, "pto_a2a3_launch");
PTO_ABI_ASSERT(offsetof(pto_a2a3_launch, sequence) == 16, "pto_a2a3_launch.sequence");
PTO_ABI_ASSERT(offsetof(pto_a2a3_launch, handle) == 56, "pto_a2a3_launch.handle");

/* The arguments of an AICore launch. Each core receives a pointer to a copy. */
typedef struct pto_a2a3_core_launch {
  uint64_t cores;     /* address of a pto_a2a3_cores */
  uint64_t launch;    /* number of this AICore launch: 1, 2, ... */
  uint64_t flag_base; /* for the flags between cube and vector cores, which kernels can use */
  uint64_t texts;     /* address of a pto_a2a3_texts for each core; 0: no kernel prints */
} pto_a2a3_core_launch;

PTO_ABI_ASSERT(sizeof(pto_a2a3_core_launch) == 32, "pto_a2a3_core_launch");

enum {
  /* After a proven deadlock, find the sizes that suffice. The host permits it; the device has it if
   * its system offers sparse memory. */
  PTO_A2A3_PLANNING = 1u << 0,
  /* The kernel that was loaded prints texts. Only a native device has such kernels. */
  PTO_A2A3_PRINTS = 1u << 1
};

/* Input of INIT. The host writes it before INIT. The device copies it. */
typedef struct pto_a2a3_device {
  uint32_t magic;
  uint32_t version;
  int32_t device_id; /* the driver's number, for file names: devices can share an AICPU */
  uint32_t blocks;   /* of the device; 1 to PTO_MAX_BLOCKS */
  uint32_t flags;    /* PTO_A2A3_PLANNING */
  int32_t log_level; /* the least severe PTO_LOG_* that the device writes to the log */
  uint32_t num_cpus;
  uint32_t gate_timeout_ms; /* for AICPU threads and cores to report; also for cores to leave */
  uint16_t cpus[PTO_A2A3_MAX_AICPU_CPUS]; /* AICPU cores that the run prefers, in this order */
  uint64_t pool; /* device memory of the device's own allocations; starts at a multiple of 64 */
  uint64_t pool_bytes;
  uint64_t cores;    /* address of a pto_a2a3_cores */
  uint64_t control;  /* address of a pto_a2a3_control */
  uint64_t progress; /* address of a pto_a2a3_progress */
  uint64_t log;      /* address of a pto_a2a3_log; 0: the device writes no log */
  /* Address of the register page of each physical core, as the AICPU sees it; 0: no such core. */
  uint64_t registers[PTO_A2A3_PHYSICAL_CORES];
  /* Folder on the device for the files of libraries; empty: the built-in folders are tried. */
  char directory[256];
} pto_a2a3_device;

PTO_ABI_ASSERT(sizeof(pto_a2a3_device) == 952, "pto_a2a3_device");
PTO_ABI_ASSERT(offsetof(pto_a2a3_device, cpus) == 32, "pto_a2a3_device.cpus");
PTO_ABI_ASSERT(offsetof(pto_a2a3_device, registers) == 96, "pto_a2a3_device.registers");
PTO_ABI_ASSERT(offsetof(pto_a2a3_device, directory) == 696, "pto_a2a3_device.directory");

enum {
  PTO_A2A3_VARIANT = 1,       /* exports PTO_RUNTIME_ENTRY_SYMBOL */
  PTO_A2A3_ORCHESTRATION = 2, /* the handle is that of pto_run.library */
  PTO_A2A3_KERNEL = 3         /* native devices only; the chip runs linked bytes where they are */
};

/* Input of LOAD. The host writes it and the bytes before LOAD, and may free both after it. */
typedef struct pto_a2a3_library {
  uint32_t magic;
  uint32_t kind;  /* PTO_A2A3_VARIANT ... */
  uint64_t image; /* address of the file's bytes */
  uint64_t image_bytes;
  char symbol[104]; /* of a kernel; empty: kernel_entry */
} pto_a2a3_library;

PTO_ABI_ASSERT(sizeof(pto_a2a3_library) == 128, "pto_a2a3_library");

/* Input of ATTACH. `num_options` pairs of texts follow: key, 0, value, 0. */
typedef struct pto_a2a3_attach {
  uint32_t magic;
  uint32_t num_options;
  uint64_t library;       /* handle of the variant's library */
  uint64_t options_bytes; /* of the texts after this header */
  char variant[104];      /* the name by which users select it */
} pto_a2a3_attach;

PTO_ABI_ASSERT(sizeof(pto_a2a3_attach) == 128, "pto_a2a3_attach");

typedef struct pto_a2a3_range {
  uint64_t begin, end;
} pto_a2a3_range;

/* What a RUN dumps: the calls that select all, a kernel or a task. The host writes it before RUN,
 * and the device writes the last line. Kernels, tasks and buffers follow it, each in ascending
 * order, then the records of pto/abi/dump.h. In place of its name, a record has the address of the
 * kernel, and it has no library.
 *
 * Until the device has written a record completely, its phase is PTO_DUMP_DROPPED. So all records
 * before `end` can be read after a loss of the device. */
typedef struct pto_a2a3_dump {
  uint32_t level;       /* PTO_DUMP_* */
  uint32_t is_for_all;  /* 1: every call is selected */
  uint32_t num_kernels; /* addresses, as in pto_payload */
  uint32_t num_tasks;   /* as in pto_payload */
  uint32_t num_buffers; /* pto_a2a3_range: device memory of the program that is not of the pool */
  uint32_t pad0;
  uint64_t records; /* offset of the first record from here */
  uint64_t limit;   /* most bytes of all records */
  uint64_t pad[3];
  uint64_t end;  /* bytes of the records */
  uint64_t lost; /* records that were not written */
  uint64_t end_pad[6];
} pto_a2a3_dump;

PTO_ABI_ASSERT(offsetof(pto_a2a3_dump, end) == PTO_A2A3_LINE, "pto_a2a3_dump.end");
PTO_ABI_ASSERT(sizeof(pto_a2a3_dump) == 2 * PTO_A2A3_LINE, "pto_a2a3_dump");

/* The access log of a RUN with pto_call_config.enable_dep_gen, which the device writes at its end.
 * The rows of pto/abi/access_log.h follow, then the names of files, each with a zero at its end.
 * The rows have the offset of a name from here in place of a pointer. */
typedef struct pto_a2a3_access_log {
  uint64_t bytes; /* from here to the end of the last name */
  uint64_t num_tasks;
  uint64_t num_accesses;
  uint64_t num_events;
} pto_a2a3_access_log;

#define PTO_A2A3_STATISTICS 128
#define PTO_A2A3_EXPLANATION 16384

/* Answer of a command. The device writes it, and `sequence` last, as the last store of the command;
 * the host copies it after it has synchronised the stream. If `sequence` is not that of the launch,
 * the command did not end. After PTO_ERROR_LOST a thread or a core of the launch may never end, so
 * a host that waits also copies the answer while the stream is busy. */
typedef struct pto_a2a3_status {
  uint64_t sequence;
  uint64_t pad[7]; /* `sequence` has a line of its own */
  uint32_t command;
  pto_status status;
  uint64_t handle;
  uint64_t address; /* RUN: of a pto_a2a3_access_log; 0: none */
  /* INIT: PTO_A2A3_PLANNING. LOAD: PTO_A2A3_PRINTS. ATTACH: PTO_RUNTIME_* of the variant */
  uint32_t capabilities;
  uint32_t max_args;
  int64_t max_tasks;
  uint32_t machine; /* e_machine of the device library's ELF file: 183 AArch64, 62 x86-64 */
  uint32_t process; /* number of the process that runs the device library */
  uint32_t num_statistics;
  uint32_t explanation_bytes;
  pto_error error; /* `status` is that of the command's outcome; complete if it is not PTO_OK */
  pto_run_report report;
  pto_statistic statistics[PTO_A2A3_STATISTICS];
  char explanation[PTO_A2A3_EXPLANATION]; /* pto_runtime_api.explain at the end of the run */
} pto_a2a3_status;

PTO_ABI_ASSERT(offsetof(pto_a2a3_status, command) == 64, "pto_a2a3_status.command");
PTO_ABI_ASSERT(offsetof(pto_a2a3_status, error) == 120, "pto_a2a3_status.error");
PTO_ABI_ASSERT(offsetof(pto_a2a3_status, report) == 1448, "pto_a2a3_status.report");
PTO_ABI_ASSERT(offsetof(pto_a2a3_status, statistics) == 2688, "pto_a2a3_status.statistics");
PTO_ABI_ASSERT(sizeof(pto_a2a3_status) == 27264, "pto_a2a3_status");

/* The requests of the host during a run. The host writes them at any time. It copies `cause` to the
 * device before it copies `abort`. The device reads it at least every 10 ms, and at the start of a
 * run. */
typedef struct pto_a2a3_control {
  uint64_t abort;    /* the sequence of the RUN that must end; others are ignored */
  uint64_t explain;  /* number of the newest request for an explanation: 1, 2, ...; 0: none */
  uint64_t log_read; /* number of log entries that the host has read */
  /* The sequence of the RUN whose running kernels must not be waited for: the RUN answers
   * PTO_ERROR_LOST, and the host resets the device. Set it with `abort`, or after a core fault. */
  uint64_t abandon;
  uint64_t pad[4];
  pto_error cause; /* of the abort; status PTO_OK: none */
  uint64_t end_pad[2];
} pto_a2a3_control;

PTO_ABI_ASSERT(offsetof(pto_a2a3_control, cause) == 64, "pto_a2a3_control.cause");
PTO_ABI_ASSERT(sizeof(pto_a2a3_control) == 1408, "pto_a2a3_control");

enum {
  PTO_A2A3_RESTING = 0,  /* no run */
  PTO_A2A3_STARTING = 1, /* AICPU threads and cores report */
  PTO_A2A3_RUNNING = 2,
  PTO_A2A3_LEAVING = 3 /* the cores leave */
};

/* The state that the device reports during a run. The device writes it. The host copies it at any
 * time, also after a fault: it then has the newest state that reached memory, at most 10 ms old. */
typedef struct pto_a2a3_progress {
  uint64_t sequence;  /* of the newest RUN */
  uint64_t heartbeat; /* grows while the device drives the run */
  uint64_t tasks;     /* that have finished in this run */
  uint32_t phase;     /* PTO_A2A3_RESTING ... */
  uint32_t threads;   /* AICPU threads that take part */
  uint64_t explained; /* number of the request that `explanation` answers */
  uint64_t explanation_bytes;
  uint64_t pad[2];
  /* For each core, the sequence number of the newest finished task. The task in slot c of
   * pto_a2a3_cores is in flight while its number is a different one; see pto_a2a3_in_flight(). */
  uint32_t finished[PTO_MAX_CORES];
  uint32_t finished_pad[8];
  char explanation[PTO_A2A3_EXPLANATION]; /* a snapshot of pto_runtime_api.explain */
} pto_a2a3_progress;

PTO_ABI_ASSERT(offsetof(pto_a2a3_progress, finished) == 64, "pto_a2a3_progress.finished");
PTO_ABI_ASSERT(offsetof(pto_a2a3_progress, explanation) == 384, "pto_a2a3_progress.explanation");
PTO_ABI_ASSERT(sizeof(pto_a2a3_progress) == 16768, "pto_a2a3_progress");

enum {
  PTO_A2A3_FAULT_NONE = 0,
  PTO_A2A3_FAULT_SLOT = 1,   /* the slot has another sequence number than the doorbell */
  PTO_A2A3_FAULT_KERNEL = 2, /* the address of the kernel cannot be one */
  PTO_A2A3_FAULT_ASSERTION = 3
};

/* The report of one core. The core writes it: at the start of a launch, `launch` last, and before
 * it sets COND to PTO_A2A3_COND_FAULT. The AICPU reads it. */
typedef struct pto_a2a3_handshake {
  uint64_t launch; /* of the launch to which the line belongs */
  uint32_t physical;
  uint32_t core_type; /* PTO_CORE_AIC or PTO_CORE_AIV */
  uint32_t fault;     /* PTO_A2A3_FAULT_* */
  uint32_t expected;  /* the number at the doorbell, which names the task */
  /* FAULT_SLOT: the number in the slot. FAULT_KERNEL: the address. FAULT_ASSERTION: the address of
   * a pto_a2a3_text. */
  uint64_t value;
  uint64_t pad[4];
} pto_a2a3_handshake;

PTO_ABI_ASSERT(sizeof(pto_a2a3_handshake) == PTO_A2A3_LINE, "a report is one line");

/* The slot of one core. The AICPU thread that schedules the core writes it, and then the doorbell;
 * the core reads it between doorbell and COND. The host reads it after a fault. The task of the
 * slot is in its first line. */
typedef struct pto_a2a3_slot {
  uint32_t sequence; /* the number that is written to DATA_MAIN_BASE */
  uint32_t length;   /* bytes of the payload with its arguments and data */
  pto_payload payload;
  uint8_t rest[PTO_MAX_PAYLOAD - sizeof(pto_payload)];
  uint8_t pad[PTO_A2A3_LINE - 8];
} pto_a2a3_slot;

PTO_ABI_ASSERT(offsetof(pto_a2a3_slot, payload) == 8, "pto_a2a3_slot.payload");
PTO_ABI_ASSERT(sizeof(pto_a2a3_slot) == PTO_MAX_PAYLOAD + PTO_A2A3_LINE, "pto_a2a3_slot");

/* The data that the AICPU and the cores exchange. The host fills the block with zeros once, before
 * INIT. Element c of each array belongs to logical core c (pto/abi/topology.h). */
typedef struct pto_a2a3_cores {
  uint64_t closed; /* AICPU: the newest launch that has ended. A core of it that starts late ends */
  uint64_t pad[7];
  pto_a2a3_handshake handshake[PTO_MAX_CORES];
  pto_a2a3_slot slot[PTO_MAX_CORES];
} pto_a2a3_cores;

PTO_ABI_ASSERT(offsetof(pto_a2a3_cores, handshake) == 64, "pto_a2a3_cores.handshake");
PTO_ABI_ASSERT(offsetof(pto_a2a3_cores, slot) == 4672, "pto_a2a3_cores.slot");
PTO_ABI_ASSERT(sizeof(pto_a2a3_cores) == 4672 + 72 * 16448, "pto_a2a3_cores");

/* Return whether the task in the slot of a core is in flight. Both blocks are copies of the host.
 */
static inline int pto_a2a3_in_flight(const pto_a2a3_progress* progress, const pto_a2a3_cores* cores,
                                     uint32_t core) {
  return cores->slot[core].sequence != progress->finished[core];
}

#define PTO_A2A3_LOG_ENTRIES 64

typedef struct pto_a2a3_log_entry {
  uint64_t number; /* 1, 2, ...; written last. Entry n is at index (n - 1) % PTO_A2A3_LOG_ENTRIES */
  int32_t level;   /* PTO_LOG_* */
  uint32_t length;
  char text[496]; /* with a final zero; a longer message is cut */
} pto_a2a3_log_entry;

PTO_ABI_ASSERT(sizeof(pto_a2a3_log_entry) == 512, "pto_a2a3_log_entry");

/* The log of the device. The device writes it; the host copies it, and states in
 * pto_a2a3_control.log_read how far it has read. If the log is full, the device drops the new entry
 * and counts it. */
typedef struct pto_a2a3_log {
  uint64_t written;
  uint64_t dropped;
  uint64_t pad[6];
  pto_a2a3_log_entry entry[PTO_A2A3_LOG_ENTRIES];
} pto_a2a3_log;

PTO_ABI_ASSERT(sizeof(pto_a2a3_log) == 64 + 512 * PTO_A2A3_LOG_ENTRIES, "pto_a2a3_log");

#define PTO_A2A3_TEXTS 32

/* A text of a kernel: of pto_printf, or of a PTO_ASSERT that failed (pto/kernel/print.hpp). */
typedef struct pto_a2a3_text {
  uint64_t number; /* as in pto_a2a3_log_entry; 0: of an assertion */
  uint64_t kernel; /* as in pto_payload */
  uint64_t task;
  int32_t line;
  uint32_t pad;
  char file[96]; /* without folders; with a final zero, as is the text */
  char text[1024];
} pto_a2a3_text;

PTO_ABI_ASSERT(sizeof(pto_a2a3_text) == 1152, "pto_a2a3_text");

/* What the kernels of one core print. The core writes it; the host copies it, and writes `read`. A
 * core with a full ring waits for the host, and drops the text if the host does not read. */
typedef struct pto_a2a3_texts {
  uint64_t written;
  uint64_t dropped;
  uint64_t slot; /* address of the core's slot; for the core only */
  uint64_t pad[5];
  uint64_t read; /* number of entries that the host has read */
  uint64_t read_pad[7];
  pto_a2a3_text failure; /* of the newest assertion that failed */
  pto_a2a3_text entry[PTO_A2A3_TEXTS];
} pto_a2a3_texts;

PTO_ABI_ASSERT(offsetof(pto_a2a3_texts, read) == PTO_A2A3_LINE, "pto_a2a3_texts.read");
PTO_ABI_ASSERT(sizeof(pto_a2a3_texts) == 128 + 1152 * (PTO_A2A3_TEXTS + 1), "pto_a2a3_texts");

#endif
