/* The data that the host and the dispatcher exchange. The dispatcher is our first library on the
 * AICPU. CANN loads the dispatcher from device memory. The dispatcher writes the device library to
 * a file, and CANN loads this file by name.
 *
 * The layout belongs to CANN. The host writes the block, the dispatcher and the device library to
 * device memory, and starts CANN's entry with the arguments.
 */
#ifndef PTO_A2A3_ABI_DISPATCHER_H
#define PTO_A2A3_ABI_DISPATCHER_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/version.h"

/* The folder in which CANN looks for libraries of the AICPU. Devices that share an AICPU share the
 * folder. */
#define PTO_A2A3_LIBRARY_FOLDER "/usr/lib64/aicpu_kernels/0/aicpu_kernels_device"

typedef struct pto_a2a3_bootstrap_block {
  uint64_t unused[12];
  uint64_t dispatcher; /* device address of the dispatcher's bytes */
  uint64_t dispatcher_bytes;
  uint64_t device;  /* the driver's number */
  uint64_t library; /* device address of the device library's bytes */
  uint64_t library_bytes;
  uint64_t unused_end[3];
} pto_a2a3_bootstrap_block;

PTO_ABI_ASSERT(offsetof(pto_a2a3_bootstrap_block, dispatcher) == 96, "bootstrap_block.dispatcher");
PTO_ABI_ASSERT(offsetof(pto_a2a3_bootstrap_block, device) == 112, "bootstrap_block.device");
PTO_ABI_ASSERT(offsetof(pto_a2a3_bootstrap_block, library) == 120, "bootstrap_block.library");
PTO_ABI_ASSERT(sizeof(pto_a2a3_bootstrap_block) == 160, "bootstrap_block");

typedef struct pto_a2a3_bootstrap_arguments {
  uint64_t unused[5];
  uint64_t block; /* device address of a pto_a2a3_bootstrap_block */
  uint64_t unused_end[20];
  char kernel[32];
  char library[32];
  char operation[32];
} pto_a2a3_bootstrap_arguments;

PTO_ABI_ASSERT(offsetof(pto_a2a3_bootstrap_arguments, block) == 40, "bootstrap_arguments.block");
PTO_ABI_ASSERT(offsetof(pto_a2a3_bootstrap_arguments, kernel) == 208, "bootstrap_arguments.kernel");

#define PTO_A2A3_LIBRARY_NAME_BYTES 40

/* Write the name of the file of a device library: it depends on the bytes of the library, so that a
 * library never replaces another library, and on the device. */
static inline void pto_a2a3_library_name(char out[PTO_A2A3_LIBRARY_NAME_BYTES], const void* library,
                                         uint64_t bytes, uint64_t device) {
  static const char digits[] = "0123456789abcdef";
  static const char head[] = "pto_a2a3_";
  uint64_t hash = 0xCBF29CE484222325u;
  char* at = out;
  int i;
  uint64_t byte;
  for (byte = 0; byte < bytes; ++byte) {
    hash = (hash ^ ((const uint8_t*)library)[byte]) * 0x100000001B3u;
  }
  for (i = 0; head[i] != '\0'; ++i) *at++ = head[i];
  for (i = 60; i >= 0; i -= 4) *at++ = digits[hash >> i & 15];
  *at++ = '_';
  for (i = 12; i >= 0; i -= 4) *at++ = digits[device >> i & 15];
  *at++ = '.';
  *at++ = 's';
  *at++ = 'o';
  *at = '\0';
}

#endif
