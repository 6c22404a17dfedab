/* The graph of the variant that the check of a card runs: some equal tasks, one after another.
 *
 * Each task calls the run's only kernel on the first vector core with the arguments `in`, `out` and
 * `count`. The kernel writes 3 x + 1 to `out` for each 32-bit number x of `in`.
 */
#ifndef PTO_A2A3_ABI_PROBE_H
#define PTO_A2A3_ABI_PROBE_H

#include <stdint.h>

#include "pto/abi/version.h"

#define PTO_A2A3_PROBE_VARIANT "a2a3_probe"
#define PTO_A2A3_PROBE_MAGIC 0x42504132u

typedef struct pto_a2a3_probe {
  uint32_t magic;
  uint32_t tasks; /* 0: the run only opens and closes the cores */
  uint64_t in;    /* addresses in device memory */
  uint64_t out;
  uint64_t count;
} pto_a2a3_probe;

PTO_ABI_ASSERT(sizeof(pto_a2a3_probe) == 32, "pto_a2a3_probe");

#endif
