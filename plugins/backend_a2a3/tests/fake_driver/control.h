/* Control of the fake driver, for tests.
 *
 * The fake driver is one library with the vendor's exported names. It refuses each call and each
 * argument that is not known from the vendor's interface. Tests put it in a folder under the
 * vendor's file names. It exports pto_fake_driver_marker, so a result of it is never taken for
 * a result of a card. Settings come from the environment variable PTO_FAKE_DRIVER, then from
 * pto_fake_configure(); both are lists like "devices=4,soc=Ascend910B3".
 *
 *   devices=4              devices of the machine; ASCEND_RT_VISIBLE_DEVICES selects among them
 *   soc=Ascend910B3        name of the chip
 *   version=8.3.RC1        release of CANN
 *   memory_mib=1024        device memory, of each device
 *   operation_timeout_ms=  limit of one launch, until the host sets another; 0: none
 *   async_copy_ms=0        time of an asynchronous copy
 *   cubes=24, vectors=48   limits of a stream, if the device has so many cores
 *   streams=1984           largest number of streams of a device
 *   probe=1                0: a forced reset does not repair a poisoned device
 *   clusters=1             0: the driver does not answer which clusters exist
 *   register_bytes=        length that halMemCtl returns with the address of the registers
 *   seed=1                 seed of all random choices
 *   process=PATH           the device process, which each device starts when it is selected
 *   silicon=WORDS          its settings, separated by spaces: see ../device_process/protocol.h
 *   libraries=FOLDER       where the AICPU finds the libraries that a dispatcher has installed
 */
#ifndef PTO_FAKE_DRIVER_CONTROL_H
#define PTO_FAKE_DRIVER_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes settings. Returns 0, or -1 for an unknown key or an invalid value. */
int pto_fake_configure(const char* settings);

/* Fails a call: the `nth` call of `function` from now (1: the next) returns `code` and does
 * nothing else. With `is_late`, for a launch or an asynchronous copy: the call returns 0, and
 * `code` appears at the next query or synchronisation of its stream. */
void pto_fake_fail(const char* function, uint32_t nth, int32_t code, int is_late);

/* Returns the number of calls of `function` since the last reset. */
uint64_t pto_fake_calls(const char* function);

/* Writes one line for each finding, and returns their number:
 *   "error: RULE: ..." broken rule of the vendor, "warning: RULE: ..." preference,
 *   "leak: ..." memory, stream, function or device that was not released,
 *   "overrun: ..." changed bytes before or after a block of memory. */
uint32_t pto_fake_findings(char* text, size_t capacity);

/* Returns to the state of a new process, without findings. Settings are kept. */
void pto_fake_reset(void);

/* One launch, as the device receives it. */
typedef struct pto_fake_launch {
  int is_core;        /* 1: cores, 0: AICPU */
  const char* symbol; /* of an AICPU launch */
  uint32_t blocks;
  uint32_t code;      /* of a launch on cores: the code that runs; 1: registered first */
  uint64_t arguments; /* device address of the copied arguments */
  uint64_t bytes;
  uint64_t stream; /* number of the stream, in the order of creation */
  const int* stop; /* not 0: the driver gave the launch up. Read it with __atomic_load_n */
} pto_fake_launch;

/* Stands in for the chip, in tests of the driver alone: a launch calls `program` on the thread of
 * its stream. The result is a vendor's code. Null: the device process runs the launch. */
typedef int32_t (*pto_fake_program)(void* context, const pto_fake_launch* launch);
void pto_fake_set_program(pto_fake_program program, void* context);

/* Returns the number of the device process of a device, by the driver's number; 0: none. */
int32_t pto_fake_process(uint32_t device);

/* Returns where the host can access a device address; null for an address that is not allocated.
 * Only a program may use it. */
void* pto_fake_view(uint64_t address, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
