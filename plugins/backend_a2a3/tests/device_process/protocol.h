/* Messages between a driver (the fake driver, or the C++ test host) and the device process.
 *
 * The device process plays the silicon. It knows device memory, register pages, AICPU threads and
 * cores. It knows no run and no task: all code above that comes through device memory.
 *
 * Start: the driver makes a socket pair (AF_UNIX, SOCK_SEQPACKET) and starts
 *   device_process FD [blocks=N] [seed=N] [duplicates=1] [dead_core=N] [dead_threads=N]
 *                  [folder=PATH] [plain=1] [log=PATH]
 * FD is the number of the inherited socket. blocks: clusters that an AICore launch gets, 1 to 24
 * (default 24). seed: chooses which of the 25 clusters are masked, which cluster each block gets,
 * and the order of the AICPU threads. A chip has 24 clusters, or 20 if `blocks` is at most 20.
 * duplicates=1: some AICPU threads of a launch report the same processor. dead_core=N: core N - 1
 * of each AICore launch (AIC 0, its two AIV, AIC 1, ...) never starts. dead_threads=N: N threads of
 * each AICPU launch of more than N threads never start. folder: where the dispatcher installs
 * libraries. plain=1: the device library is that of the chip, whose stores to registers are plain
 * and wake no core, so cores sleep briefly. log: the file of the vendor's log, to which
 * DlogRecord() adds lines; default: none. The process ends when the socket is closed.
 *
 * Each message is one packet. The driver sends silicon_request; the device process answers each
 * with one silicon_answer of the same tag, in order. A launch is answered when it has started; its
 * end is a later answer of kind SILICON_COMPLETED or SILICON_CRASHED with the tag of the launch.
 * Launches run side by side; the driver keeps the order of its streams, so it starts a launch when
 * the one before it on its stream has completed.
 *
 * Device memory: the driver reserves an address range with PROT_NONE, makes a memory file
 * (memfd_create) of that size, keeps its own mapping elsewhere for copies, and sends
 * SILICON_MAP with the descriptor (SCM_RIGHTS). The device process maps it at the same address,
 * readable, writable and executable.
 *
 * Reset: send SILICON_EXIT or kill the process, wait for it, start another one and map the same
 * file again. A crash of AICPU or AICore code sends SILICON_CRASHED, then ends the process with the
 * signal; the memory file keeps its contents.
 */
#ifndef PTO_A2A3_DEVICE_PROCESS_PROTOCOL_H
#define PTO_A2A3_DEVICE_PROCESS_PROTOCOL_H

#include <stdint.h>

#include "abi/chip.h"

enum {
  SILICON_MAP = 1,    /* address, bytes, and a descriptor. Fails if the address is in use */
  SILICON_QUERY = 2,  /* answers with silicon_info */
  SILICON_LOAD = 3,   /* address, bytes: an AICPU library, as a file in device memory: handle */
  SILICON_AICPU = 4,  /* handle, symbol, threads, arguments: starts uint32_t symbol(void*) */
  SILICON_CODE = 5,   /* address, bytes: AICore code, as a file in device memory: handle */
  SILICON_AICORE = 6, /* handle, symbol (without _0_mix_aic), blocks, arguments: starts the cores */
  SILICON_EXIT = 7    /* ends the process at once, without an answer */
};

#define SILICON_ARGUMENT_BYTES 2048

/* The address through which the flags between cores work; each core must set it. */
#define SILICON_FLAG_BASE UINT64_C(0x210000000000)

typedef struct silicon_request {
  uint32_t kind;
  uint32_t threads; /* AICPU: number of threads. AICORE: number of blocks */
  uint64_t tag;     /* chosen by the driver; unique among launches that have not completed */
  uint64_t address;
  uint64_t bytes;
  uint64_t handle;
  uint64_t argument_bytes; /* used bytes of `arguments`; each thread gets a copy of its own */
  char symbol[128];
  uint8_t arguments[SILICON_ARGUMENT_BYTES];
} silicon_request;

PTO_ABI_ASSERT(sizeof(silicon_request) == 48 + 128 + SILICON_ARGUMENT_BYTES, "silicon_request");

enum { SILICON_DONE = 1, SILICON_FAILED = 2, SILICON_COMPLETED = 3, SILICON_CRASHED = 4 };

enum { SILICON_ON_AICPU = 1, SILICON_ON_AIC = 2, SILICON_ON_AIV = 3 };

typedef struct silicon_answer {
  uint32_t kind;
  uint32_t result; /* COMPLETED: the first value other than 0 that a thread returned, or 0 */
  uint64_t tag;
  uint64_t handle;   /* LOAD, CODE */
  uint32_t signal;   /* CRASHED: of the thread */
  uint32_t place;    /* CRASHED: SILICON_ON_* */
  uint32_t physical; /* CRASHED on a core: the physical core */
  uint32_t reserved;
  char message[216]; /* FAILED: the reason */
} silicon_answer;

PTO_ABI_ASSERT(sizeof(silicon_answer) == 256, "silicon_answer");

/* The answer to SILICON_QUERY, instead of silicon_answer. */
typedef struct silicon_info {
  uint32_t kind; /* SILICON_DONE */
  uint32_t pid;
  uint64_t tag;
  uint32_t machine;       /* e_machine of the device process: 62 x86-64, 183 AArch64 */
  uint32_t blocks;        /* clusters that an AICore launch may use */
  uint32_t cluster_mask;  /* bit c: physical cluster c exists */
  uint32_t aicpu_mask;    /* bit p: AICPU processor p is usable; six bits are set */
  uint64_t register_base; /* of the register area, as AICPU threads see it; see abi/chip.h */
  uint64_t register_bytes;
  /* Address of the page of each physical core; 0: there is none. An access to the page of a
   * masked core ends the process. */
  uint64_t registers[PTO_A2A3_PHYSICAL_CORES];
} silicon_info;

PTO_ABI_ASSERT(sizeof(silicon_info) == 48 + 8 * PTO_A2A3_PHYSICAL_CORES, "silicon_info");

#endif
